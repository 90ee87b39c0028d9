// Attention on the CPU, forward and backward, without ever holding T × S scores.
//
//   layout   as in kernels/attention_forward.cu and kernels/attention_backward.cu
//   launch   attention_forward: grid (⌈T / BLOCK⌉, B nh). attention_backward: grid (B nh / group)
//   equals   the formulas there, except delta = (p * (do @ v.mT)).sum(-1), without o
//
// The algorithm is that of kernels/, with transposed tiles: a row for each key, or dim of a head, and a column for each
// of WIDTH queries. A vector then holds numbers of different queries: a softmax needs no sums or maxima within a
// vector, and multiply() reads k and v element by element where they lie, so that they are never copied. If causal, the
// WIDTH queries of a tile go through the keys that the last of them sees.
#include <new>

#include "common.cuh"
#include "heads.cuh"
#include "multiply.h"

constexpr int BLOCK = 64;     // queries of a block of the grid; WIDTH divides it
constexpr int KEYS = 64;      // keys of a tile
constexpr T LEAST = sizeof(T) == 4 ? -87.3 : -708.3;  // below this, e^x is subnormal
constexpr int LARGEST = 512;  // the largest head size: what is kept for WIDTH queries then fits shared memory
static_assert((5 * LARGEST + KEYS) * WIDTH * sizeof(T) <= sizeof shared_bytes, "attention_backward has no more");

// y (n, columns) = a (n, k) @ b (k, columns), or y += the product. The strides of a are those from row to row, and
// along k. Rows of b are read up to a whole vector.
static void product(T* y, long long y_stride, const T* a, long long down, long long along, long long n, const T* b,
                    long long b_stride, long long k, long long columns, bool add) {
  const long long strides[] = {down, along}, strips = (n + MR - 1) / MR;
  for (long long j = 0; j < columns; j += WIDTH)
    for (long long s = 0; s < strips; s++) {
      const long long first = n * s / strips;
      const int high = n * (s + 1) / strips - first, count = least(columns - j, WIDTH);
      const Out out = {y + first * y_stride + j, y_stride, nullptr, add};
      chosen<false>(high, count)(a + first * down, strides, b + j, b_stride, k, out, count);
    }
}

// y[i * stride + d] = x[d][i] for i < rows, from a tile of D rows.
static void store_transposed(T* y, long long stride, const T* x, long long rows, long long D) {
  for (long long i0 = 0; i0 < rows; i0 += W) {
    const int count = least(rows - i0, W);
    long long d = 0;
    for (; d + W <= D; d += W) {
      Vector square[W];
      UNROLLED for (int r = 0; r < W; r++) square[r] = load(x + (d + r) * WIDTH + i0);
      transpose(square);
      UNROLLED for (int r = 0; r < W; r++)
        if (r < count) store(y + (i0 + r) * stride + d, square[r]);
    }
    for (; d < D; d++)
      for (int r = 0; r < count; r++) y[(i0 + r) * stride + d] = x[d * WIDTH + i0 + r];
  }
}

// Queries q0 to q0 + rows - 1 of a head, and the keys that they see.
struct Queries {
  const bool* mask;  // of this batch and head, or null
  const T* bias;
  const long long *mask_strides, *bias_strides;  // along queries and along keys
  long long q0, rows, keys;                      // keys: the number of keys that any of these queries sees
  bool causal;
  T scale;

  Queries(const Heads& n, const bool* mask, const T* bias, long long b, long long h, long long q0, bool causal, T scale)
      : mask(mask ? mask + b * n.mask[0] + h * n.mask[1] : nullptr),
        bias(bias ? bias + b * n.bias[0] + h * n.bias[1] : nullptr),
        mask_strides(n.mask + 2), bias_strides(n.bias + 2), q0(q0), rows(least(n.T - q0, WIDTH)),
        keys(causal ? least(n.S, q0 + rows) : n.S), causal(causal), scale(scale) {}

