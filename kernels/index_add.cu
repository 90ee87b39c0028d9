// Adding at indices: the adjoints of reading by index. Each element's sum is added up in a fixed order, except in
// take_add_atomic. The indices have been checked to be in range. dx holds zeros before, unless stated otherwise.
//
//   take_add          dx (V, C), dy (N, C), index (N,)                            np.add.at(dx, index, dy)
//     launch          rows ⌈C / SPAN⌉ blocks of 32 to 512 threads: as many for each row of dx, which they write even
//                     if the row stays zero; or, by_token, for each row of dy, where the first of the rows with the
//                     same index sums for all of them
//   take_add_sorted   the same, natively only: takes dy's rows in the order of their indices, as `order` and `starts`
//                     from sort_indices give it. A block for each share of the columns. zeroed: dx holds zeros before
//   sort_indices      order (N,), starts (V + 1,): order[starts[v]:starts[v + 1]] are the i with index[i] = v,
//                     ascending. One block of one thread
//   take_add_atomic   the same with dx in R; launch over dy's elements. The hardware chooses the order of a sum
//   scatter_add       dx (outer, V, n), dy and index (outer, m, n)              dx[o, index[o, i, j], j] += dy[o, i, j]
//                     launch over outer × n; dx in R, for m so small that sums in R lose nothing
//   scatter_add_long  the same with sums in `totals`, of dx's shape and zeros before; dx need not be zeros
#include "accumulate.cuh"

constexpr int SPAN = 128, WARPS = 16;  // columns that a block works on, and the most warps it has

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    take_add(T* __restrict__ dx, const T* __restrict__ dy, const long long* __restrict__ index, long long N,
             long long C, bool by_token) {
  const unsigned spans = unsigned((C + SPAN - 1) / SPAN), row = blockIdx.x / spans;
  const long long v = by_token ? index[row] : (long long)row;
  if (by_token) {
    bool earlier = false;
    for (long long i = threadIdx.x; i < row; i += blockDim.x) earlier |= index[i] == v;
    if (block_combine(earlier, [](bool a, bool b) { return a || b; })) return;
  }
  __shared__ Total<R> parts[WARPS][SPAN];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const long long c0 = (long long)(blockIdx.x % spans) * SPAN;
  Total<R> acc[SPAN / 32] = {};
  for (long long first = warp * 32; first < N; first += warps * 32) {  // a warp looks at 32 indices at a time
    unsigned hits = first + lane < N && index[first + lane] == v ? 1u << lane : 0u;
    for (int step = 16; step > 0; step /= 2) hits |= __shfl_xor_sync(0xffffffffu, hits, step);
    for (int l = 0; l < 32 && hits >> l; l++) {
      if (!(hits >> l & 1)) continue;
      UNROLL for (int k = 0; k < SPAN / 32; k++) {
        const long long c = c0 + k * 32 + lane;
        if (c < C) acc[k].add(R(dy[(first + l) * C + c]));
      }
    }
  }
  UNROLL for (int k = 0; k < SPAN / 32; k++) parts[warp][k * 32 + lane] = acc[k];
  __syncthreads();
  each(C - c0 < SPAN ? C - c0 : SPAN, [&](long long c) {
    Total<R> s = {};
    for (int w = 0; w < warps; w++) s.add(parts[w][c]);
    dx[v * C + c0 + c] = T(R(s));
  });
}

extern "C" __global__ void sort_indices(long long* __restrict__ order, long long* __restrict__ starts,
                                        const long long* __restrict__ index, long long N, long long V) {
  for (long long v = 0; v <= V; v++) starts[v] = 0;
  for (long long i = 0; i < N; i++) starts[index[i]]++;
  for (long long v = 0, sum = 0; v < V; v++) starts[v] = sum += starts[v];
  for (long long i = N - 1; i >= 0; i--) order[--starts[index[i]]] = i;
  starts[V] = N;
}

extern "C" __global__ void take_add_sorted(T* __restrict__ dx, const T* __restrict__ dy,
                                           const long long* __restrict__ order, const long long* __restrict__ starts,
                                           long long V, long long C, bool zeroed) {
  const long long share = (C + gridDim.x - 1) / gridDim.x, first = share * blockIdx.x;
  const long long end = first + share < C ? first + share : C;
  for (long long v = 0; ONE_THREAD && v < V; v++) {
    if (zeroed && starts[v] == starts[v + 1]) continue;
    for (long long c0 = first; c0 < end; c0 += WIDTH) {
      const long long width = end - c0 < WIDTH ? end - c0 : WIDTH;
      add_rows(dx + v * C + c0, int(width), starts[v + 1] - starts[v],
               [&](long long i) { return dy + order[starts[v] + i] * C + c0; });
    }
  }
}

// CUDA has atomic additions for some types only. Integers compile, but are never summed here.
template <typename V>
__device__ __forceinline__ void add_atomically(V* p, V v) {
  if constexpr (V(1) / 2 != 0) atomicAdd(p, v);
}

extern "C" __global__ void take_add_atomic(R* __restrict__ dx, const T* __restrict__ dy,
                                           const long long* __restrict__ index, long long N, long long C) {
  grid_rows(N, C, [&](long long i, long long c) { add_atomically(&dx[index[i] * C + c], R(dy[i * C + c])); });
}

extern "C" __global__ void scatter_add(R* __restrict__ dx, const T* __restrict__ dy,
                                       const long long* __restrict__ index, long long outer, long long V, long long m,
                                       long long n) {
  grid_each(outer * n, [&](long long place) {
    const long long o = place / n, j = place - o * n;
    for (long long i = o * m; i < (o + 1) * m; i++) dx[(o * V + index[i * n + j]) * n + j] += R(dy[i * n + j]);
  });
}

extern "C" __global__ void scatter_add_long(T* __restrict__ dx, Total<R>* __restrict__ totals,
                                            const T* __restrict__ dy, const long long* __restrict__ index,
                                            long long outer, long long V, long long m, long long n) {
  grid_each(outer * n, [&](long long place) {
    const long long o = place / n, j = place - o * n;
    for (long long i = o * m; i < (o + 1) * m; i++) totals[(o * V + index[i * n + j]) * n + j].add(R(dy[i * n + j]));
    for (long long v = o * V; v < (o + 1) * V; v++) dx[v * n + j] = T(R(totals[v * n + j]));
  });
}
