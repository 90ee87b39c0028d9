// The order of each row: x (rows, n), compact -> y (rows, n), indices that sort it. Stable; NaN is the largest number.
//
//   argsort       the order of each `part` elements of a row, a block each, 1 or a multiple of 32 threads;
//                 other (rows, n): room to work in
//   merge_orders  y: pairs of runs of `other` are merged. A run is `run` indices of a row that are in order. Launch over
//                 rows × n. On a GPU
//   equals        np.argsort(x, 1, kind="stable"); descending: the largest first, and equals in their order too
//
// Runs of 1, 2, 4, … indices are merged in pairs. In the merged run, an index comes after the indices before it in its
// own run, and after the indices of the other run that are ordered before it. Bisection finds their number, so that all
// indices can move at the same time. A single thread merges in the usual way, one index after the other.
#include "common.cuh"

// The order of two indices.
struct Order {
  const T* x;
  bool descending;
  __device__ __forceinline__ bool operator()(long long i, long long j) const {
    const R a = R(x[descending ? j : i]), b = R(x[descending ? i : j]);
    return a < b || (a == a && b != b);
  }
};

// The position to which from[i], one of n indices, moves when each two runs are merged.
__device__ __forceinline__ long long merged(const long long* from, long long i, long long run, long long n,
                                            Order comes_before) {
  const long long start = i / (2 * run) * (2 * run), index = from[i];
  const long long middle = start + run < n ? start + run : n, end = middle + run < n ? middle + run : n;
  const bool first = i < middle;  // true if it is in the first run, whose indices come first among equals
  long long low = first ? middle : start, high = first ? end : middle;
  while (low < high) {
    const long long at = (low + high) / 2;
    if (first ? comes_before(from[at], index) : !comes_before(index, from[at])) low = at + 1;
    else high = at;
  }
  return i + low - middle;
}

// args  y, other, x (grid // up(n, part), n)
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
argsort(long long* __restrict__ y, long long* __restrict__ other, const T* __restrict__ x, long long n, long long part,
        bool descending) {
  const long long parts = (n + part - 1) / part, row = blockIdx.x / parts * n, first = blockIdx.x % parts * part;
  n = n - first < part ? n - first : part;
  const Order comes_before = {x + row, descending};
  y += row + first;
  other += row + first;
  bool even = true;  // true if the number of merges is even; the last merge has to end in y
  for (long long run = 1; run < n; run *= 2) even = !even;
  long long *from = even ? y : other, *to = even ? other : y;
  for (long long i = threadIdx.x; i < n; i += blockDim.x) from[i] = first + i;
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
    for (long long i = threadIdx.x; !ONE_THREAD && i < n; i += blockDim.x)
      to[merged(from, i, run, n, comes_before)] = from[i];
    long long* const done = to;
    to = from;
    from = done;
  }
}

// args  y, other, x (rows, n)
extern "C" __global__ void merge_orders(long long* __restrict__ y, const long long* __restrict__ other,
                                        const T* __restrict__ x, long long rows, long long n, long long run,
                                        bool descending) {
  grid_each(rows * n, [&](long long place) {
    const long long row = place / n * n, i = place - row;
    y[row + merged(other + row, i, run, n, {x + row, descending})] = other[place];
  });
}
