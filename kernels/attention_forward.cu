// Attention in one pass, without ever holding T × S scores: z = softmax(scale q kᵀ + bias, masked) v for each head.
//
//   layout   q (B, nh, T, D), k (B, nh / group, S, D), v (B, nh / group, S, Dv), o (B, nh, T, Dv), of any strides, but
//            the last is 1; lse (B, nh, T, 2) compact: ln Σ exp of each row's scores, in two parts so that float32
//            loses no digits: the largest score and the rest, which is ∞ for a row that sees nothing
//   launch   grid (⌈T / TILE⌉ B nh,), 64 threads for TILE 32 and 256 for 64, attention.py's bytes of shared memory
//   equals   scores = scale * q @ k.mT + bias; scores[~mask] = -inf; o = softmax(scores) @ v; 0 for a row of -inf
//
// The softmax is computed online: with each tile of keys the rows' maxima m may rise, and what was summed so far is
// multiplied by exp(m before - m after) (Milakov and Gimelshein 2018; Dao et al., "FlashAttention", 2022).
#include "attention.cuh"

extern "C" __global__ void __launch_bounds__(TILE * TILE / 16, 2)
attention_forward(T* o, R* lse, const T* q, const T* k, const T* v, const bool* mask, const T* bias, Heads n,
                  double scale, bool causal) {
  DYNAMIC_SHARED(R, shared);
  R* Q = shared;                // TILE × DP
  R* KV = Q + TILE * DP;        // the transpose of K, DP × LD; then V, TILE × DP
  R* P = KV + DP * LD;          // scores, then the unnormalised pattern, TILE × TILE
  R* O = P + TILE * TILE;       // TILE × DP
  R* m = O + TILE * DP;         // the largest score of each row so far,
  R* shrink = m + TILE;         // the factor for what was summed before this tile,
  Total<R>* l = reinterpret_cast<Total<R>*>(shrink + TILE);  // and its sum of exponentials

  const Tile at = tile_of(n.T);
  const long long b = at.head / n.nh, h = at.head % n.nh, q0 = at.tile * TILE;
  const long long rows = smaller(TILE, n.T - q0);
  q += b * n.q[0] + h * n.q[1] + q0 * n.q[2];
  k += b * n.k[0] + h / n.group * n.k[1];
  v += b * n.v[0] + h / n.group * n.v[1];
  o += b * n.o[0] + h * n.o[1] + q0 * n.o[2];
  lse += 2 * (at.head * n.T + q0);
  const View view = view_of(n, mask, bias, b, h, causal, scale);

  load(Q, q, n.q[2], rows, n.D);
  tile_each<DP>(whole_rows(rows), whole_columns(n.Dv, DP), [&](int i, int d) { O[i * DP + d] = 0; });
  each(TILE, [&](long long i) { m[i] = -INF; l[i] = {}; });
  const long long end = causal ? smaller(n.S, q0 + rows) : n.S;
  for (long long k0 = 0; k0 < end; k0 += TILE) {
    __syncthreads();  // the previous tile is done with KV
    load_transposed(KV, k + k0 * n.k[2], n.k[2], n.S - k0, n.D);
    __syncthreads();
    product<TILE, TILE>(
        rows, TILE, Q, DP, 1, KV, LD,
        [&](int i0, int j0) { return j0 < view.block_sees(q0 + i0, k0) ? Range{0, int(n.D)} : NONE; },
        [&](int i0, int j0, R(&acc)[MI][NI]) {
          UNROLL for (int i = 0; i < MI; i++) view.scores(P + (i0 + i) * TILE, acc[i], q0 + i0 + i, k0, j0);
        });
    __syncthreads();
    load(KV, v + k0 * n.v[2], n.v[2], n.S - k0, n.Dv);
    warp_rows(whole_rows(rows), [&](int i) {
      R* p = P + i * TILE;
      const int end = whole_columns(view.block_sees(q0 + i, k0), TILE);  // the product with V reads no further
      const R before = m[i], now = warp_largest(end, [&](int j) { return p[j]; });
      const R top = before < now ? now : before, safe = top == -INF ? R(0) : top;
      const R added = warp_sum(end, [&](int j) { return p[j] = exp(p[j] - safe); });
      __syncwarp();  // all lanes have read m
      if (first_lane()) {
        shrink[i] = before == top ? R(1) : k0 ? exp(before - safe) : R(0);
        m[i] = top;
        l[i].scale(shrink[i]);
        l[i].add(added);
      }
    });
    __syncthreads();
    product<TILE, DP>(
        rows, n.Dv, P, TILE, 1, KV, DP, [&](int i0, int) { return Range{0, view.block_sees(q0 + i0, k0)}; },
        [&](int i0, int j0, R(&acc)[MI][NI]) {
          UNROLL for (int i = 0; i < MI; i++) {
            R* out = O + (i0 + i) * DP + j0;
            for (int j = 0; j < NI; j++) out[j] = out[j] * shrink[i0 + i] + acc[i][j];
          }
        });
  }
  __syncthreads();
  warp_rows(int(rows), [&](int i) {
    const R total = R(l[i]), whole = total == 0 ? R(0) : 1 / total;
    if (first_lane()) {
      lse[2 * i] = total == 0 ? R(0) : m[i];
      lse[2 * i + 1] = total == 0 ? INF : log(total);
    }
    warp_each(int(n.Dv), [&](int d) { o[i * n.o[2] + d] = O[i * DP + d] * whole; });
  });
}
