// The gradients of attention, from q, k, v and what the forward saved: o and lse.
//
//   layout   as in attention_forward.cu; do has the strides of o
//   launch   attention_dk_dv: grid (⌈S / TILE⌉ B nh / group,); attention_dq: grid (⌈T / TILE⌉ B nh,). Both with 4
//            TILE threads, and the bytes of shared memory that attention.py gives
//   equals   p = exp(scores - lse.sum(-1)); dv = p.mT @ do; dp = do @ v.mT; ds = scale * p * (dp - (do * o).sum(-1));
//            dq = ds @ k; dk = ds.mT @ q; with dk and dv summed over the heads of a group
//
// The pattern p is computed again, tile by tile, because keeping it would take T × S numbers. One kernel has the sums
// over queries, the other those over keys. So neither needs atomics, and the gradients do not depend on the schedule.
#include "attention.cuh"

struct Tiles {
  R *Q, *dO;          // TILE × DP
  R *Kt, *Vt;         // DP × LD
  R *P, *dS;          // TILE × TILE
  R *top, *rest;      // TILE: the two parts of lse
  R *delta;           // TILE
};

// The first tiles of shared memory; `others` is set to where the rest begins.
__device__ __forceinline__ Tiles tiles_in(R* shared, R*& others) {
  Tiles t;
  t.Q = shared;
  t.dO = t.Q + TILE * DP;
  t.Kt = t.dO + TILE * DP;
  t.Vt = t.Kt + DP * LD;
  t.P = t.Vt + DP * LD;
  t.dS = t.P + TILE * TILE;
  t.top = t.dS + TILE * TILE;
  t.rest = t.top + TILE;
  t.delta = t.rest + TILE;
  others = t.delta + TILE;
  return t;
}

__device__ __forceinline__ void load_queries(const Tiles& t, const Heads& n, long long row, long long q0, const T* q,
                                             const T* dout, const T* o, const R* lse) {
  const long long rows = smaller(TILE, n.T - q0);
  load(t.Q, q + q0 * n.q[2], n.q[2], rows, n.D);
  load(t.dO, dout + q0 * n.o[2], n.o[2], rows, n.Dv);
  dout += q0 * n.o[2];
  o += q0 * n.o[2];
  warp_rows(whole_rows(rows), [&](int i) {
    const long long at = i * n.o[2];
    const R delta = i < rows ? warp_sum(int(n.Dv), [&](int d) { return R(dout[at + d]) * R(o[at + d]); }) : R(0);
    if (!first_lane()) return;
    t.delta[i] = delta;
    t.top[i] = i < rows ? lse[2 * (row * n.T + q0 + i)] : R(0);
    t.rest[i] = i < rows ? lse[2 * (row * n.T + q0 + i) + 1] : INF;  // exp(scores - ∞) is 0
  });
}

// P = exp(scores - lse) and dS = scale P (dO Vᵀ - delta) of the queries from q0 and the keys from k0 on.
__device__ __forceinline__ void score_gradients(const Tiles& t, const Heads& n, const View& view, long long q0,
                                                long long k0) {
  const long long rows = n.T - q0;
  auto seen_by = [&](long long D) {
    return [&view, q0, k0, D](int i0, int j0) { return j0 < view.block_sees(q0 + i0, k0) ? Range{0, int(D)} : NONE; };
  };
  product<TILE, TILE>(
      rows, TILE, t.Q, DP, 1, t.Kt, LD, seen_by(n.D), [&](int i0, int j0, R(&acc)[MI][NI]) {
        UNROLL for (int i = 0; i < MI; i++) {
          R* p = t.P + (i0 + i) * TILE;
          view.scores(p, acc[i], q0 + i0 + i, k0, j0);
          const R top = t.top[i0 + i], rest = t.rest[i0 + i];
          for (int j = 0; j < NI; j++) p[j0 + j] = exp(p[j0 + j] - top - rest);
        }
      });
  product<TILE, TILE>(  // each thread has the same elements as above, so no barrier is needed
      rows, TILE, t.dO, DP, 1, t.Vt, LD, seen_by(n.Dv), [&](int i0, int j0, R(&acc)[MI][NI]) {
        UNROLL for (int i = 0; i < MI; i++) {
          const R* p = t.P + (i0 + i) * TILE + j0;
          R* ds = t.dS + (i0 + i) * TILE + j0;
          const R delta = t.delta[i0 + i];
          for (int j = 0; j < NI; j++) ds[j] = view.scale * p[j] * (acc[i][j] - delta);
        }
      });
}

