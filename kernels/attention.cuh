// Shared by attention's forward and backward: tiles in shared memory and their products.
//
// A tile is TILE queries by TILE keys. Products are built from rank-1 updates of small blocks of MI × NI elements,
// which are held in registers; a thread has one or two of these blocks. Compiled for a TILE of 32 or 64, and a DP of 32,
// 64 or 128, which D and Dv may be less than. Only blocks that have queries, keys or dims of a head are computed, and
// zeros fill these up: so a short text takes less time.
//
// Natively, minigrad/backend/runners/native/attention.cpp takes the place of the files that include this one.
#pragma once
#include "common.cuh"
#include "heads.cuh"

constexpr int MI = 4, NI = 4;
constexpr int LD = TILE + NI;  // elements in a row of a transposed tile: those of a column lie in different banks

__device__ __forceinline__ long long smaller(long long a, long long b) { return a < b ? a : b; }

// n up to the end of a block of a product: rows of MI, columns of NI, of at most TILE or DP.
__device__ __forceinline__ int whole_rows(long long n) { return int(smaller((n + MI - 1) / MI * MI, TILE)); }
__device__ __forceinline__ int whole_columns(long long n, int most) {
  return int(smaller((n + NI - 1) / NI * NI, most));
}

// f(i, j) for i < rows and j < columns ≤ COLUMNS, distributed over the block's threads.
template <int COLUMNS, typename F>
__device__ __forceinline__ void tile_each(int rows, int columns, F f) {
  const int across = blockDim.x < COLUMNS ? blockDim.x : COLUMNS, down = blockDim.x / across;
  for (int i = threadIdx.x / across; i < rows; i += down) {
    for (int j = threadIdx.x % across; j < columns; j += across) f(i, j);
  }
}

// put(i, d, x[i * stride + d]) for i < rows and d < D, and put(i, d, 0) elsewhere in those blocks of the TILE × DP tile
// that have any of these elements. Products read no others.
template <typename F>
__device__ __forceinline__ void padded(const T* x, long long stride, long long rows, int D, F put) {
  if (rows >= TILE && D == DP) {  // no bounds to check
    tile_each<DP>(TILE, DP, [&](int i, int d) { put(i, d, R(x[i * stride + d])); });
  } else {
    tile_each<DP>(whole_columns(rows, TILE), whole_columns(D, DP),
                  [&](int i, int d) { put(i, d, i < rows && d < D ? R(x[i * stride + d]) : R(0)); });
  }
}

// tile[i][d] = x[i * stride + d].
__device__ __forceinline__ void load(R* tile, const T* x, long long stride, long long rows, int D) {
  padded(x, stride, rows, D, [&](int i, int d, R value) { tile[i * DP + d] = value; });
}

// tile[d][i] = x[i * stride + d]: the transpose, whose rows have LD elements.
__device__ __forceinline__ void load_transposed(R* tile, const T* x, long long stride, long long rows, int D) {
  padded(x, stride, rows, D, [&](int i, int d, R value) { tile[d * LD + i] = value; });
}

// Which tile of which head this block has. A grid is (⌈length / TILE⌉ heads,), tile by tile: its second and third dims
// could be 65,535 at most.
struct Tile { long long head, tile; };
__device__ __forceinline__ Tile tile_of(long long length) {
  const unsigned tiles = unsigned((length + TILE - 1) / TILE);
  return {blockIdx.x / tiles, blockIdx.x % tiles};
}

// The range of k that a product needs for its rows from i0 on and its columns from j0 on.
struct Range { int first, last; };
#define NONE (Range{1, 0})

// For each block that this thread has of a ROWS × COLUMNS product and that begins within the first `rows` and
// `columns`: acc = Σ_k a(i, k) b[k][j] over range(i0, j0), where a(i, k) = a[i * ai + k * ak] and b has rows of `ldb`
// elements; then done(i0, j0, acc). A block whose range is NONE is left out.
template <int ROWS, int COLUMNS, typename F, typename G>
__device__ __forceinline__ void product(long long rows, long long columns, const R* a, int ai, int ak, const R* b,
                                        int ldb, F range, G done) {
  constexpr int ACROSS = COLUMNS / NI;
  for (int block = threadIdx.x; block < ROWS / MI * ACROSS; block += blockDim.x) {
    const int i0 = block / ACROSS * MI, j0 = block % ACROSS * NI;
    if (i0 >= rows || j0 >= columns) continue;
    const Range span = range(i0, j0);
    if (span.first > span.last) continue;
    R acc[MI][NI] = {};
    for (int k = span.first; k < span.last; k++) {
      UNROLL for (int i = 0; i < MI; i++) {
        const R x = a[(i0 + i) * ai + k * ak];
        for (int j = 0; j < NI; j++) acc[i][j] += x * b[k * ldb + j0 + j];
      }
    }
    done(i0, j0, acc);
  }
}

// y[i][j] += acc[i][j] for a thread's block of a tile with DP columns.
__device__ __forceinline__ void add_block(R* y, int i0, int j0, R (&acc)[MI][NI]) {
  UNROLL for (int i = 0; i < MI; i++) {
    for (int j = 0; j < NI; j++) y[(i0 + i) * DP + j0 + j] += acc[i][j];
  }
}

// Which keys a query sees, and the bias that is added to its scores.
struct View {
  const bool* mask;  // of this batch and head, or null
  const T* bias;
  long long mask_t, mask_s, bias_t, bias_s, queries, keys;
  bool causal;
  R scale;

  // How many of the TILE keys from k0 on exist and, if causal, do not come after query t.
  __device__ __forceinline__ int seen(long long t, long long k0) const {
    return int(smaller(TILE, (causal ? smaller(keys, t + 1) : keys) - k0));
  }
  // The most that any query in t's block of MI sees.
  __device__ __forceinline__ int block_sees(long long t, long long k0) const { return seen(t / MI * MI + MI - 1, k0); }
  // row[j] = the score of query t and key k0 + j for j in [j0, j0 + NI), given q · k; -∞ where t may not look.
  __device__ __forceinline__ void scores(R* row, const R (&qk)[NI], long long t, long long k0, int j0) const {
    const int end = seen(t, k0);
    for (int j = 0; j < NI; j++) row[j0 + j] = j0 + j < end ? qk[j] * scale : -INF;
    if ((!mask && !bias) || t >= queries) return;
    for (int j = j0; j < j0 + NI && j < end; j++) {
      if (bias) row[j] += R(bias[t * bias_t + (k0 + j) * bias_s]);
      if (mask && !mask[t * mask_t + (k0 + j) * mask_s]) row[j] = -INF;
    }
  }
};

__device__ __forceinline__ View view_of(const Heads& n, const bool* mask, const T* bias, long long b, long long h,
                                        bool causal, double scale) {
  return {mask ? mask + b * n.mask[0] + h * n.mask[1] : nullptr, bias ? bias + b * n.bias[0] + h * n.bias[1] : nullptr,
          n.mask[2], n.mask[3], n.bias[2], n.bias[3], n.T, n.S, causal, R(scale)};
}
