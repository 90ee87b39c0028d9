// Running sums along a dim: x (outer, n, inner), compact -> y of the same shape, in A: 64-bit integers, or R.
//
//   cumsum_rows     inner = 1   a block for each row, at most 256 threads; a thread has a run of neighbours
//   cumsum_columns  inner > 1   a block for each WIDTH columns, a thread for a column
//   equals          np.cumsum(x, 1); reversed: np.flip(np.cumsum(np.flip(x, 1), 1), 1)
#include "accumulate.cuh"

extern "C" __global__ void cumsum_rows(A* __restrict__ y, const T* __restrict__ x, long long n, bool reversed) {
  __shared__ A totals[256];
  x += blockIdx.x * n;
  y += blockIdx.x * n;
  const long long run = (n + blockDim.x - 1) / blockDim.x, first = run * threadIdx.x;
  const long long end = first + run < n ? first + run : n;
  auto at = [&](long long i) { return reversed ? n - 1 - i : i; };
  A s = 0;
  if (!ONE_THREAD) {  // each run starts from the sum of those before it
    for (long long i = first; i < end; i++) s += A(R(x[at(i)]));
    totals[threadIdx.x] = s;
    __syncthreads();
    s = 0;
    for (unsigned t = 0; t < threadIdx.x; t++) s += totals[t];
  }
  for (long long i = first; i < end; i++) y[at(i)] = s += A(R(x[at(i)]));
}

constexpr int WIDTH = 64;

extern "C" __global__ void cumsum_columns(A* __restrict__ y, const T* __restrict__ x, long long n, long long inner,
                                          bool reversed) {
  const long long chunks = (inner + WIDTH - 1) / WIDTH, c0 = blockIdx.x % chunks * WIDTH;
  const long long start = blockIdx.x / chunks * n * inner + (reversed ? (n - 1) * inner : 0) + c0;
  const long long step = reversed ? -inner : inner;
  const long long width = inner - c0 < WIDTH ? inner - c0 : WIDTH;
  for (long long i = 0; i < n; i++) {  // a thread has the same columns each time: the sum so far is its own
    A* to = y + start + i * step;
    const T* from = x + start + i * step;
    each(width, [&](long long c) { to[c] = (i ? to[c - step] : A(0)) + A(R(from[c])); });
  }
}
