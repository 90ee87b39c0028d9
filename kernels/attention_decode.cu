// Attention of one new position to itself and to those before it, whose keys and values lie in a cache, which takes the
// new ones. The number of positions is read on the device, so that one launch serves for all of them.
//
//   layout   q (B, nh, D), k (B, nh / group, D) and v (B, nh / group, Dv), of the new position; keys
//            (B, nh / group, D, capacity), so that scores of neighbours are summed side by side, and values
//            (B, nh / group, capacity, Dv): of any strides, but the last is 1. o (B, nh, Dv) compact; length: one number,
//            less than capacity
//   launch   grid (B nh,), a block for each head, 1 or a multiple of 32 threads; (SPAN + D + Dv) R of shared memory
//   equals   keys[:, :, :, length] = k; values[:, :, length] = v; s = np.arange(length + 1)
//            o = softmax(scale * q @ keys[:, s]) @ values[s]
//
// As in attention_forward.cu, the softmax is computed online, SPAN keys at a time. Several heads may share keys, so a
// block reads the new ones where they came from: in the cache they may not have arrived.
#include "common.cuh"

constexpr int SPAN = 256;

// Strides in elements: of batch and head, of keys and values also of their third dim.
struct Decode {
  long long nh, group, D, Dv;
  long long q[2], k[2], v[2], keys[3], values[3];
};

// put(i, Σ w[j] x[j * stride + i]) over j in [0, m), for i from i0 to i0 + N: N sums side by side.
template <int N, typename F>
__device__ __forceinline__ void weighted_sums(int i0, const R* w, const T* x, long long stride, int m, F put) {
  R z[N] = {};
  x += i0;
  for (int j = 0; j < m; j++) {
    SIMD for (int i = 0; i < N; i++) z[i] += w[j] * R(x[j * stride + i]);
  }
  SIMD for (int i = 0; i < N; i++) put(i0 + i, z[i]);
}

// The same for i in [0, n), distributed over the block's threads.
template <typename F>
__device__ __forceinline__ void weighted_sums(int n, const R* w, const T* x, long long stride, int m, F put) {
  int i = 0;
  if (ONE_THREAD) {
    for (; i + 32 <= n; i += 32) weighted_sums<32>(i, w, x, stride, m, put);
    for (; i + 8 <= n; i += 8) weighted_sums<8>(i, w, x, stride, m, put);
  }
  for (i += threadIdx.x; i < n; i += blockDim.x) weighted_sums<1>(i, w, x, stride, m, put);
}

// args  B = grid // n.nh; o (B, n.nh, n.Dv); q (B, n.nh, n.D) at n.q; length (1);
//       k (B, n.nh // n.group, n.D) at n.k; v (B, n.nh // n.group, n.Dv) at n.v;
//       keys (B, n.nh // n.group, n.D) at n.keys; values (B, n.nh // n.group, 1, n.Dv) at n.values
extern "C" __global__ void attention_decode(T* __restrict__ o, const T* __restrict__ q, const T* __restrict__ k,
                                            const T* __restrict__ v, T* __restrict__ keys, T* __restrict__ values,
                                            const long long* __restrict__ length, Decode n, double scale) {
  DYNAMIC_SHARED(R, shared);
  R *p = shared, *Q = p + SPAN, *O = Q + n.D;  // p: scores, then the unnormalised pattern
  const long long h = blockIdx.x % n.nh, b = blockIdx.x / n.nh, kv = h / n.group, end = *length;
  const int D = int(n.D), Dv = int(n.Dv);
  o += (b * n.nh + h) * Dv;
  q += b * n.q[0] + h * n.q[1];
  k += b * n.k[0] + kv * n.k[1];
  v += b * n.v[0] + kv * n.v[1];
  keys += b * n.keys[0] + kv * n.keys[1];
  values += b * n.values[0] + kv * n.values[1];
  if (h % n.group == 0) {
    each(D, [&](long long d) { keys[d * n.keys[2] + end] = k[d]; });
    each(Dv, [&](long long d) { values[end * n.values[2] + d] = v[d]; });
  }

  each(D, [&](long long d) { Q[d] = R(q[d]); });
  R top = sum(D, [&](long long d) { return R(q[d]) * R(k[d]); }) * R(scale);  // the largest score so far
  const R weight = exp(top - (top == -INF ? R(0) : top));                     // 1; 0 for -∞, and NaN for NaN and ∞
  Total<R> total = {};
  total.add(weight);
  each(Dv, [&](long long d) { O[d] = weight * R(v[d]); });
  for (long long s0 = 0; s0 < end; s0 += SPAN) {
    const int count = int(end - s0 < SPAN ? end - s0 : SPAN);
    __syncthreads();  // all have read p of the previous keys, and Q is whole
    weighted_sums(count, Q, keys + s0, n.keys[2], D, [&](int j, R qk) { p[j] = qk * R(scale); });
    __syncthreads();
    const R before = top, now = largest(count, [&](long long j) { return p[j]; });
    if (before < now) top = now;
    const R safe = top == -INF ? R(0) : top, shrink = exp(before - safe);
    __syncthreads();
    const R added = sum(count, [&](long long j) { return p[j] = exp(p[j] - safe); });
    __syncthreads();
    total.scale(shrink);
    total.add(added);
    weighted_sums(Dv, p, values + s0 * n.values[2], n.values[2], count,
                  [&](int d, R z) { O[d] = O[d] * shrink + z; });
  }
  const R all = R(total), whole = all == 0 ? R(0) : 1 / all;
  each(Dv, [&](long long d) { o[d] = T(O[d] * whole); });
}
