// Shared by attention's forward and backward: tiles in shared memory, and their products in registers.
//
// A block of THREADS has ROWS rows of its own (queries; keys, where their gradients are computed) and goes through what
// these meet, COLUMNS at a time. A tile has its rows as they lie in global memory, padded to DP elements, so it serves
// both products, and everything moves in chunks of 16 bytes:
//
//   dots      S = A Bᵀ, both read along their rows: the scores q kᵀ, and the gradient of the pattern, do vᵀ
//   weigh     Y += P B, P read along its rows and B across them: o, dq, dk and dv
//
// A warp is 4 × 8 threads. It has ROWS / WARPS rows of every product, as a thread has MI of S and the same of Y. So a
// row of scores is within a warp, what is computed from it needs no barrier, and Y stays in registers to the end. For
// MI × N products, a thread reads MI + N numbers of shared memory: with 4 × 8, 128 of 140 instructions multiply.
//
// Banks: the chunks that half a warp reads at once lie side by side, or in 8 neighbouring rows, which begin 16 bytes
// further each, or in 2 rows, each read by half of its threads. So none are in each other's way, nor are 32 stores to P.
//
// Compiled for ROWS and COLUMNS of 32 or 64, and a DP of 32, 64, 128 or 256, which D and Dv may be less than. Natively,
// minigrad/backend/runners/native/attention.cpp takes the place of the files that include this one.
#pragma once
#include "common.cuh"
#include "heads.cuh"

constexpr int THREADS = 128, WARPS = THREADS / 32, DOWN = 4, ACROSS = 8;  // threads of a warp
constexpr int CHUNK = 16 / sizeof(R);                                         // elements of a chunk
constexpr int MI = ROWS / WARPS / DOWN, NI = COLUMNS / ACROSS, DI = DP / ACROSS;  // a thread's part of S and of Y
constexpr int STEP = 2 * CHUNK;  // of what a product sums over: elements at a time
constexpr int LD = DP + CHUNK, LDP = COLUMNS + ACROSS;  // elements in a row of a tile, and of P

template <typename W> struct alignas(CHUNK * sizeof(W)) Chunk { W v[CHUNK]; };
__device__ __forceinline__ Chunk<R> chunk(const R* x) { return *reinterpret_cast<const Chunk<R>*>(x); }

__device__ __forceinline__ long long smaller(long long a, long long b) { return a < b ? a : b; }

// Where a thread is in its warp, such that both quarters of half a warp read the same 8 chunks across.
__device__ __forceinline__ int down() { return threadIdx.x % 32 / 16 * 2 + threadIdx.x % 2; }
__device__ __forceinline__ int across() { return threadIdx.x % (2 * ACROSS) / 2; }

// The first row of a thread's warp; a thread's rows; its columns of S; and its columns of Y, in chunks.
__device__ __forceinline__ int warp_row() { return threadIdx.x / 32 * (MI * DOWN); }
__device__ __forceinline__ int row(int i) { return warp_row() + i * DOWN + down(); }
__device__ __forceinline__ int column(int j) { return j * ACROSS + across(); }
__device__ __forceinline__ int place(int j) { return j / CHUNK * (CHUNK * ACROSS) + across() * CHUNK + j % CHUNK; }

// The x of all threads across, combined by op.
template <typename Op>
__device__ __forceinline__ R row_combine(R x, Op op) {
  for (int lane = ACROSS; lane > 1; lane /= 2) x = op(x, __shfl_xor_sync(0xffffffffu, x, lane));
  return x;
}
__device__ __forceinline__ R row_sum(R x) { return row_combine(x, [](R a, R b) { return a + b; }); }
__device__ __forceinline__ R row_largest(R x) { return row_combine(x, [](R a, R b) { return a < b ? b : a; }); }

// Which tile of which head this block has. A grid is (⌈length / ROWS⌉ heads,), tile by tile: its second and third dims
// could be 65,535 at most.
struct Tile { long long head, tile; };
__device__ __forceinline__ Tile tile_of(long long length) {
  const unsigned tiles = unsigned((length + ROWS - 1) / ROWS);
  return {blockIdx.x / tiles, blockIdx.x % tiles};
}

// Can rows of D elements from x on be moved in chunks?
__device__ __forceinline__ bool in_chunks(const T* x, long long stride, long long D) {
  return (unsigned long long)x % sizeof(Chunk<T>) == 0 && stride % CHUNK == 0 && D % CHUNK == 0;
}

// tile[i][d] = x[i * stride + d] for i < rows and d < D, and 0 in all the rest of the LENGTH × DP tile.
template <int LENGTH>
__device__ __forceinline__ void load(R* tile, const T* x, long long stride, long long rows, long long D) {
  constexpr int SIDE_BY_SIDE = DP / CHUNK, AT_ONCE = THREADS / SIDE_BY_SIDE, STEPS = LENGTH / AT_ONCE;
  const int first = threadIdx.x / SIDE_BY_SIDE, d = threadIdx.x % SIDE_BY_SIDE * CHUNK;
  const bool whole = in_chunks(x, stride, D);
  const int count = int(smaller(rows, LENGTH)), left = int(smaller(D - d, CHUNK));
  x += first * stride + d;
  Chunk<T> held[STEPS];  // so that all of them are on their way at once
  UNROLL for (int s = 0; s < STEPS; s++, x += AT_ONCE * stride) {
    const int found = first + s * AT_ONCE < count ? left : 0;
    if (whole) {
      held[s] = found > 0 ? *reinterpret_cast<const Chunk<T>*>(x) : Chunk<T>{};
    } else {
      UNROLL for (int e = 0; e < CHUNK; e++) held[s].v[e] = e < found ? x[e] : T(0);
    }
  }
  UNROLL for (int s = 0; s < STEPS; s++) {
    Chunk<R> y;
    UNROLL for (int e = 0; e < CHUNK; e++) y.v[e] = R(held[s].v[e]);
    *reinterpret_cast<Chunk<R>*>(tile + (first + s * AT_ONCE) * LD + d) = y;
  }
}

