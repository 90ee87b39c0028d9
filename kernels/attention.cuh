// Shared by attention's forward and backward: tiles in shared memory, and their products in registers.
//
// A block of THREADS has ROWS queries (or, for the gradients of keys, ROWS keys). It loops over the other side, COLUMNS
// keys (or queries) at a time. A tile has the rows of global memory, padded to DP elements. It serves both products,
// and all data move in chunks of 16 bytes:
//
//   dots      S = A Bᵀ, both read along their rows: the scores q kᵀ, and the gradient of the pattern, do vᵀ
//   weigh     Y += P B, P read along its rows and B across them: o, dq, dk and dv
//
// A warp is 4 × 8 threads. It has ROWS / WARPS rows of every product, and a thread has MI of these rows, of S and of Y.
// So a row of scores is within a warp, the softmax needs no barrier, and Y stays in registers to the end. For
// MI × N products, a thread reads MI + N numbers of shared memory: with 4 × 8, 128 of 140 instructions multiply.
//
// With TENSOR, tensor cores multiply, a warp is 8 × 4 threads that hold Fragments (tensor.cuh), and tiles hold Factors:
// the pattern and its gradient are rounded to Factors before `weigh`.
//
// Bank conflicts: half a warp reads 8 chunks together. They are neighbours in a row; or in 8 neighbouring rows, each of
// which is shifted by 16 bytes; or in 2 rows, each read by half of the threads. In all cases they are in different
// banks. So are the 32 stores to P.
//
// These files are compiled for ROWS (64 with TENSOR) and COLUMNS of 32 or 64; for a DP of 32, 64, 128 or 256, which is
// at least D and Dv; and for DROPS of 1 with dropout, which takes registers, or 0. Natively,
// minigrad/backend/runners/native/attention.cpp replaces the files that include this one.
#pragma once
#include "common.cuh"
#include "heads.cuh"
#include "tensor.cuh"

typedef Either<TENSOR != 0, Factor, R>::type E;  // what tiles hold

constexpr int THREADS = 128, WARPS = THREADS / 32, DOWN = TENSOR ? 8 : 4, ACROSS = 32 / DOWN;  // threads of a warp
constexpr int CHUNK = 16 / sizeof(E);                                         // elements of a chunk
constexpr int MI = ROWS / WARPS / DOWN, NI = COLUMNS / ACROSS, DI = DP / ACROSS;  // a thread's part of S and of Y
constexpr int PIECE = TENSOR ? 2 : CHUNK;  // columns of Y that lie side by side
constexpr int STEP = TENSOR ? 32 / sizeof(E) : 2 * CHUNK;  // the elements of a sum that are added at a time
// With factors of 2 bytes, shared memory holds two tiles at a time, and the pattern stays in registers. Halves are
// copied without conversion, so the next tiles can be loaded while these are used.
constexpr bool BOTH = TENSOR && sizeof(E) == 2, AHEAD = BOTH && sizeof(T) == 2;
constexpr int LD = DP + CHUNK, LDP = COLUMNS + (TENSOR ? CHUNK : ACROSS);  // elements in a row of a tile, and of P
constexpr int TILE = COLUMNS * LD, TILES = AHEAD ? 4 : BOTH ? 2 : 1;  // elements of a tile; tiles of keys

template <typename W, int N = CHUNK> struct alignas(N * sizeof(W)) Chunk { W v[N]; };
__device__ __forceinline__ Chunk<E> chunk(const E* x) { return *reinterpret_cast<const Chunk<E>*>(x); }

// Two numbers as tiles hold them.
template <typename X>
__device__ __forceinline__ Chunk<E, 2> rounded(X x, X y) {
  if constexpr (TENSOR == 2) {
    const unsigned both = bfloat16_pair(x, y);
    return *reinterpret_cast<const Chunk<E, 2>*>(&both);
  } else if constexpr (TENSOR && sizeof(E) == 4) {
    return {{__uint_as_float(tf32(x)), __uint_as_float(tf32(y))}};
  } else {
    return {{E(x), E(y)}};
  }
}

