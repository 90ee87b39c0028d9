// The cross-entropy of rows of logits, with a target class for each, and its backward.
//
//   launch   a warp or a block for each row: see rows.cuh
//   equals   p = softmax(logits); loss = -(q * np.log(p)).sum(-1), dlogits = (p - q) * dloss[:, None] with
//            q = (1 - smoothing) * onehot(target) + smoothing / n; loss and dlogits are 0 where target == ignore_index,
//            which need not be a class. Any other target outside [0, n) gives NaN.
#include "rows.cuh"

// args  loss, target (rows); p, logits (rows, n)
extern "C" __global__ void __launch_bounds__(HELD_THREADS, HELD_BLOCKS)
cross_entropy(T* __restrict__ loss, T* __restrict__ p, const T* __restrict__ logits,
              const long long* __restrict__ target, long long rows, long long n, long long ignore_index,
              double smoothing) {
  const long long at = own_row();
  if (at >= rows) return;
  const T* x = logits + at * n;
  with_row(n, x, [&](auto& row) {
    const Pair s = softmax_row(p + at * n, row);
    const R mean = smoothing ? sum(n, [&](long long i) { return R(x[i]) - s.a; }) / n : R(0);
    if (threadIdx.x) return;
    const long long t = target[at];
    R v = 0;
    if (t != ignore_index) {
      v = t < 0 || t >= n ? INF - INF : -R(1 - smoothing) * (R(x[t]) - s.a);
      if (smoothing) v -= R(smoothing) * mean;
      if (s.b != 0) v += log(s.b);  // Σ q = 1, so the normaliser enters once
    }
    loss[at] = T(v);
  }, p + at * n);
}

// args  dloss, target (rows); dlogits, p (rows, n)
extern "C" __global__ void __launch_bounds__(HELD_THREADS, HELD_BLOCKS)
cross_entropy_backward(T* __restrict__ dlogits, const T* __restrict__ dloss, const T* __restrict__ p,
                       const long long* __restrict__ target, long long rows, long long n, long long ignore_index,
                       double smoothing) {
  const long long at = own_row();
  if (at >= rows) return;
  dlogits += at * n;
  const long long t = target[at];
  if (t == ignore_index) {
    each(n, [&](long long i) { dlogits[i] = T(0); });
    return;
  }
  const R d = t >= 0 && t < n ? R(dloss[at]) : INF - INF, others = R(smoothing / n), all = R(1 - smoothing);
  with_row(n, p + at * n, [&](auto& row) {
    row.map(dlogits, [&](long long i, R v) { return (v - others - (i == t ? all : R(0))) * d; });
  }, dlogits);
}