  // x (count, WIDTH), products of the keys from k0 on and the queries, become scores: -∞ where a query may not look.
  void scores(T* x, long long k0, long long count) const {
    if (causal && k0 + count - 1 > q0)
      for (long long j = 0; j < count; j++)
        SIMD for (int i = 0; i < WIDTH; i++) x[j * WIDTH + i] = k0 + j <= q0 + i ? x[j * WIDTH + i] * scale : -INF;
    else
      SIMD for (long long l = 0; l < count * WIDTH; l++) x[l] *= scale;
    if (bias)
      for (long long i = 0; i < rows; i++)
        for (long long j = 0; j < count; j++)
          x[j * WIDTH + i] += bias[(q0 + i) * bias_strides[0] + (k0 + j) * bias_strides[1]];
    if (mask)
      for (long long i = 0; i < rows; i++)
        for (long long j = 0; j < count; j++)
          if (!mask[(q0 + i) * mask_strides[0] + (k0 + j) * mask_strides[1]]) x[j * WIDTH + i] = -INF;
  }
};

// e^x for the weights of a pattern. Subnormal results become 0: a CPU takes a hundred times as long to multiply by
// them.
static __forceinline__ T weight(T x) { return exp(x < LEAST ? -INF : x); }

// The softmax of WIDTH queries so far.
struct Softmax {
  T m[WIDTH];           // the largest score
  Total<T> l[WIDTH];    // and the sum of exp(score - m)
  T shrink[WIDTH];      // the factor for what was summed before the latest tile
  bool shrinks;         // true if any of these factors is not 1

  // x (count, WIDTH): scores, which become exp(score - m).
  void add(T* x, long long count, bool first) {
    shrinks = false;
    for (int lane = 0; lane < WIDTH; lane += W) {
      T top[W], sum[W] = {};
      SIMD for (int i = 0; i < W; i++) top[i] = first ? -INF : m[lane + i];
      for (long long j = 0; j < count; j++)
        SIMD for (int i = 0; i < W; i++) {
          const T score = x[j * WIDTH + lane + i];
          top[i] = top[i] < score ? score : top[i];
        }
      T safe[W];
      SIMD for (int i = 0; i < W; i++) safe[i] = top[i] == -INF ? T(0) : top[i];
      for (long long j = 0; j < count; j++) {
        T* row = x + j * WIDTH + lane;
        SIMD for (int i = 0; i < W; i++) {
          row[i] = weight(row[i] - safe[i]);
          sum[i] += row[i];
        }
      }
      SIMD for (int i = 0; i < W; i++)
        shrink[lane + i] = first ? T(0) : m[lane + i] == top[i] ? T(1) : exp(m[lane + i] - safe[i]);
      for (int i = 0; i < W; i++) {
        m[lane + i] = top[i];
        if (first) l[lane + i] = {};
        l[lane + i].scale(shrink[lane + i]);
        l[lane + i].add(sum[i]);
        shrinks |= !first && shrink[lane + i] != 1;
      }
    }
  }
};