__device__ __forceinline__ long long smaller(long long a, long long b) { return a < b ? a : b; }

// The position of a thread in its warp. Both quarters of half a warp read the same 8 chunks across.
__device__ __forceinline__ int down() {
  return TENSOR ? threadIdx.x % 32 / ACROSS : threadIdx.x % 32 / 16 * 2 + threadIdx.x % 2;
}
__device__ __forceinline__ int across() { return TENSOR ? threadIdx.x % ACROSS : threadIdx.x % (2 * ACROSS) / 2; }

// The first row of a thread's warp; a thread's rows; its columns of S; and its columns of Y, in pieces.
__device__ __forceinline__ int warp_row() { return threadIdx.x / 32 * (MI * DOWN); }
__device__ __forceinline__ int row(int i) { return warp_row() + i * DOWN + down(); }
__device__ __forceinline__ int place(int j) { return j / PIECE * (PIECE * ACROSS) + across() * PIECE + j % PIECE; }
__device__ __forceinline__ int column(int j) { return TENSOR ? place(j) : j * ACROSS + across(); }

// The x of all threads across, combined by op.
template <typename Op>
__device__ __forceinline__ R row_combine(R x, Op op) {
  for (int lane = TENSOR ? ACROSS / 2 : ACROSS; lane > !TENSOR; lane /= 2)
    x = op(x, __shfl_xor_sync(0xffffffffu, x, lane));
  return x;
}
__device__ __forceinline__ R row_sum(R x) { return row_combine(x, [](R a, R b) { return a + b; }); }
__device__ __forceinline__ R row_largest(R x) { return row_combine(x, [](R a, R b) { return a < b ? b : a; }); }

// The tile and the head of this block. A grid is (⌈length / ROWS⌉ heads,), tile by tile, since its second and third
// dims would be limited to 65,535.
struct Tile { long long head, tile; };
__device__ __forceinline__ Tile tile_of(long long length) {
  const unsigned tiles = unsigned((length + ROWS - 1) / ROWS);
  return {blockIdx.x / tiles, blockIdx.x % tiles};
}

// True if rows of D elements, from x on, can be moved N elements at a time.
template <int N>
__device__ __forceinline__ bool moves(const T* x, long long stride, long long D) {
  return (unsigned long long)x % sizeof(Chunk<T, N>) == 0 && stride % N == 0 && D % N == 0;
}

// tile[i][d] = x[i * stride + d] for i < rows and d < D, and 0 in the rest of the LENGTH × DP tile. If AHEAD, this only
// starts the copy; wait_for_copies() ends it.
template <int LENGTH>
__device__ __forceinline__ void load(E* tile, const T* x, long long stride, long long rows, long long D) {
  constexpr int SIDE_BY_SIDE = DP / CHUNK, AT_ONCE = THREADS / SIDE_BY_SIDE, STEPS = LENGTH / AT_ONCE;
  const int first = threadIdx.x / SIDE_BY_SIDE, d = threadIdx.x % SIDE_BY_SIDE * CHUNK;
  const bool whole = moves<CHUNK>(x, stride, D);
  const int count = int(smaller(rows, LENGTH)), left = int(smaller(D - d, CHUNK));
  x += first * stride + d;
  tile += first * LD + d;
  auto found = [&](int s) { return first + s * AT_ONCE < count ? left : 0; };
  auto gathered = [&](const T* x, int found) {
    Chunk<T> some;
    UNROLL for (int e = 0; e < CHUNK; e++) some.v[e] = e < found ? x[e] : T(0);
    return some;
  };
  if constexpr (AHEAD) {
    if (whole) {
      UNROLL for (int s = 0; s < STEPS; s++, x += AT_ONCE * stride) copy_async(tile + s * AT_ONCE * LD, x, found(s) > 0);
    } else {
      for (int s = 0; s < STEPS; s++, x += AT_ONCE * stride)
        *reinterpret_cast<Chunk<T>*>(tile + s * AT_ONCE * LD) = gathered(x, found(s));
    }
  } else {
    Chunk<T> held[STEPS];  // so that all loads are in flight at the same time
    UNROLL for (int s = 0; s < STEPS; s++, x += AT_ONCE * stride) {
      if (whole) held[s] = found(s) > 0 ? *reinterpret_cast<const Chunk<T>*>(x) : Chunk<T>{};
      else held[s] = gathered(x, found(s));
    }
    UNROLL for (int s = 0; s < STEPS; s++, tile += AT_ONCE * LD) {
      Chunk<Chunk<E, 2>, CHUNK / 2> y;
      UNROLL for (int e = 0; e < CHUNK; e += 2) y.v[e / 2] = rounded(held[s].v[e], held[s].v[e + 1]);
      *reinterpret_cast<Chunk<Chunk<E, 2>, CHUNK / 2>*>(tile) = y;
    }
  }
}