extern "C" __global__ void __launch_bounds__(TILE * 4, 2)
attention_dk_dv(T* dk, T* dv, const T* dout, const T* o, const R* lse, const T* q, const T* k, const T* v,
                const bool* mask, const T* bias, Heads n, double scale, bool causal) {
  DYNAMIC_SHARED(R, shared);
  R* dK;
  const Tiles t = tiles_in(shared, dK);  // dK, TILE × DP
  R* dV = dK + TILE * DP;                // TILE × DP

  const Tile at = tile_of(n.S);
  const long long nkv = n.nh / n.group, b = at.head / nkv, hk = at.head % nkv;
  const T* kh = k + b * n.k[0] + hk * n.k[1];
  const T* vh = v + b * n.v[0] + hk * n.v[1];
  const long long k0 = at.tile * TILE, keys = n.S - k0;
  load_transposed(t.Kt, kh + k0 * n.k[2], n.k[2], keys, n.D);
  load_transposed(t.Vt, vh + k0 * n.v[2], n.v[2], keys, n.Dv);
  tile_each<DP>(whole_rows(keys), DP, [&](int i, int d) { dK[i * DP + d] = 0; dV[i * DP + d] = 0; });
  for (long long h = hk * n.group; h < (hk + 1) * n.group; h++) {
    const View view = view_of(n, mask, bias, b, h, causal, scale);
    const T* qh = q + b * n.q[0] + h * n.q[1];
    const long long out = b * n.o[0] + h * n.o[1];
    for (long long q0 = causal ? k0 : 0; q0 < n.T; q0 += TILE) {
      __syncthreads();  // the previous tile of queries is done with
      load_queries(t, n, b * n.nh + h, q0, qh, dout + out, o + out, lse);
      __syncthreads();
      score_gradients(t, n, view, q0, k0);
      __syncthreads();
      auto queries = [&](int i0, int) { return Range{causal ? int(smaller(TILE, k0 + i0 > q0 ? k0 + i0 - q0 : 0)) : 0,
                                                     int(smaller(TILE, n.T - q0))}; };
      product<TILE, DP>(keys, n.Dv, t.P, 1, TILE, t.dO, DP, queries,
                        [&](int i0, int j0, R(&acc)[MI][NI]) { add_block(dV, i0, j0, acc); });
      product<TILE, DP>(keys, n.D, t.dS, 1, TILE, t.Q, DP, queries,
                        [&](int i0, int j0, R(&acc)[MI][NI]) { add_block(dK, i0, j0, acc); });
    }
  }
  __syncthreads();
  dk += b * n.dk[0] + hk * n.dk[1] + k0 * n.dk[2];
  dv += b * n.dv[0] + hk * n.dv[1] + k0 * n.dv[2];
  warp_rows(int(smaller(TILE, keys)), [&](int i) {
    warp_each(int(n.D), [&](int d) { dk[i * n.dk[2] + d] = dK[i * DP + d]; });
    warp_each(int(n.Dv), [&](int d) { dv[i * n.dv[2] + d] = dV[i * DP + d]; });
  });
}

extern "C" __global__ void __launch_bounds__(TILE * 4, 2)
attention_dq(T* dq, const T* dout, const T* o, const R* lse, const T* q, const T* k, const T* v, const bool* mask,
             const T* bias, Heads n, double scale, bool causal) {
  DYNAMIC_SHARED(R, shared);
  R* dQ;
  const Tiles t = tiles_in(shared, dQ);  // dQ, TILE × DP
  R* K = dQ + TILE * DP;                 // TILE × DP

  const Tile at = tile_of(n.T);
  const long long b = at.head / n.nh, h = at.head % n.nh, q0 = at.tile * TILE;
  const View view = view_of(n, mask, bias, b, h, causal, scale);
  k += b * n.k[0] + h / n.group * n.k[1];
  v += b * n.v[0] + h / n.group * n.v[1];
  const long long out = b * n.o[0] + h * n.o[1];
  load_queries(t, n, at.head, q0, q + b * n.q[0] + h * n.q[1], dout + out, o + out, lse);
  tile_each<DP>(whole_rows(n.T - q0), DP, [&](int i, int d) { dQ[i * DP + d] = 0; });
  const long long end = causal ? smaller(n.S, q0 + TILE) : n.S;
  for (long long k0 = 0; k0 < end; k0 += TILE) {
    __syncthreads();
    load_transposed(t.Kt, k + k0 * n.k[2], n.k[2], n.S - k0, n.D);
    load_transposed(t.Vt, v + k0 * n.v[2], n.v[2], n.S - k0, n.Dv);
    load(K, k + k0 * n.k[2], n.k[2], n.S - k0, n.D);
    __syncthreads();
    score_gradients(t, n, view, q0, k0);
    __syncthreads();
    product<TILE, DP>(n.T - q0, n.D, t.dS, TILE, 1, K, DP,
                      [&](int i0, int) { return Range{0, view.block_sees(q0 + i0, k0)}; },
                      [&](int i0, int j0, R(&acc)[MI][NI]) { add_block(dQ, i0, j0, acc); });
  }
  __syncthreads();
  dq += b * n.dq[0] + h * n.dq[1] + q0 * n.dq[2];
  warp_rows(int(smaller(TILE, n.T - q0)), [&](int i) {
    warp_each(int(n.D), [&](int d) { dq[i * n.dq[2] + d] = dQ[i * DP + d]; });
  });
}
