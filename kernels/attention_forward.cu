// Attention in one pass, without ever holding T × S scores: z = softmax(scale q kᵀ + bias, masked) v for each head.
//
//   layout   q (B, nh, T, D), k (B, nh / group, S, D), v (B, nh / group, S, Dv), o (B, nh, T, Dv), of any strides, but
//            the last is 1; lse (B, nh, T, 2) compact: ln Σ exp of each row's scores, in two parts so that float32
//            loses no digits: the largest score and the rest, which is ∞ for a row that sees nothing
//   launch   grid (⌈T / ROWS⌉ B nh,), THREADS, attention.py's bytes of shared memory
//   equals   scores = scale * q @ k.mT + bias; scores[~mask] = -inf; o = softmax(scores) @ v; 0 for a row of -inf.
//            With keep, what dropout keeps of the pattern: (softmax(scores) * keep * kept) @ v
//
// The softmax is computed online: with each tile of keys the rows' maxima m may rise, and what was summed so far is
// multiplied by exp(m before - m after) (Milakov and Gimelshein 2018; Dao et al., "FlashAttention", 2022).
#include "attention.cuh"

#if (TENSOR == 2 || DROPS) && __CUDA_ARCH__ >= 1000  // whose compiler needs more than 168 registers
constexpr int RESIDENT = 2;
#else
constexpr int RESIDENT = sizeof(R) == 4 && DP <= 64 ? 3 : 2;  // blocks on a multiprocessor: 168 or 255 registers
#endif

// args  B = grid // (up(n.T, ROWS) * n.nh)
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
attention_forward(T* o, R* lse, const T* q, const T* k, const T* v, const bool* mask, const T* bias, const bool* keep,
                  Heads n, double scale, bool causal, double kept) {
  DYNAMIC_SHARED(E, shared);
  E* Q = shared;             // ROWS × LD
  E* KV = Q + ROWS * LD;     // K, then V, a TILE; if BOTH, K and V; if AHEAD, twice
  E* P = KV + TILES * TILE;  // unless BOTH: the unnormalised pattern, ROWS × LDP
  R O[MI][DI] = {}, m[MI];   // and of each row: the largest score so far,
  Total<R> l[MI] = {};       // and the sum of exponentials
  for (int i = 0; i < MI; i++) m[i] = -INF;

  const Tile at = tile_of(n.T);
  const long long b = at.head / n.nh, h = at.head % n.nh, q0 = at.tile * ROWS;
  const long long rows = smaller(ROWS, n.T - q0);
  q += b * n.q[0] + h * n.q[1] + q0 * n.q[2];
  k += b * n.k[0] + h / n.group * n.k[1];
  v += b * n.v[0] + h / n.group * n.v[1];
  o += b * n.o[0] + h * n.o[1] + q0 * n.o[2];
  lse += 2 * (at.head * n.T + q0);
  const View view = view_of(n, mask, bias, keep, b, h, causal, scale, kept);

  auto load_k = [&](E* K, long long k0) { load<COLUMNS>(K, k + k0 * n.k[2], n.k[2], n.S - k0, n.D); };
  auto load_v = [&](E* V, long long k0) { load<COLUMNS>(V, v + k0 * n.v[2], n.v[2], n.S - k0, n.Dv); };
  auto load_both = [&](E* K, long long k0) { load_k(K, k0), load_v(K + TILE, k0), commit_copies(); };
  load<ROWS>(Q, q, n.q[2], rows, n.D);
  if (AHEAD) load_both(KV, 0);
  const long long end = causal ? smaller(n.S, q0 + rows) : n.S;
  int now = 0;
  for (long long k0 = 0; k0 < end; k0 += COLUMNS, now ^= AHEAD) {
    E *const K = KV + now * 2 * TILE, *const V = BOTH ? K + TILE : K;
    // The most that any query of this warp sees of the tile. Where that is nothing, there is nothing to do.
    const int seen = warp_row() < rows ? view.seen(q0 + warp_row() + MI * DOWN - 1, k0, COLUMNS) : 0;
    if (AHEAD) wait_for_copies<0>();
    __syncthreads();  // the previous tile is done with
    if (!AHEAD) {
      load_k(K, k0);
      if (BOTH) load_v(V, k0);
      __syncthreads();
    } else if (k0 + COLUMNS < end) {
      load_both(KV + (now ^ 1) * 2 * TILE, k0 + COLUMNS);
    }
    if (seen > 0) {
      R s[MI][NI];
      const unsigned keeps = view.keeps(q0, k0, [](int i, int j) { return Cell{row(i), column(j)}; });
      dots(s, Q, K, int(n.D));
      const bool plain = AHEAD && view.plain(q0 + warp_row(), k0, COLUMNS);  // others have no registers for it
      UNROLL for (int i = 0; i < MI; i++) {
        const long long t = q0 + row(i);
        auto score = [&](int j) -> R& { return s[i][j]; };
        if (plain) UNROLL for (int j = 0; j < NI; j++) s[i][j] *= view.scale;
        else view.scores(score, column, NI, t, k0, view.seen(t, k0, COLUMNS));
        R top = -INF, added = 0;
        UNROLL for (int j = 0; j < NI; j++) top = top < s[i][j] ? s[i][j] : top;
        top = row_largest(m[i] < top ? top : m[i]);
        const R safe = top == -INF ? R(0) : top, shrink = m[i] == top ? R(1) : power(m[i] - safe);
        m[i] = top;
        UNROLL for (int j = 0; j < NI; j++) added += s[i][j] = power(s[i][j] - safe);
        l[i].scale(shrink);
        l[i].add(row_sum(added));
        if (DROPS) UNROLL for (int j = 0; j < NI; j++) s[i][j] *= view.factor(keeps, i, j);
        UNROLL for (int j = 0; j < DI; j++) O[i][j] *= shrink;
      }
      if (BOTH) weigh(O, s, P, V, 0, seen);
      else put(P, [&](int i, int j) { return s[i][j]; });
    }
    if (!BOTH) {
      __syncthreads();
      load_v(V, k0);
      __syncthreads();
      weigh(O, P, V, 0, seen);
    }
  }
  UNROLL for (int i = 0; i < MI; i++) {
    const R total = R(l[i]), whole = total == 0 ? R(0) : 1 / total;
    UNROLL for (int j = 0; j < DI; j++) O[i][j] *= whole;
    if (across() || row(i) >= rows) continue;
    lse[2 * row(i)] = total == 0 ? R(0) : m[i];
    lse[2 * row(i) + 1] = total == 0 ? INF : log(total);
  }
  store(o, n.o[2], rows, n.Dv, O);
}