// x[row(i) * stride + place(j)] = y[i][j], for the rows and the D columns that exist.
__device__ __forceinline__ void store(T* x, long long stride, long long rows, long long D, const R (&y)[MI][DI]) {
  const bool whole = moves<PIECE>(x, stride, D);
  UNROLL for (int i = 0; i < MI; i++) {
    if (row(i) >= rows) break;
    T* to = x + row(i) * stride;
    if (whole) {
      UNROLL for (int j = 0; j < DI; j += PIECE) {
        Chunk<T, PIECE> z;
        UNROLL for (int e = 0; e < PIECE; e++) z.v[e] = T(y[i][j + e]);
        if (place(j) < D) *reinterpret_cast<Chunk<T, PIECE>*>(to + place(j)) = z;
      }
    } else {
      UNROLL for (int j = 0; j < DI; j++)
        if (place(j) < D) to[place(j)] = T(y[i][j]);
    }
  }
}

// x += a b, where x has 16 rows and N columns in a warp. b(first column) is the Fragment of 16 columns of b.
template <int N, typename F>
__device__ __forceinline__ void multiply(R (&x)[MI][N], const Fragment& a, F b) {
  UNROLL for (int j = 0; j < N; j += 4) {
    const Fragment f = b(j / 4 * 16);
    multiply_add(x[0][j], x[0][j + 1], x[1][j], x[1][j + 1], a.r, f.r[0], f.r[1], E());
    multiply_add(x[0][j + 2], x[0][j + 3], x[1][j + 2], x[1][j + 3], a.r, f.r[2], f.r[3], E());
  }
}

// The Fragment of a tile, or of P. Its lines are STRIDE elements long. ALONG: a line is a row; otherwise it is one k.
template <bool RIGHT, bool ALONG, int STRIDE>
__device__ __forceinline__ Fragment piece(const E* tile, int row, int k) {
  auto at = [&](int i, int k) { return tile + (ALONG ? i * STRIDE + k : k * STRIDE + i); };
  return fragment<RIGHT, ALONG, E>(row, k, at);
}

// s[i][j] = Σ_d a[row(i)][d] b[column(j)][d] over d < D.
__device__ __forceinline__ void dots(R (&s)[MI][NI], const E* a, const E* b, int D) {
  UNROLL for (int i = 0; i < MI; i++)
    UNROLL for (int j = 0; j < NI; j++) s[i][j] = 0;
  if constexpr (TENSOR) {
    auto step = [&](auto d) -> void {
      multiply(s, piece<false, true, LD>(a, warp_row(), d), [&](int j) { return piece<true, true, LD>(b, j, d); });
    };
    if (D == DP) UNROLL for (int d = 0; d < DP; d += STEP) step(d);  // without branches between them
    else for (int d = 0; d < D; d += STEP) step(d);
    return;
  }
  a += row(0) * LD;
  b += column(0) * LD;
  for (const E* const end = a + D; a < end; a += STEP, b += STEP) {
    UNROLL for (int d = 0; d < STEP; d += CHUNK) {
      Chunk<E> x[MI], y[NI];
      UNROLL for (int i = 0; i < MI; i++) x[i] = chunk(a + i * DOWN * LD + d);
      UNROLL for (int j = 0; j < NI; j++) y[j] = chunk(b + j * ACROSS * LD + d);
      UNROLL for (int e = 0; e < CHUNK; e++)
        UNROLL for (int i = 0; i < MI; i++)
          UNROLL for (int j = 0; j < NI; j++) s[i][j] += R(x[i].v[e]) * R(y[j].v[e]);
    }
  }
}

