// Softmax over rows and its relatives.
//
//   layout   x, y, dy, dx: rows of n elements, one after the other
//   launch   a block for each row, 1 or a multiple of 32 threads
//   equals   softmax: np.exp(x - x.max(-1)) / np.exp(x - x.max(-1)).sum(-1), and 0 for a row that is all -∞
//            its backward: (dy - (dy * y).sum(-1)) * y * scale
//            logsumexp: np.log(np.exp(x).sum(-1)); log_softmax: x - logsumexp, and -∞ for a row that is all -∞
#include "rows.cuh"

extern "C" __global__ void softmax(T* __restrict__ y, const T* __restrict__ x, long long n) {
  x += blockIdx.x * n;
  softmax_row(y + blockIdx.x * n, n, [&](long long i) { return R(x[i]); });
}

extern "C" __global__ void softmax_backward(T* __restrict__ dx, const T* __restrict__ dy, const T* __restrict__ y,
                                            long long n, R scale) {
  dx += blockIdx.x * n;
  dy += blockIdx.x * n;
  y += blockIdx.x * n;
  const R dot = sum(n, [&](long long i) { return R(dy[i]) * R(y[i]); });
  each(n, [&](long long i) { dx[i] = T((R(dy[i]) - dot) * R(y[i]) * scale); });
}

extern "C" __global__ void log_softmax(T* __restrict__ y, const T* __restrict__ x, long long n) {
  x += blockIdx.x * n;
  y += blockIdx.x * n;
  const Pair s = exp_sums(n, [&](long long i) { return R(x[i]); });
  const R log_total = s.b == 0 ? R(0) : log(s.b);
  each(n, [&](long long i) { y[i] = T(R(x[i]) - s.a - log_total); });
}

extern "C" __global__ void logsumexp(T* __restrict__ y, const T* __restrict__ x, long long n) {
  x += blockIdx.x * n;
  R top = largest(n, [&](long long i) { return R(x[i]); });
  if (top == INF || top == -INF) top = 0;  // then the sum is ∞ or 0, or NaN
  const R total = sum(n, [&](long long i) { return exp(R(x[i]) - top); });
  if (threadIdx.x == 0) y[blockIdx.x] = T(log(total) + top);
}
