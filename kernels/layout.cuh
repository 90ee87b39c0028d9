// Elementwise access to arrays of any strides: the shape of the work, and the strides of each operand along it.
#pragma once
#include "common.cuh"

// Made by `layout` of minigrad/backend/launch/launcher.py. Strides count elements. Operand 0 is written to; an operand
// that is broadcast has strides of 0.
struct Layout {
  long long size;              // Π shape
  long long ndim;              // at least 1; neighbouring dims that are contiguous in every operand are merged
  long long narrow;            // true if all indices and offsets fit into 31 bits
  long long run;               // 1, 2, 4 or 8. The last dim can be cut into pieces of `run` places; in each operand, a
                               // piece is neighbours in memory, or a single element, and begins at a multiple of
                               // `run`. (If there is no other dim, the last piece may be shorter.)
  long long shape[16];
  long long reciprocals[16];      // for quotient(), of all dims but the first, if narrow
  long long strides[4][16];
};

// ⌊n / d⌋ for n < 2^31 by a multiplication: a division is twenty instructions on a GPU, a hundred in 64 bits.
// `reciprocal` is s = ⌈log2 d⌉ in its upper half and ⌈2^(31+s) / d⌉ in its lower one. (Granlund and Montgomery,
// "Division by invariant integers using multiplication", 1994)
__device__ __forceinline__ unsigned quotient(unsigned n, long long reciprocal) {
  return unsigned((unsigned long long)(2 * n) * unsigned(reciprocal) >> 32) >> unsigned(reciprocal >> 32);
}
__device__ __forceinline__ unsigned quotient(unsigned n, const Layout& layout, int d) {
  return quotient(n, layout.reciprocals[d]);
}
__device__ __forceinline__ long long quotient(long long n, const Layout& layout, int d) { return n / layout.shape[d]; }

__device__ __forceinline__ int signed_(unsigned offset) { return int(offset); }  // unsigned, it wrapped around
__device__ __forceinline__ long long signed_(long long offset) { return offset; }

template <int... K> struct Numbers {};
template <int N, int... K> struct UpTo : UpTo<N - 1, N, K...> {};
template <int... K> struct UpTo<0, K...> { typedef Numbers<K...> numbers; };  // from 1 on

// --------------------------------------------------------------------------------------------------- natively, by rows

// The offsets in all operands at which row number `row` (a run along the last dim) begins.
__device__ void seek_row(const Layout& layout, long long row, long long at[4]) {
  for (int k = 0; k < 4; k++) at[k] = 0;
  for (long long d = layout.ndim - 2; d >= 0; d--) {
    long long rest = row / layout.shape[d], index = row - rest * layout.shape[d];
    row = rest;
    for (int k = 0; k < 4; k++) at[k] += index * layout.strides[k][d];
  }
}

// y[j] = f(a[j S], …) for each j in [from, to). S is 0 or 1, and a constant, so that the loop vectorises.
template <int... S, typename F, typename Y, typename... A>
__device__ __forceinline__ void each_of_row(long long from, long long to, F f, Y* y, const A*... a) {
  SIMD for (long long j = from; j < to; j++) y[j] = f(a[j * S]...);
}

template <int... K, typename F, typename Y, typename... A>
__device__ __forceinline__ void each_by_rows(Numbers<K...>, const Layout& layout, F f, Y* y, const A*... a) {
  const long long last = layout.ndim - 1, inner = layout.shape[last];
  const long long s[] = {layout.strides[0][last], layout.strides[K][last]...};
  const bool dense = s[0] == 1 && ((s[K] == 1) && ...);
  long long chunk = (layout.size + gridDim.x - 1) / gridDim.x, first = chunk * blockIdx.x;
  long long end = first + chunk < layout.size ? first + chunk : layout.size;
  while (first < end) {
    long long at[4], row = first / inner, from = first - row * inner;
    const long long to = end - row * inner < inner ? end - row * inner : inner;
    seek_row(layout, row, at);
    first += to - from;
    if (dense) {
      each_of_row<(K > 0)...>(from, to, f, y + at[0], (a + at[K])...);
      continue;
    }
    if constexpr (sizeof...(A) == 2) {
      if (s[0] == 1 && s[1] == 1 && s[2] == 0) {
        each_of_row<1, 0>(from, to, f, y + at[0], (a + at[K])...);
        continue;
      }
      if (s[0] == 1 && s[1] == 0 && s[2] == 1) {
        each_of_row<0, 1>(from, to, f, y + at[0], (a + at[K])...);
        continue;
      }
    }
    for (long long j = from; j < to; j++) {
      asm volatile("");  // keeps this rare loop scalar: vectorising it too would take half of the compile time
      y[at[0] + j * s[0]] = f(a[at[K] + j * s[K]]...);
    }
  }
}

// --------------------------------------------------------------------------------------------- on a GPU, several a turn

// N neighbours, which a thread loads or stores at once: at most 16 bytes.
template <typename V, int N> struct alignas(N * sizeof(V)) Run { V at[N]; };

// How many elements a thread takes per turn: 16 bytes of the widest operand, but at most 8, since registers hold them.
template <typename... V>
constexpr int per_turn() {
  int widest = 2;
  ((widest = int(sizeof(V)) > widest ? int(sizeof(V)) : widest), ...);
  return 16 / widest;
}

