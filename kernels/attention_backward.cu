// The gradients of attention, from q, k, v, and o and lse of the forward.
//
//   layout   as in attention_forward.cu; do has the strides of o; delta (B, nh, T) compact
//   launch   attention_dq: grid (⌈T / ROWS⌉ B nh,); then attention_dk_dv: grid (⌈S / ROWS⌉ B nh / group,). Both with
//            THREADS, and the bytes of shared memory that attention.py gives
//   equals   p = exp(scores - lse.sum(-1)); delta = (do * o).sum(-1); ds = scale * p * (do @ v.mT - delta);
//            dv = p.mT @ do; dq = ds @ k; dk = ds.mT @ q; with dk and dv summed over the heads of a group.
//            With keep, p of dv and do @ v.mT are multiplied by keep * kept
//
// The pattern p is computed again, tile by tile, since keeping it would take T × S numbers. One kernel computes the
// sums over keys, the other the sums over queries. So neither needs atomics, and the order of additions is fixed.
#include "attention.cuh"

// p and ds of a query and a key, given their score and do · v.
struct Query { R top, rest, delta; };  // the two parts of a query's lse, and its delta
__device__ __forceinline__ R pattern(R score, const Query& of) { return power(score - of.top - of.rest); }
__device__ __forceinline__ R gradient(R p, R dp, const Query& of, R scale) { return scale * p * (dp - of.delta); }

// Σ_d a[r][d] b[r][d] over d < D, where r is one of the warp's rows: the lane modulo their number. Additions have the
// same order as in `dots`, so that delta and dp have the same rounding: if one key has all of a query's weight, o
// equals the v of that key, and dp - delta is exactly 0.
__device__ __forceinline__ R row_dot(const E* a, const E* b, int D) {
  const int start = (warp_row() + threadIdx.x % (MI * DOWN)) * LD;
  R sum = 0;
  for (int d = 0; d < D; d += CHUNK) {
    const Chunk<E> x = chunk(a + start + d), y = chunk(b + start + d);
    UNROLL for (int e = 0; e < CHUNK; e++) sum += R(x.v[e]) * R(y.v[e]);
  }
  return sum;
}