// args  B = grid_y // n.nh
extern "C" __global__ void attention_forward(T* o, T* lse, const T* q, const T* k, const T* v, const bool* mask,
                                             const T* bias, Heads n, double scale, bool causal) {
  DYNAMIC_SHARED(T, Q);      // D × WIDTH
  T* P = Q + n.D * WIDTH;    // KEYS × WIDTH: scores, then the unnormalised pattern
  T* O = P + KEYS * WIDTH;   // Dv × WIDTH
  const long long b = blockIdx.y / n.nh, h = blockIdx.y % n.nh;
  q += b * n.q[0] + h * n.q[1];
  k += b * n.k[0] + h / n.group * n.k[1];
  v += b * n.v[0] + h / n.group * n.v[1];
  o += b * n.o[0] + h * n.o[1];
  lse += 2 * blockIdx.y * n.T;
  Softmax softmax;
  const long long first = (long long)blockIdx.x * BLOCK, last = least(n.T, first + BLOCK);
  for (long long q0 = first; q0 < last; q0 += WIDTH) {
    const Queries queries(n, mask, bias, b, h, q0, causal, scale);
    const long long strides[] = {n.q[2], 1};
    pack(Q, WIDTH, q + q0 * n.q[2], strides, n.D, queries.rows, 0);
    for (long long k0 = 0; k0 < queries.keys; k0 += KEYS) {
      const long long count = least(queries.keys - k0, KEYS);
      product(P, WIDTH, k + k0 * n.k[2], n.k[2], 1, count, Q, WIDTH, n.D, WIDTH, false);
      queries.scores(P, k0, count);
      softmax.add(P, count, k0 == 0);
      if (softmax.shrinks)
        for (long long d = 0; d < n.Dv; d++)
          SIMD for (int i = 0; i < WIDTH; i++) O[d * WIDTH + i] *= softmax.shrink[i];
      product(O, WIDTH, v + k0 * n.v[2], 1, n.v[2], n.Dv, P, WIDTH, count, WIDTH, k0 > 0);
    }
    T whole[WIDTH];
    for (int i = 0; i < WIDTH; i++) {
      const T total = queries.keys ? T(softmax.l[i]) : T(0);
      whole[i] = total == 0 ? T(0) : 1 / total;
      if (i >= queries.rows) continue;
      lse[2 * (q0 + i)] = total == 0 ? T(0) : softmax.m[i];
      lse[2 * (q0 + i) + 1] = total == 0 ? INF : log(total);
    }
    for (long long d = 0; d < n.Dv; d++)
      SIMD for (int i = 0; i < WIDTH; i++) O[d * WIDTH + i] = queries.keys ? O[d * WIDTH + i] * whole[i] : T(0);
    store_transposed(o + q0 * n.o[2], n.o[2], O, queries.rows, n.Dv);
  }
}

// The first element of x (rows, D), for the right operand of multiply(): x itself if its rows are whole vectors,
// otherwise a copy in `copied`, whose rows are. `stride` becomes the step from row to row.
static const T* as_operand(const T* x, long long& stride, long long rows, long long D, T*& copied) {
  if (D % W == 0) return x;
  const long long width = (D + W - 1) / W * W, strides[] = {1, stride};
  T* copy = copied;
  copied += WIDTH * width;
  pack(copy, width, x, strides, rows, D, 0);
  stride = width;
  return copy;
}

// (keys, WIDTH) numbers, which for many keys do not fit shared memory.
struct Rows {
  static constexpr std::align_val_t LINE{64};  // of a cache, in bytes
  T* const x;
  explicit Rows(long long keys) : x(static_cast<T*>(::operator new(keys * WIDTH * sizeof(T), LINE))) {}
  Rows(const Rows&) = delete;
  ~Rows() { ::operator delete(x, LINE); }
};