// y[i][j] += Σ_k p[row(i)][k] b[k][place(j)] over first ≤ k < end, where this range is extended to whole STEPs.
__device__ __forceinline__ void weigh(R (&y)[MI][DI], const E* p, const E* b, int first, int end) {
  first = first / STEP * STEP;
  if constexpr (TENSOR) {
    auto step = [&](auto k) -> void {
      multiply(y, piece<false, true, LDP>(p, warp_row(), k), [&](int d) { return piece<true, false, LD>(b, d, k); });
    };
    if (first == 0 && end == COLUMNS) UNROLL for (int k = 0; k < COLUMNS; k += STEP) step(k);
    else for (int k = first; k < end; k += STEP) step(k);
    return;
  }
  const E* const stop = p + row(0) * LDP + end;
  p += row(0) * LDP + first;
  b += first * LD + place(0);
  for (; p < stop; p += STEP, b += STEP * LD) {
    UNROLL for (int k = 0; k < STEP; k += CHUNK) {
      Chunk<E> x[MI];
      UNROLL for (int i = 0; i < MI; i++) x[i] = chunk(p + i * DOWN * LDP + k);
      UNROLL for (int e = 0; e < CHUNK; e++) {
        UNROLL for (int j = 0; j < DI; j += CHUNK) {
          const Chunk<E> z = chunk(b + (k + e) * LD + j * ACROSS);
          UNROLL for (int f = 0; f < CHUNK; f++)
            UNROLL for (int i = 0; i < MI; i++) y[i][j + f] += R(x[i].v[e]) * R(z.v[f]);
        }
      }
    }
  }
}

// p[row(i)][column(j)] = s(i, j), for `weigh` of the same warp.
template <typename F>
__device__ __forceinline__ void put(E* p, F s) {
  __syncwarp();  // its lanes have read what was there
  UNROLL for (int i = 0; i < MI; i++) {
    if constexpr (TENSOR) {
      UNROLL for (int j = 0; j < NI; j += 2)
        *reinterpret_cast<Chunk<E, 2>*>(p + row(i) * LDP + column(j)) = rounded(s(i, j), s(i, j + 1));
    } else {
      UNROLL for (int j = 0; j < NI; j++) p[row(i) * LDP + column(j)] = rounded(s(i, j), R(0)).v[0];
    }
  }
  __syncwarp();
}

// The same for p = s(i, j), which the warp holds in registers. If BOTH, these registers are the Fragment of the next
// mma, whose operand has the layout of the previous mma's result. Otherwise the numbers go through P.
template <typename F>
__device__ __forceinline__ void weigh(R (&y)[MI][DI], F s, E* P, const E* b, int first, int end) {
  auto step = [&](auto k) -> void {
    Fragment p;
    UNROLL for (int i = 0; i < 4; i++) {
      const int j = k / 4 + i / 2 * 2;
      const Chunk<E, 2> two = rounded(s(i % 2, j), s(i % 2, j + 1));
      p.r[i] = *reinterpret_cast<const unsigned*>(&two);
    }
    multiply(y, p, [&](int d) { return piece<true, false, LD>(b, d, k); });
  };
  if constexpr (BOTH) {
    UNROLL for (int k = 0; k < COLUMNS; k += STEP)
      if (first < k + STEP && k < end) step(k);
  } else {
    put(P, s);
    weigh(y, P, b, first, end);
  }
}
__device__ __forceinline__ void weigh(R (&y)[MI][DI], const R (&s)[MI][NI], E* P, const E* b, int first, int end) {
  weigh(y, [&](int i, int j) { return s[i][j]; }, P, b, first, end);
}

