// Reading and writing by index. Compiled for unsigned integers of 1, 2, 4 and 8 bytes, like movement.cu. The indices
// have been checked to be in range.
//
//   take    x (V, n), index (rows,)                      launch over y's elements   y = x[index]
//   gather  x (outer, V, n), index (outer, m, n)         launch over y's elements   y = np.take_along_axis(x, index, 1)
//   put     x (V, n), y (…, n), index and from (rows,)   launch over rows × n       x[index] = y[from]
//           index names no row twice
//   places  sums (n,), how many of some bools are true so far; launch over n        y = np.flatnonzero(bools)
#include "common.cuh"

// args  bits y (rows, n); bits x (…, n); index (rows)
extern "C" __global__ void take(T* __restrict__ y, const T* __restrict__ x, const long long* __restrict__ index,
                                long long rows, long long n) {
  grid_rows(rows, n, [&](long long i, long long j) { y[i * n + j] = x[index[i] * n + j]; });
}

// args  bits y (outer, m, n); bits x (outer, V, n); index (outer, m, n)
extern "C" __global__ void gather(T* __restrict__ y, const T* __restrict__ x, const long long* __restrict__ index,
                                  long long outer, long long V, long long m, long long n) {
  grid_rows(outer * m, n, [&](long long i, long long j) {
    y[i * n + j] = x[(i / m * V + index[i * n + j]) * n + j];
  });
}

// args  bits x, y (…, n); index, source (rows)
extern "C" __global__ void put(T* __restrict__ x, const T* __restrict__ y, const long long* __restrict__ index,
                               const long long* __restrict__ source, long long rows, long long n) {
  grid_rows(rows, n, [&](long long i, long long j) { x[index[i] * n + j] = y[source[i] * n + j]; });
}

// args  y (count); sums (n)
extern "C" __global__ void places(long long* __restrict__ y, const long long* __restrict__ sums, long long n,
                                  long long count) {
  grid_each(n, [&](long long i) {
    if (sums[i] != (i ? sums[i - 1] : 0) && sums[i] <= count) y[sums[i] - 1] = i;
  });
}
