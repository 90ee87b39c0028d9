// The order of each row: x (rows, n), compact -> y (rows, n), indices that sort it. Stable; NaN is the largest number.
//
//   argsort   a block for each row, 1 or a multiple of 32 threads; other (rows, n): room to work in
//   equals    np.argsort(x, 1, kind="stable"); descending: the largest first, and equals in their order too
//
// Runs of 1, 2, 4, … indices are merged in pairs. In what two runs become, an index stands behind those before it in its
// own run and those of the other run that come before it, whose number bisection finds: so all can move at once. One
// thread by itself merges as one does by hand.
#include "common.cuh"

// args  y, other, x (grid, n)
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
argsort(long long* __restrict__ y, long long* __restrict__ other, const T* __restrict__ x, long long n,
        bool descending) {
  x += blockIdx.x * n;
  y += blockIdx.x * n;
  other += blockIdx.x * n;
  auto comes_before = [&](long long i, long long j) {
    const R a = R(x[descending ? j : i]), b = R(x[descending ? i : j]);
    return a < b || (a == a && b != b);
  };
  bool even = true;  // is the number of merges, of which the last has to end in y
  for (long long run = 1; run < n; run *= 2) even = !even;
  long long *from = even ? y : other, *to = even ? other : y;
  for (long long i = threadIdx.x; i < n; i += blockDim.x) from[i] = i;
  for (long long run = 1; run < n; run *= 2) {
    __syncthreads();
    for (long long start = 0; ONE_THREAD && start < n; start += 2 * run) {
      const long long middle = start + run < n ? start + run : n, end = middle + run < n ? middle + run : n;
      long long i = start, j = middle;
      for (long long at = start; at < end; at++) {
        const bool second = i == middle || (j < end && comes_before(from[j], from[i]));
        to[at] = from[second ? j++ : i++];
      }
    }
    for (long long i = threadIdx.x; !ONE_THREAD && i < n; i += blockDim.x) {
      const long long start = i / (2 * run) * (2 * run), index = from[i];
      const long long middle = start + run < n ? start + run : n, end = middle + run < n ? middle + run : n;
      const bool first = i < middle;  // is it in the first run? Of equals, that one's come first
      long long low = first ? middle : start, high = first ? end : middle;
      while (low < high) {
        const long long at = (low + high) / 2;
        if (first ? comes_before(from[at], index) : !comes_before(index, from[at])) low = at + 1;
        else high = at;
      }
      to[i + low - middle] = index;
    }
    long long* const merged = to;
    to = from;
    from = merged;
  }
}
