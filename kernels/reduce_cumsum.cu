// Running sums along a dim: x (outer, n, inner), compact -> y of the same shape, in A (64-bit integers, or R). The sum
// so far is kept in a Total, and rounded for each y.
//
//   cumsum_rows     inner = 1   a block for each row, at most 256 threads; each thread has a run of neighbours
//   cumsum_columns  inner > 1   a block for each WIDTH columns, of 1 thread, or of WIDTH threads, one per column
//   equals          np.cumsum(x, 1); reversed: np.flip(np.cumsum(np.flip(x, 1), 1), 1)
#include "accumulate.cuh"

// args  y, x (grid, n)
extern "C" __global__ void cumsum_rows(A* __restrict__ y, const T* __restrict__ x, long long n, bool reversed) {
  __shared__ Total<A> totals[256];
  x += blockIdx.x * n;
  y += blockIdx.x * n;
  const long long run = (n + blockDim.x - 1) / blockDim.x, first = run * threadIdx.x;
  const long long end = first + run < n ? first + run : n;
  auto at = [&](long long i) { return reversed ? n - 1 - i : i; };
  Total<A> s = {};
  if (!ONE_THREAD) {  // each run starts from the sum of the runs before it
    for (long long i = first; i < end; i++) s.add(A(R(x[at(i)])));
    totals[threadIdx.x] = s;
    __syncthreads();
    s = {};
    for (unsigned t = 0; t < threadIdx.x; t++) s.add(totals[t]);
  }
  for (long long i = first; i < end; i++) {
    s.add(A(R(x[at(i)])));
    y[at(i)] = A(s);
  }
}

// args  y, x (grid // up(inner, WIDTH), n, inner)
extern "C" __global__ void cumsum_columns(A* __restrict__ y, const T* __restrict__ x, long long n, long long inner,
                                          bool reversed) {
  const long long chunks = (inner + WIDTH - 1) / WIDTH, c0 = blockIdx.x % chunks * WIDTH;
  const long long start = blockIdx.x / chunks * n * inner + (reversed ? (n - 1) * inner : 0) + c0;
  const long long step = reversed ? -inner : inner;
  const long long width = inner - c0 < WIDTH ? inner - c0 : WIDTH;
  Total<A> so_far[ONE_THREAD ? WIDTH : 1] = {};
  for (long long i = 0; i < n; i++) {
    A* to = y + start + i * step;
    const T* from = x + start + i * step;
    auto column = [&](long long c) {
      Total<A>& s = so_far[ONE_THREAD ? c : 0];
      s.add(A(R(from[c])));
      to[c] = A(s);
    };
    if (ONE_THREAD && width == WIDTH) each(WIDTH, column);  // a constant bound: registers hold the sums
    else each(width, column);
  }
}