// There are two passes over the keys, and p and dp are kept in between: ds needs delta, the sum of p dp over all keys.
// delta could be computed first, as do · o. But if one key has almost all of the weight, dp - delta is almost 0, and
// the difference between the rounding of do · o and that of dp would be most of it. The sum of p dp is rounded like the
// dp of that key.
// args  B = grid // (n.nh // n.group)
extern "C" __global__ void attention_backward(T* dq, T* dk, T* dv, const T* dout, const T* o, const T* lse, const T* q,
                                              const T* k, const T* v, const bool* mask, const T* bias, Heads n,
                                              double scale, bool causal) {
  DYNAMIC_SHARED(T, Q);         // D × WIDTH
  T* dO = Q + n.D * WIDTH;      // Dv × WIDTH
  T* dQ = dO + n.Dv * WIDTH;    // D × WIDTH
  T* dS = dQ + n.D * WIDTH;     // KEYS × WIDTH
  T* copied = dS + KEYS * WIDTH;
  const Rows pattern(n.S), dpattern(n.S);
  const long long nkv = n.nh / n.group, b = blockIdx.x / nkv, hk = blockIdx.x % nkv;
  k += b * n.k[0] + hk * n.k[1];
  v += b * n.v[0] + hk * n.v[1];
  dk += b * n.dk[0] + hk * n.dk[1];
  dv += b * n.dv[0] + hk * n.dv[1];
  for (long long j = 0; j < n.S; j++) {
    std::memset(dk + j * n.dk[2], 0, n.D * sizeof(T));
    std::memset(dv + j * n.dv[2], 0, n.Dv * sizeof(T));
  }
  for (long long h = hk * n.group; h < (hk + 1) * n.group; h++)
    for (long long q0 = 0; q0 < n.T; q0 += WIDTH) {
      const Queries queries(n, mask, bias, b, h, q0, causal, scale);
      const T* qh = q + b * n.q[0] + h * n.q[1] + q0 * n.q[2];
      const T* doh = dout + b * n.o[0] + h * n.o[1] + q0 * n.o[2];
      T top[WIDTH], rest[WIDTH], delta[WIDTH];
      Total<T> total[WIDTH] = {};
      for (int i = 0; i < WIDTH; i++) {
        const bool exists = i < queries.rows;
        const T* pair = lse + 2 * ((b * n.nh + h) * n.T + q0 + i);
        top[i] = exists ? pair[0] : T(0);
        rest[i] = exists ? pair[1] : INF;  // exp(score - ∞) is 0
      }
      const long long q_strides[] = {n.q[2], 1}, o_strides[] = {n.o[2], 1};
      pack(Q, WIDTH, qh, q_strides, n.D, queries.rows, 0);
      pack(dO, WIDTH, doh, o_strides, n.Dv, queries.rows, 0);
      T* free = copied;
      long long q_stride = n.q[2], o_stride = n.o[2];
      const T* q_rows = as_operand(qh, q_stride, queries.rows, n.D, free);
      const T* do_rows = as_operand(doh, o_stride, queries.rows, n.Dv, free);
      for (long long k0 = 0; k0 < queries.keys; k0 += KEYS) {
        const long long count = least(queries.keys - k0, KEYS);
        T *P = pattern.x + k0 * WIDTH, *dP = dpattern.x + k0 * WIDTH;
        product(P, WIDTH, k + k0 * n.k[2], n.k[2], 1, count, Q, WIDTH, n.D, WIDTH, false);
        product(dP, WIDTH, v + k0 * n.v[2], n.v[2], 1, count, dO, WIDTH, n.Dv, WIDTH, false);
        queries.scores(P, k0, count);
        T sum[WIDTH] = {};
        for (long long j = 0; j < count; j++) {
          T *p = P + j * WIDTH, *dp = dP + j * WIDTH;
          SIMD for (int i = 0; i < WIDTH; i++) {
            p[i] = weight(p[i] - top[i] - rest[i]);
            sum[i] += p[i] * dp[i];
          }
        }
        for (int i = 0; i < WIDTH; i++) total[i].add(sum[i]);
        product(dv + k0 * n.dv[2], n.dv[2], P, WIDTH, 1, count, do_rows, o_stride, queries.rows, n.Dv, true);
      }
      for (int i = 0; i < WIDTH; i++) delta[i] = T(total[i]);
      for (long long k0 = 0; k0 < queries.keys; k0 += KEYS) {
        const long long count = least(queries.keys - k0, KEYS);
        const T *P = pattern.x + k0 * WIDTH, *dP = dpattern.x + k0 * WIDTH;
        for (long long j = 0; j < count; j++)
          SIMD for (int i = 0; i < WIDTH; i++) {
            const long long at = j * WIDTH + i;
            dS[at] = queries.scale * P[at] * (dP[at] - delta[i]);
          }
        product(dk + k0 * n.dk[2], n.dk[2], dS, WIDTH, 1, count, q_rows, q_stride, queries.rows, n.D, true);
        product(dQ, WIDTH, k + k0 * n.k[2], 1, n.k[2], n.D, dS, WIDTH, count, WIDTH, k0 > 0);
      }
      if (!queries.keys) std::memset(dQ, 0, n.D * WIDTH * sizeof(T));
      store_transposed(dq + b * n.dq[0] + h * n.dq[1] + q0 * n.dq[2], n.dq[2], dQ, queries.rows, n.D);
    }
}