// e^x for a pattern. ex2.approx is more exact than halves and TF32.
__device__ __forceinline__ R power(R x) {
  if constexpr (TENSOR) return power_of_2(x * R(1.4426950408889634));
  else return exp(x);
}

struct Cell { int t, s; };  // a query and a key

// The keys that a query sees, the bias of its scores, and the elements of its pattern that dropout keeps.
struct View {
  const bool* mask;  // of this batch and head, or null
  const T* bias;
  const bool* keep;
  long long mask_t, mask_s, bias_t, bias_s, queries, keys;
  bool causal;
  R scale, kept;  // factors: of scores; of the elements that dropout keeps

  // How many of the `most` keys from k0 on exist and, if causal, do not come after query t. Negative means none.
  __device__ __forceinline__ int seen(long long t, long long k0, int most) const {
    return int(smaller(most, (causal ? smaller(keys, t + 1) : keys) - k0));
  }
  // True if all queries from t on see all `most` keys from k0 on, and no bias is added.
  __device__ __forceinline__ bool plain(long long t, long long k0, int most) const {
    return !mask && !bias && seen(t, k0, most) == most;
  }
  // Turn s(j) = q · k into the score of query t and key k0 + key(j), for j < count. sees: the result of seen().
  template <typename S, typename F>
  __device__ __forceinline__ void scores(S s, F key, int count, long long t, long long k0, int sees) const {
    UNROLL for (int j = 0; j < count; j++) s(j) = key(j) < sees ? s(j) * scale : -INF;
    if ((!mask && !bias) || t >= queries) return;
    UNROLL for (int j = 0; j < count; j++) {
      if (key(j) >= sees) continue;
      if (bias) s(j) += R(bias[t * bias_t + (k0 + key(j)) * bias_s]);
      if (mask && !mask[t * mask_t + (k0 + key(j)) * mask_s]) s(j) = -INF;
    }
  }
  // A bit for each element (i, j) of a thread's part of S: 1 if dropout keeps it. They take one register. at(i, j): its
  // query and key, counted from t0 and s0.
  template <typename F>
  __device__ __forceinline__ unsigned keeps(long long t0, long long s0, F at) const {
    unsigned bits = 0;
    static_assert(MI * NI <= 32);
    if constexpr (DROPS) {
      const bool* const from = keep + (t0 * keys + s0);
      const int t_end = int(smaller(queries - t0, ROWS + COLUMNS)), s_end = int(smaller(keys - s0, ROWS + COLUMNS));
      UNROLL for (int i = 0; i < MI; i++)
        UNROLL for (int j = 0; j < NI; j++) {
          const Cell of = at(i, j);
          bits |= unsigned(of.t < t_end && of.s < s_end && from[of.t * keys + of.s]) << (i * NI + j);
        }
    }
    return bits;
  }
  // Dropout's factor for an element of the pattern and for its gradient.
  __device__ __forceinline__ R factor(unsigned bits, int i, int j) const {
    return bits >> (i * NI + j) & 1 ? kept : R(0);
  }
};

__device__ __forceinline__ View view_of(const Heads& n, const bool* mask, const T* bias, const bool* keep, long long b,
                                        long long h, bool causal, double scale, double kept) {
  return {mask ? mask + b * n.mask[0] + h * n.mask[1] : nullptr, bias ? bias + b * n.bias[0] + h * n.bias[1] : nullptr,
          keep ? keep + (b * n.nh + h) * n.T * n.S : nullptr,
          n.mask[2], n.mask[3], n.bias[2], n.bias[3], n.T, n.S, causal, R(scale), R(kept)};
}