// Operand number K of a layout, and its elements of one turn.
template <typename A, int K, int N>
struct Operand {
  const A* p;
  Run<A, N> x;

  __device__ __forceinline__ bool is_one(const Layout& layout) const {  // where N neighbours are a single element
    return layout.strides[K][layout.ndim - 1] == 0;
  }
  __device__ __forceinline__ bool is_aligned(const Layout& layout) const {
    return (unsigned long long)p % sizeof x == 0 || is_one(layout);
  }
  template <typename I>
  __device__ __forceinline__ void read_run(const Layout& layout, const I (*at)[N]) {
    if (N == 1 || !is_one(layout)) x = *reinterpret_cast<const Run<A, N>*>(p + signed_(at[K][0]));
    else UNROLL for (int i = 0; i < N; i++) x.at[i] = p[signed_(at[K][0])];
  }
  template <typename I>
  __device__ __forceinline__ void read(int i, const I (*at)[N]) { x.at[i] = p[signed_(at[K][i])]; }
};

// at[k][i]: the offset in operand k of place start + i gap, for the first COUNT of them.
template <int COUNT, typename I, int OPERANDS, int N>
__device__ __forceinline__ void seek(const Layout& layout, I start, unsigned gap, I (&at)[OPERANDS][N]) {
  I index[COUNT];
  UNROLL for (int i = 0; i < COUNT; i++) {
    index[i] = start + i * gap;
    UNROLL for (int k = 0; k < OPERANDS; k++) at[k][i] = 0;
  }
  _Pragma("unroll 1") for (int d = int(layout.ndim) - 1; d > 0; d--) {
    UNROLL for (int i = 0; i < COUNT; i++) {
      const I rest = quotient(index[i], layout, d), along = index[i] - rest * I(layout.shape[d]);
      index[i] = rest;
      UNROLL for (int k = 0; k < OPERANDS; k++) at[k][i] += along * I(layout.strides[k][d]);
    }
  }
  UNROLL for (int i = 0; i < COUNT; i++) {
    UNROLL for (int k = 0; k < OPERANDS; k++) at[k][i] += index[i] * I(layout.strides[k][0]);
  }
}

// A thread's turn: places start, start + gap, … If `whole`, they are a run in each operand; otherwise some may lie
// beyond the end. Everything is read before anything is written.
template <int N, typename I, typename F, typename Y, typename... In>
__device__ __forceinline__ void turn(const Layout& layout, I start, unsigned gap, bool whole, F f, Y* y, In... a) {
  I at[1 + sizeof...(In)][N];
  auto is_place = [&](int i) { return start + i * gap < I(layout.size); };
  if (whole) {
    seek<1>(layout, start, gap, at);
    (a.read_run(layout, at), ...);
  } else {
    seek<N>(layout, start, gap, at);
    UNROLL for (int i = 0; i < N; i++) if (is_place(i)) (a.read(i, at), ...);
  }
  Run<Y, N> result;
  UNROLL for (int i = 0; i < N; i++) result.at[i] = f(a.x.at[i]...);
  if (whole) *reinterpret_cast<Run<Y, N>*>(y + signed_(at[0][0])) = result;
  else UNROLL for (int i = 0; i < N; i++) if (is_place(i)) y[signed_(at[0][i])] = result.at[i];
}

// I: the type in which indices and offsets are computed.
template <int N, typename I, typename F, typename Y, typename... In>
__device__ __forceinline__ void each_in_turns(const Layout& layout, F f, Y* y, In... a) {
  const bool runs = N == 1 || (layout.run >= N && (unsigned long long)y % (N * sizeof(Y)) == 0 &&
                               (a.is_aligned(layout) && ...));
  const unsigned gap = runs ? 1 : blockDim.x;
  const I size = I(layout.size), step = I(gridDim.x) * blockDim.x * N;
  for (I start = I(blockIdx.x) * blockDim.x * N + threadIdx.x * (runs ? N : 1); start < size; start += step) {
    turn<N, I>(layout, start, gap, runs && (N == 1 || start + N <= size), f, y, a...);
  }
}

// ------------------------------------------------------------------------------------------------------- either way

template <int... K, typename F, typename Y, typename... A>
__device__ __forceinline__ void map_operands(Numbers<K...> numbers, const Layout& layout, F f, Y* y, const A*... a) {
  constexpr int N = per_turn<Y, A...>();
  if constexpr (ONE_THREAD) each_by_rows(numbers, layout, f, y, a...);
  else if (layout.narrow) each_in_turns<N, unsigned>(layout, f, y, Operand<A, K, N>{a, {}}...);
  else each_in_turns<1, long long>(layout, f, y, Operand<A, K, 1>{a, {}}...);
}

// y[…] = f(a[…], …) at each place of the layout, whose operands are y and each a, distributed over the whole 1-D grid.
// y may be one of the operands itself.
template <typename F, typename Y, typename... A>
__device__ __forceinline__ void map_places(const Layout& layout, F f, Y* y, const A*... a) {
  map_operands(typename UpTo<sizeof...(A)>::numbers(), layout, f, y, a...);
}