// Also writes delta, for attention_dk_dv.
// args  B = grid // (up(n.T, ROWS) * n.nh)
extern "C" __global__ void __launch_bounds__(THREADS, 2)
attention_dq(T* dq, R* delta, const T* dout, const T* o, const R* lse, const T* q, const T* k, const T* v,
             const bool* mask, const T* bias, const bool* keep, Heads n, double scale, bool causal, double kept) {
  DYNAMIC_SHARED(E, shared);
  E* Q = shared;             // ROWS × LD
  E* dO = Q + ROWS * LD;     // ROWS × LD
  E* KV = dO + ROWS * LD;    // V, then K, a TILE; if BOTH, V and K; if AHEAD, twice
  E* P = KV + TILES * TILE;  // unless BOTH: ds, ROWS × LDP
  R dQ[MI][DI] = {};

  const Tile at = tile_of(n.T);
  const long long b = at.head / n.nh, h = at.head % n.nh, q0 = at.tile * ROWS;
  const long long rows = smaller(ROWS, n.T - q0), out = b * n.o[0] + h * n.o[1] + q0 * n.o[2];
  const View view = view_of(n, mask, bias, keep, b, h, causal, scale, kept);
  k += b * n.k[0] + h / n.group * n.k[1];
  v += b * n.v[0] + h / n.group * n.v[1];
  lse += 2 * (at.head * n.T + q0);
  delta += at.head * n.T + q0;
  load<ROWS>(Q, o + out, n.o[2], rows, n.Dv);  // o, until delta is known
  load<ROWS>(dO, dout + out, n.o[2], rows, n.Dv);
  if (AHEAD) commit_copies(), wait_for_copies<0>();
  __syncthreads();
  const R dot = row_dot(Q, dO, int(n.Dv));
  __syncthreads();
  load<ROWS>(Q, q + b * n.q[0] + h * n.q[1] + q0 * n.q[2], n.q[2], rows, n.D);
  Query of[MI];
  UNROLL for (int i = 0; i < MI; i++) {
    const bool here = row(i) < rows;
    of[i] = {here ? lse[2 * row(i)] : R(0), here ? lse[2 * row(i) + 1] : INF,  // exp(score - ∞) is 0
             __shfl_sync(0xffffffffu, dot, row(i) - warp_row())};
    if (here && !across()) delta[row(i)] = of[i].delta;
  }
  auto load_k = [&](E* K, long long k0) { load<COLUMNS>(K, k + k0 * n.k[2], n.k[2], n.S - k0, n.D); };
  auto load_v = [&](E* V, long long k0) { load<COLUMNS>(V, v + k0 * n.v[2], n.v[2], n.S - k0, n.Dv); };
  auto load_both = [&](E* V, long long k0) { load_v(V, k0), load_k(V + TILE, k0), commit_copies(); };
  if (AHEAD) load_both(KV, 0);
  const long long end = causal ? smaller(n.S, q0 + rows) : n.S;
  int now = 0;
  for (long long k0 = 0; k0 < end; k0 += COLUMNS, now ^= AHEAD) {
    E *const V = KV + now * 2 * TILE, *const K = BOTH ? V + TILE : V;
    const int seen = warp_row() < rows ? view.seen(q0 + warp_row() + MI * DOWN - 1, k0, COLUMNS) : 0;
    R p[MI][NI], dp[MI][NI];
    if (AHEAD) wait_for_copies<0>();
    __syncthreads();  // the previous tile is done with
    if (!AHEAD) {
      load_v(V, k0);
      if (BOTH) load_k(K, k0);
      __syncthreads();
    } else if (k0 + COLUMNS < end) {
      load_both(KV + (now ^ 1) * 2 * TILE, k0 + COLUMNS);
    }
    const unsigned keeps = view.keeps(q0, k0, [](int i, int j) { return Cell{row(i), column(j)}; });
    if (seen > 0) dots(dp, dO, V, int(n.Dv));
    if (!BOTH) {
      __syncthreads();
      load_k(K, k0);
      __syncthreads();
    }
    if (seen <= 0) continue;
    dots(p, Q, K, int(n.D));
    const bool plain = view.plain(q0 + warp_row(), k0, COLUMNS);
    UNROLL for (int i = 0; i < MI; i++) {
      const long long t = q0 + row(i);
      auto score = [&](int j) -> R& { return p[i][j]; };
      if (plain) UNROLL for (int j = 0; j < NI; j++) p[i][j] *= view.scale;
      else view.scores(score, column, NI, t, k0, view.seen(t, k0, COLUMNS));
      if (DROPS) UNROLL for (int j = 0; j < NI; j++) dp[i][j] *= view.factor(keeps, i, j);
      UNROLL for (int j = 0; j < NI; j++) p[i][j] = gradient(pattern(p[i][j], of[i]), dp[i][j], of[i], view.scale);
    }
    weigh(dQ, p, P, K, 0, seen);
  }
  store(dq + b * n.dq[0] + h * n.dq[1] + q0 * n.dq[2], n.dq[2], rows, n.D, dQ);
}