// x[row(i) * stride + place(j)] = y[i][j] for those of the rows and of the D columns that exist.
__device__ __forceinline__ void store(T* x, long long stride, long long rows, long long D, const R (&y)[MI][DI]) {
  const bool whole = in_chunks(x, stride, D);
  UNROLL for (int i = 0; i < MI; i++) {
    if (row(i) >= rows) break;
    T* to = x + row(i) * stride;
    if (whole) {
      UNROLL for (int j = 0; j < DI; j += CHUNK) {
        Chunk<T> z;
        UNROLL for (int e = 0; e < CHUNK; e++) z.v[e] = T(y[i][j + e]);
        if (place(j) < D) *reinterpret_cast<Chunk<T>*>(to + place(j)) = z;
      }
    } else {
      UNROLL for (int j = 0; j < DI; j++)
        if (place(j) < D) to[place(j)] = T(y[i][j]);
    }
  }
}

// s[i][j] = Σ_d a[row(i)][d] b[column(j)][d] over d < D.
__device__ __forceinline__ void dots(R (&s)[MI][NI], const R* a, const R* b, int D) {
  UNROLL for (int i = 0; i < MI; i++)
    UNROLL for (int j = 0; j < NI; j++) s[i][j] = 0;
  a += row(0) * LD;
  b += column(0) * LD;
  for (const R* const end = a + D; a < end; a += STEP, b += STEP) {
    UNROLL for (int d = 0; d < STEP; d += CHUNK) {
      Chunk<R> x[MI], y[NI];
      UNROLL for (int i = 0; i < MI; i++) x[i] = chunk(a + i * DOWN * LD + d);
      UNROLL for (int j = 0; j < NI; j++) y[j] = chunk(b + j * ACROSS * LD + d);
      UNROLL for (int e = 0; e < CHUNK; e++)
        UNROLL for (int i = 0; i < MI; i++)
          UNROLL for (int j = 0; j < NI; j++) s[i][j] += x[i].v[e] * y[j].v[e];
    }
  }
}

// y[i][j] += Σ_k p[row(i)][k] b[k][place(j)] over first ≤ k < end, and those of the STEPs that these begin and end in.
__device__ __forceinline__ void weigh(R (&y)[MI][DI], const R* p, const R* b, int first, int end) {
  first = first / STEP * STEP;
  const R* const stop = p + row(0) * LDP + end;
  p += row(0) * LDP + first;
  b += first * LD + place(0);
  for (; p < stop; p += STEP, b += STEP * LD) {
    UNROLL for (int k = 0; k < STEP; k += CHUNK) {
      Chunk<R> x[MI];
      UNROLL for (int i = 0; i < MI; i++) x[i] = chunk(p + i * DOWN * LDP + k);
      UNROLL for (int e = 0; e < CHUNK; e++) {
        UNROLL for (int j = 0; j < DI; j += CHUNK) {
          const Chunk<R> z = chunk(b + (k + e) * LD + j * ACROSS);
          UNROLL for (int f = 0; f < CHUNK; f++)
            UNROLL for (int i = 0; i < MI; i++) y[i][j + f] += x[i].v[e] * z.v[f];
        }
      }
    }
  }
}

// p[row(i)][column(j)] = s[i][j], for `weigh` of the same warp.
__device__ __forceinline__ void put(R* p, const R (&s)[MI][NI]) {
  __syncwarp();  // its lanes have read what was there
  UNROLL for (int i = 0; i < MI; i++)
    UNROLL for (int j = 0; j < NI; j++) p[row(i) * LDP + column(j)] = s[i][j];
  __syncwarp();
}

// Which keys a query sees, and the bias that is added to its scores.
struct View {
  const bool* mask;  // of this batch and head, or null
  const T* bias;
  long long mask_t, mask_s, bias_t, bias_s, queries, keys;
  bool causal;
  R scale;

  // How many of the `most` keys from k0 on exist and, if causal, do not come after query t: none, if it is negative.
  __device__ __forceinline__ int seen(long long t, long long k0, int most) const {
    return int(smaller(most, (causal ? smaller(keys, t + 1) : keys) - k0));
  }
  // The score of query t and key s, given q · k and whether s is among those that t has `seen`; -∞ where it is not.
  __device__ __forceinline__ R score(R qk, bool sees, long long t, long long s) const {
    R x = sees ? qk * scale : -INF;
    if ((mask || bias) && sees && t < queries) {
      if (bias) x += R(bias[t * bias_t + s * bias_s]);
      if (mask && !mask[t * mask_t + s * mask_s]) x = -INF;
    }
    return x;
  }
};

__device__ __forceinline__ View view_of(const Heads& n, const bool* mask, const T* bias, long long b, long long h,
                                        bool causal, double scale) {
  return {mask ? mask + b * n.mask[0] + h * n.mask[1] : nullptr, bias ? bias + b * n.bias[0] + h * n.bias[1] : nullptr,
          n.mask[2], n.mask[3], n.bias[2], n.bias[3], n.T, n.S, causal, R(scale)};
}
