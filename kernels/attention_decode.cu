// Attention of one new position to itself and to those before it, whose keys and values lie in a cache, which takes the
// new ones. The number of positions is read on the device, so that one launch serves for all of them.
//
//   layout   q (B, nh, D), k (B, nh / group, D) and v (B, nh / group, Dv), of the new position; keys
//            (B, nh / group, capacity, D) and values (B, nh / group, capacity, Dv): of any strides, but the last is 1.
//            o (B, nh, Dv) compact; length: one number, less than capacity; first (B,) and slopes (nh,), or null
//   launch   grid (nh, B), a block for each head, 1 or a multiple of 32 threads; (SPAN + D + Dv) R of shared memory
//   equals   keys[:, :, length] = k; values[:, :, length] = v; s = np.arange(first, length + 1)
//            o = softmax(scale * q @ keys[s].mT - slopes * (length - s)) @ values[s]
//
// As in attention_forward.cu, the softmax is computed online, SPAN keys at a time. Several heads may share keys, so a
// block reads the new ones where they came from: in the cache they may not have arrived.
#include "common.cuh"

constexpr int SPAN = 256;

// Strides in elements: of batch and head, and in the cache of the position.
struct Decode {
  long long nh, group, D, Dv;
  long long q[2], k[2], v[2], keys[3], values[3];
};

// Σ q[d] key[d] over d in [0, D), in every lane of the warp.
__device__ __forceinline__ R dot(const R* q, const T* key, int D) {
  const int whole = ONE_THREAD ? D & -16 : D;  // the rest by itself, so that the loop over whole vectors is short
  R s = warp_sum(whole, [&](int d) { return q[d] * R(key[d]); });
  for (int d = whole; d < D; d++) s += q[d] * R(key[d]);
  return s;
}

// o[d] = o[d] * shrink + Σ p[j] values[j * stride + d] over j in [0, n), for d in [0, N). N sums run side by side.
template <int N>
__device__ __forceinline__ void weigh(R* o, R shrink, const R* p, const T* values, long long stride, int n) {
  R z[N] = {};
  for (int j = 0; j < n; j++) {
    SIMD for (int d = 0; d < N; d++) z[d] += p[j] * R(values[j * stride + d]);
  }
  SIMD for (int d = 0; d < N; d++) o[d] = o[d] * shrink + z[d];
}

extern "C" __global__ void attention_decode(T* __restrict__ o, const T* __restrict__ q, const T* __restrict__ k,
                                            const T* __restrict__ v, T* __restrict__ keys, T* __restrict__ values,
                                            const long long* __restrict__ length, const long long* __restrict__ first,
                                            const double* __restrict__ slopes, Decode n, double scale) {
  DYNAMIC_SHARED(R, shared);
  R *p = shared, *Q = p + SPAN, *O = Q + n.D;  // p: scores, then the unnormalised pattern
  const long long h = blockIdx.x, b = blockIdx.y, kv = h / n.group, end = *length;
  const int D = int(n.D), Dv = int(n.Dv);
  o += (b * n.nh + h) * Dv;
  q += b * n.q[0] + h * n.q[1];
  k += b * n.k[0] + kv * n.k[1];
  v += b * n.v[0] + kv * n.v[1];
  keys += b * n.keys[0] + kv * n.keys[1];
  values += b * n.values[0] + kv * n.values[1];
  if (h % n.group == 0) {
    each(D, [&](long long d) { keys[end * n.keys[2] + d] = k[d]; });
    each(Dv, [&](long long d) { values[end * n.values[2] + d] = v[d]; });
  }

  each(D, [&](long long d) { Q[d] = R(q[d]); });
  R top = sum(D, [&](long long d) { return R(q[d]) * R(k[d]); }) * R(scale);  // the largest score so far
  const R weight = exp(top - (top == -INF ? R(0) : top));                     // 1; 0 for -∞, and NaN for NaN and ∞
  Total<R> total = {};
  total.add(weight);
  each(Dv, [&](long long d) { O[d] = weight * R(v[d]); });
  for (long long s0 = first ? first[b] : 0; s0 < end; s0 += SPAN) {
    const int count = int(end - s0 < SPAN ? end - s0 : SPAN);
    const T *ks = keys + s0 * n.keys[2], *vs = values + s0 * n.values[2];
    __syncthreads();  // all have read p of the previous keys, and Q is whole
    warp_rows(count, [&](int j) {
      const R qk = dot(Q, ks + j * n.keys[2], D);
      if (first_lane()) p[j] = qk * R(scale);
    });
    __syncthreads();
    if (slopes) each(count, [&](long long j) { p[j] -= R(slopes[h] * double(end - s0 - j)); });
    const R before = top, now = largest(count, [&](long long j) { return p[j]; });
    if (before < now) top = now;
    const R safe = top == -INF ? R(0) : top, shrink = exp(before - safe);
    __syncthreads();
    const R added = sum(count, [&](long long j) { return p[j] = exp(p[j] - safe); });
    __syncthreads();
    total.scale(shrink);
    total.add(added);
    int d = 0;
    if (ONE_THREAD) {
      for (; d + 32 <= Dv; d += 32) weigh<32>(O + d, shrink, p, vs + d, n.values[2], count);
      for (; d + 8 <= Dv; d += 8) weigh<8>(O + d, shrink, p, vs + d, n.values[2], count);
    }
    for (d += threadIdx.x; d < Dv; d += blockDim.x) weigh<1>(O + d, shrink, p, vs + d, n.values[2], count);
  }
  const R all = R(total), whole = all == 0 ? R(0) : 1 / all;
  each(Dv, [&](long long d) { o[d] = T(O[d] * whole); });
}
