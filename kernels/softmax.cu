// Softmax over rows and its relatives.
//
//   launch   a warp or a block for each row: see rows.cuh
//   equals   softmax: np.exp(x - x.max(-1)) / np.exp(x - x.max(-1)).sum(-1), and 0 for a row that is all -∞
//            its backward: (dy - (dy * y).sum(-1)) * y * scale
//            logsumexp: np.log(np.exp(x).sum(-1)); log_softmax: x - logsumexp, and -∞ for a row that is all -∞
#include "rows.cuh"

// args  y, x (rows, n)
extern "C" __global__ void __launch_bounds__(HELD_THREADS, HELD_BLOCKS)
softmax(T* __restrict__ y, const T* __restrict__ x, long long rows, long long n) {
  const long long at = own_row() * n;
  if (own_row() >= rows) return;
  with_row(n, x + at, [&](auto& row) { softmax_row(y + at, row); }, y + at);
}

// args  dx, dy, y (rows, n)
extern "C" __global__ void __launch_bounds__(HELD_THREADS, 1)
softmax_backward(T* __restrict__ dx, const T* __restrict__ dy, const T* __restrict__ y, long long rows, long long n,
                 R scale) {
  const long long at = own_row() * n;
  if (own_row() >= rows) return;
  with_row(n, Rows{dy + at, y + at}, [&](auto& row) {
    const R dot = row.sum([&](long long, Pair v) { return v.a * v.b; });
    row.map(dx + at, [&](long long, Pair v) { return (v.a - dot) * v.b * scale; });
  }, dx + at);
}

// args  y, x (rows, n)
extern "C" __global__ void __launch_bounds__(HELD_THREADS, HELD_BLOCKS)
log_softmax(T* __restrict__ y, const T* __restrict__ x, long long rows, long long n) {
  const long long at = own_row() * n;
  if (own_row() >= rows) return;
  with_row(n, x + at, [&](auto& row) {
    const Pair s = exp_sums(row);
    const R log_total = s.b == 0 ? R(0) : log(s.b);
    row.map(y + at, [&](long long, R v) { return v - s.a - log_total; });
  }, y + at);
}

// args  y (rows); x (rows, n)
extern "C" __global__ void __launch_bounds__(HELD_THREADS, HELD_BLOCKS)
logsumexp(T* __restrict__ y, const T* __restrict__ x, long long rows, long long n) {
  if (own_row() >= rows) return;
  with_row(n, x + own_row() * n, [&](auto& row) {
    R top = row.largest();
    if (top == INF || top == -INF) top = 0;  // then the sum is ∞ or 0, or NaN
    const R total = row.sum([&](long long, R v) { return exp(v - top); });
    if (threadIdx.x == 0) y[own_row()] = T(log(total) + top);
  });
}
