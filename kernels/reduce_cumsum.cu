// Running sums along a dim: x (outer, n, inner), compact -> y of the same shape, in A (64-bit integers, or R). The sum
// so far is kept in a Total, and rounded for each y.
//
//   cumsum_rows     inner = 1   a block for each `part` elements of a row, at most 256 threads; each thread has a run of
//                               neighbours. totals: the sum of each part, null if there is one; cumsum_parts makes them
//   cumsum_columns  inner > 1   a block for each WIDTH columns, of 1 thread, or of WIDTH threads, one per column
//   equals          np.cumsum(x, 1); reversed: np.flip(np.cumsum(np.flip(x, 1), 1), 1)
#include "accumulate.cuh"

// args  totals (grid); x (grid // up(n, part), n)
extern "C" __global__ void cumsum_parts(Total<A>* __restrict__ totals, const T* __restrict__ x, long long n,
                                        long long part, bool reversed) {
  const long long parts = (n + part - 1) / part, first = blockIdx.x % parts * part;
  const long long count = n - first < part ? n - first : part;
  x += blockIdx.x / parts * n + (reversed ? n - first - count : first);
  Total<A> s = {};
  for (long long i = threadIdx.x; i < count; i += blockDim.x) s.add(A(R(x[i])));
  s = block_combine(s, [](Total<A> a, Total<A> b) { return sum_of(a, b); });
  if (threadIdx.x == 0) totals[blockIdx.x] = s;
}

// args  y, x (grid // up(n, part), n); totals? (grid)
extern "C" __global__ void cumsum_rows(A* __restrict__ y, const T* __restrict__ x, const Total<A>* __restrict__ totals,
                                       long long n, long long part, bool reversed) {
  __shared__ Total<A> sums[256];
  const long long parts = (n + part - 1) / part, from = blockIdx.x % parts * part;
  const long long to = n - from < part ? n : from + part;
  x += blockIdx.x / parts * n;
  y += blockIdx.x / parts * n;
  const long long run = (to - from + blockDim.x - 1) / blockDim.x, first = from + run * threadIdx.x;
  const long long end = first + run < to ? first + run : to;
  auto at = [&](long long i) { return reversed ? n - 1 - i : i; };
  Total<A> s = {};
  if (!ONE_THREAD) {  // each run starts from the sum of the parts and runs before it
    for (long long i = first; i < end; i++) s.add(A(R(x[at(i)])));
    sums[threadIdx.x] = s;
    s = {};
    if (totals) {
      for (long long i = blockIdx.x / parts * parts + threadIdx.x; i < blockIdx.x; i += blockDim.x) s.add(totals[i]);
      s = block_combine(s, [](Total<A> a, Total<A> b) { return sum_of(a, b); });
    }
    __syncthreads();
    for (unsigned t = 0; t < threadIdx.x; t++) s.add(sums[t]);
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
