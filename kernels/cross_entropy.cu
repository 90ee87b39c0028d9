// The cross-entropy of rows of logits, with a target class for each, and its backward.
//
//   layout   logits, p, dlogits: rows of n classes, one after the other; loss, dloss, target: one for each row
//   launch   a block for each row, 1 or a multiple of 32 threads
//   equals   p = softmax(logits); loss = -(q * np.log(p)).sum(-1), dlogits = (p - q) * dloss[:, None] with
//            q = (1 - smoothing) * onehot(target) + smoothing / n; loss and dlogits are 0 where target == ignore_index,
//            which need not be a class. Any other target outside [0, n) gives NaN.
#include "rows.cuh"

extern "C" __global__ void cross_entropy(T* __restrict__ loss, T* __restrict__ p, const T* __restrict__ logits,
                                         const long long* __restrict__ target, long long n, long long ignore_index,
                                         double smoothing) {
  const T* x = logits + blockIdx.x * n;
  const Pair s = softmax_row(p + blockIdx.x * n, n, [&](long long i) { return R(x[i]); });
  const R mean = smoothing ? sum(n, [&](long long i) { return R(x[i]) - s.a; }) / n : R(0);
  if (threadIdx.x) return;
  const long long t = target[blockIdx.x];
  R v = 0;
  if (t != ignore_index) {
    v = t < 0 || t >= n ? INF - INF : -R(1 - smoothing) * (R(x[t]) - s.a);
    if (smoothing) v -= R(smoothing) * mean;
    if (s.b != 0) v += log(s.b);  // Σ q = 1, so the normaliser enters once
  }
  loss[blockIdx.x] = T(v);
}

extern "C" __global__ void cross_entropy_backward(T* __restrict__ dlogits, const T* __restrict__ dloss,
                                                  const T* __restrict__ p, const long long* __restrict__ target,
                                                  long long n, long long ignore_index, double smoothing) {
  dlogits += blockIdx.x * n;
  p += blockIdx.x * n;
  const long long t = target[blockIdx.x];
  if (t == ignore_index) {
    each(n, [&](long long i) { dlogits[i] = T(0); });
    return;
  }
  const bool known = t >= 0 && t < n;
  const R d = known ? R(dloss[blockIdx.x]) : INF - INF, others = R(smoothing / n);
  each(n, [&](long long i) { dlogits[i] = T((R(p[i]) - others) * d); });
  if (known && t % blockDim.x == threadIdx.x)  // the thread that wrote this element above, so no barrier is needed
    dlogits[t] = T((R(p[t]) - others - R(1 - smoothing)) * d);
}