// args  B = grid // (up(n.S, ROWS) * (n.nh // n.group))
extern "C" __global__ void __launch_bounds__(THREADS, 2)
attention_dk_dv(T* dk, T* dv, const R* delta, const T* dout, const R* lse, const T* q, const T* k, const T* v,
                const bool* mask, const T* bias, const bool* keep, Heads n, double scale, bool causal, double kept) {
  DYNAMIC_SHARED(E, shared);
  E* K = shared;                                                               // ROWS × LD
  E* V = K + ROWS * LD;                                                        // ROWS × LD
  E* queries = V + ROWS * LD;                                                  // Q and dO, a TILE each; if AHEAD, twice
  E* P = queries + (AHEAD ? 4 : 2) * TILE;                                     // unless BOTH: pᵀ, then dsᵀ, ROWS × LDP
  Query* of_queries = reinterpret_cast<Query*>(P + (BOTH ? 0 : ROWS * LDP));   // COLUMNS; if AHEAD, twice
  R dK[MI][DI] = {}, dV[MI][DI] = {};

  const Tile at = tile_of(n.S);
  const long long nkv = n.nh / n.group, b = at.head / nkv, hk = at.head % nkv, k0 = at.tile * ROWS;
  const long long rows = smaller(ROWS, n.S - k0);
  load<ROWS>(K, k + b * n.k[0] + hk * n.k[1] + k0 * n.k[2], n.k[2], rows, n.D);
  load<ROWS>(V, v + b * n.v[0] + hk * n.v[1] + k0 * n.v[2], n.v[2], rows, n.Dv);
  const int i = threadIdx.x;
  Query own;  // the i-th of those that are next: if AHEAD, on its way
  auto load_queries = [&](int stage, long long h, long long q0) {
    const long long count = smaller(COLUMNS, n.T - q0), row0 = (b * n.nh + h) * n.T + q0;  // of lse and delta
    E* const Q = queries + stage * 2 * TILE;
    load<COLUMNS>(Q, q + b * n.q[0] + h * n.q[1] + q0 * n.q[2], n.q[2], count, n.D);
    load<COLUMNS>(Q + TILE, dout + b * n.o[0] + h * n.o[1] + q0 * n.o[2], n.o[2], count, n.Dv);
    const R* parts = lse + 2 * (row0 + i);
    own = i < count ? Query{parts[0], parts[1], delta[row0 + i]} : Query{0, INF, 0};
    if (AHEAD) commit_copies();
  };
  const long long start = causal ? k0 : 0, last = (hk + 1) * n.group;
  long long h = start < n.T ? hk * n.group : last, q0 = start;  // of the queries that are next
  if (AHEAD && h < last) load_queries(0, h, q0);
  for (int now = 0; h < last; now ^= AHEAD) {
    E *const Q = queries + now * 2 * TILE, *const dO = Q + TILE;
    const Query* const of = of_queries + now * COLUMNS;
    const View view = view_of(n, mask, bias, keep, b, h, causal, scale, kept);
    const long long t0 = q0, count = smaller(COLUMNS, n.T - q0);
    if (AHEAD) wait_for_copies<0>();
    else __syncthreads(), load_queries(0, h, q0);
    if (i < COLUMNS) of_queries[now * COLUMNS + i] = own;
    __syncthreads();  // the queries are there; if AHEAD, the previous ones are done with
    q0 += COLUMNS;
    if (q0 >= n.T) h++, q0 = start;
    if (AHEAD && h < last) load_queries(now ^ 1, h, q0);
    // From the first query that sees any of this warp's keys on.
    const int first = causal ? int(smaller(COLUMNS, k0 + warp_row() > t0 ? k0 + warp_row() - t0 : 0)) : 0;
    if (warp_row() >= rows || first >= count) continue;
    const unsigned keeps = view.keeps(t0, k0, [](int i, int j) { return Cell{column(j), row(i)}; });
    R p[MI][NI], dp[MI][NI];
    dots(p, K, Q, int(n.D));
    const bool plain = view.plain(t0, k0, ROWS);
    UNROLL for (int j = 0; j < NI; j++) {
      const long long t = t0 + column(j);
      auto score = [&](int i) -> R& { return p[i][j]; };
      if (plain) UNROLL for (int i = 0; i < MI; i++) p[i][j] *= view.scale;
      else view.scores(score, row, MI, t, k0, view.seen(t, k0, ROWS));
      UNROLL for (int i = 0; i < MI; i++) p[i][j] = pattern(p[i][j], of[column(j)]);
    }
    if (DROPS) weigh(dV, [&](int i, int j) { return p[i][j] * view.factor(keeps, i, j); }, P, dO, first, int(count));
    else weigh(dV, p, P, dO, first, int(count));
    dots(dp, V, dO, int(n.Dv));
    UNROLL for (int i = 0; i < MI; i++)
      UNROLL for (int j = 0; j < NI; j++) {
        if (DROPS) dp[i][j] *= view.factor(keeps, i, j);
        dp[i][j] = gradient(p[i][j], dp[i][j], of[column(j)], view.scale);
      }
    weigh(dK, dp, P, Q, first, int(count));
  }
  store(dk + b * n.dk[0] + hk * n.dk[1] + k0 * n.dk[2], n.dk[2], rows, n.D, dK);
  store(dv + b * n.dv[0] + hk * n.dv[1] + k0 * n.dv[2], n.dv[2], rows, n.Dv, dV);
}
