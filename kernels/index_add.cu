// Adding at indices: the adjoints of reading by index. Each element's sum is added up in a fixed order. The indices
// have been checked to be in range. dx holds zeros before, unless stated otherwise.
//
//   take_add dx (V, C), dy (N, C), index (N,)                                   np.add.at(dx, index, dy)
//   A sum is of the rows of dy with the same index. These are found by sorting, so the work does not grow with V.
//   On a GPU:
//     take_add          dx from keys, the sorted indices, and order, where each was: ⌈N / WARPS⌉ blocks of WARPS warps
//                       for each SPAN columns
//   Natively:
//     sort_indices      order (N,), starts (V + 1,): order[starts[v]:starts[v + 1]] are the i with index[i] = v,
//                       ascending. One block of one thread
//     take_add_sorted   dx from these. A block for each share of the columns. zeroed: dx holds zeros before
//
//   scatter_add       dx (outer, V, n), dy and index (outer, m, n)              dx[o, index[o, i, j], j] += dy[o, i, j]
//                     launch over outer × n; dx in R, for m so small that sums in R lose nothing
//   scatter_add_long  the same with sums in `totals`, of dx's shape and zeros before; dx need not be zeros. Natively, a
//                     block for each share of outer × n
//   scatter_places    places (outer, m, n) in dx, seen as a vector, for take_add of one column. On a GPU
#include "accumulate.cuh"

constexpr int SPAN = 128, WARPS = 8;  // columns that a block works on, and its warps
constexpr int MANY_ROWS = 32;         // the most rows of one index that a warp adds up alone

// A warp adds up the rows of the index that begins at its position in the order. If there are many rows, all warps of
// the block share them.
// args  dx (…, C); dy (N, C); keys, order (N)
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    take_add(T* __restrict__ dx, const T* __restrict__ dy, const long long* __restrict__ keys,
             const long long* __restrict__ order, long long N, long long C) {
  __shared__ Total<R> parts[WARPS][SPAN];
  __shared__ bool many[WARPS];
  const unsigned spans = unsigned((C + SPAN - 1) / SPAN);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const long long c0 = (long long)(blockIdx.x % spans) * SPAN, first = (long long)(blockIdx.x / spans) * WARPS;
  const int width = C - c0 < SPAN ? int(C - c0) : SPAN;
  int across = 5;  // 2^across lanes lie beside each other, and the others have further rows
  while (across > 0 && 1 << (across - 1) >= width) across--;
  const int lane_column = lane & ((1 << across) - 1);
  // done(c, Σ) for each column c of this lane: the sum over every step-th row of index v, from the i-th in order on.
  auto add_rows = [&](long long i, long long v, int step, auto done) {
    Total<R> acc[SPAN / 32] = {};
    i += (lane >> across) * step;
    step <<= 5 - across;
    auto take = [&](auto rows) {  // some at once, so that their loads do not wait for each other
      constexpr int ROWS = decltype(rows)::value;
      R x[ROWS][SPAN / 32];
      UNROLL for (int r = 0; r < ROWS; r++) {
        const T* row = dy + order[i + r * step] * C + c0;
        UNROLL for (int k = 0; k < SPAN / 32; k++) {
          const int c = k * 32 + lane_column;
          x[r][k] = c < width ? R(row[c]) : R(0);
        }
      }
      UNROLL for (int r = 0; r < ROWS; r++) {
        UNROLL for (int k = 0; k < SPAN / 32; k++) acc[k].add(x[r][k]);
      }
      i += ROWS * step;
    };
    auto is_v = [&](long long place) { return place < N && keys[place] == v; };
    while (is_v(i + 3 * step)) take(Count<4>{});
    while (is_v(i)) take(Count<1>{});
    for (int other = 16; other >> across; other /= 2) acc[0].add(acc[0].from(0xffffffffu, other));
    UNROLL for (int k = 0; k < SPAN / 32; k++)
      if (lane == lane_column) done(k * 32 + lane, acc[k]);
  };

  const long long own = first + warp, v = own < N ? keys[own] : 0;
  const bool begins = own < N && (own == 0 || keys[own - 1] != v);
  const bool too_many = begins && own + MANY_ROWS < N && keys[own + MANY_ROWS] == v;
  if (lane == 0) many[warp] = too_many;
  if (begins && !too_many) {
    add_rows(own, v, 1, [&](int c, Total<R> s) { if (c < width) dx[v * C + c0 + c] = T(R(s)); });
  }
  __syncthreads();
  for (int w = 0; w < WARPS; w++) {
    if (!many[w]) continue;
    const long long shared_v = keys[first + w];
    add_rows(first + w + warp, shared_v, WARPS, [&](int c, Total<R> s) { parts[warp][c] = s; });
    __syncthreads();
    each(width, [&](long long c) {
      Total<R> s = {};
      for (int part = 0; part < WARPS; part++) s.add(parts[part][c]);
      dx[shared_v * C + c0 + c] = T(R(s));
    });
    __syncthreads();
  }
}

// args  order, index (N); starts (V + 1)
extern "C" __global__ void sort_indices(long long* __restrict__ order, long long* __restrict__ starts,
                                        const long long* __restrict__ index, long long N, long long V) {
  for (long long v = 0; v <= V; v++) starts[v] = 0;
  for (long long i = 0; i < N; i++) starts[index[i]]++;
  for (long long v = 0, sum = 0; v < V; v++) starts[v] = sum += starts[v];
  for (long long i = N - 1; i >= 0; i--) order[--starts[index[i]]] = i;
  starts[V] = N;
}

// args  dx (V, C); dy (…, C); order (…); starts (V + 1); where dy.size == order.size * C
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

// args  dx (outer, V, n); dy, index (outer, m, n)
extern "C" __global__ void scatter_add(R* __restrict__ dx, const T* __restrict__ dy,
                                       const long long* __restrict__ index, long long outer, long long V, long long m,
                                       long long n) {
  grid_each(outer * n, [&](long long place) {
    const long long o = place / n, j = place - o * n;
    for (long long i = o * m; i < (o + 1) * m; i++) dx[(o * V + index[i * n + j]) * n + j] += R(dy[i * n + j]);
  });
}

// args  places, index (outer, m, n)
extern "C" __global__ void scatter_places(long long* __restrict__ places, const long long* __restrict__ index,
                                          long long outer, long long V, long long m, long long n) {
  grid_each(outer * m * n, [&](long long i) { places[i] = (i / (m * n) * V + index[i]) * n + i % n; });
}

// args  dx, totals (outer, V, n); dy, index (outer, m, n)
extern "C" __global__ void scatter_add_long(T* __restrict__ dx, Total<R>* __restrict__ totals,
                                            const T* __restrict__ dy, const long long* __restrict__ index,
                                            long long outer, long long V, long long m, long long n) {
  const long long columns = outer * n, share = (columns + gridDim.x - 1) / gridDim.x;
  const long long end = share * (blockIdx.x + 1) < columns ? share * (blockIdx.x + 1) : columns;
  for (long long first = share * blockIdx.x; ONE_THREAD && first < end;) {
    const long long o = first / n, j0 = first - o * n, j1 = j0 + end - first < n ? j0 + end - first : n;
    for (long long i = o * m; i < (o + 1) * m; i++)
      for (long long j = j0; j < j1; j++) totals[(o * V + index[i * n + j]) * n + j].add(R(dy[i * n + j]));
    for (long long v = o * V; v < (o + 1) * V; v++)
      for (long long j = j0; j < j1; j++) dx[v * n + j] = T(R(totals[v * n + j]));
    first += j1 - j0;
  }
}
