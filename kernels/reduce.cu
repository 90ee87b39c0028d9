// Sums and extremes over adjacent dims: x (outer, n, inner), compact -> y (outer, inner). n is at least 1.
//
//   _rows     inner = 1   rows, or `part` elements of a row each, as in rows.cuh: y (outer, ⌈n / part⌉)
//   _columns  inner > 1   a block for each WIDTH columns of each `part` rows: y (outer, ⌈n / part⌉, inner);
//                         1 thread or a multiple of WIDTH, at most 256, which share out the rows
//   _each     n is small  a thread for each result; launch over outer × inner
//   equals    x.sum(1), x.max(1), …: integers are summed in 64 bits, float16 in float32; NaN wins max and min alike
//
// argmax_rows, argmin_rows: for each part of a row, the position in the row of its largest or smallest element,
// launched like _rows. The first of ties wins, and the first NaN if there is one.
// dot_parts: a block for each `part` elements writes its part of Σ a b to y.
// A block accumulates its sums in Totals and rounds once, when it writes, so rounding errors do not grow with n.
#include "accumulate.cuh"

// A reduction in the type V: its start, given the first value; `both` adds a value to it, or combines two of them.
struct Sum {
  typedef Total<A> V;
  static __device__ __forceinline__ A load(T x) { return A(R(x)); }
  static __device__ __forceinline__ V start(A) { return {}; }
  static __device__ __forceinline__ V both(V a, A x) { a.add(x); return a; }
  static __device__ __forceinline__ V both(V a, V b) { a.add(b); return a; }
};
struct Max {
  typedef R V;
  static __device__ __forceinline__ R load(T x) { return R(x); }
  static __device__ __forceinline__ R start(R x) { return x; }
  static __device__ __forceinline__ R both(R a, R b) { return a > b || a != a ? a : b; }
};
struct Min {
  typedef R V;
  static __device__ __forceinline__ R load(T x) { return R(x); }
  static __device__ __forceinline__ R start(R x) { return x; }
  static __device__ __forceinline__ R both(R a, R b) { return a < b || a != a ? a : b; }
};
struct First {  // the smallest of some indices
  typedef long long V;
  static __device__ __forceinline__ V start(V x) { return x; }
  static __device__ __forceinline__ V both(V a, V b) { return a < b ? a : b; }
};

// f(0) … f(n - 1) reduced to one value, in every thread of the block; n is at least 1.
template <typename Op, typename F>
__device__ __forceinline__ typename Op::V fold(long long n, F f) {
  typedef typename Op::V V;
  const V start = Op::start(f(0));
  if (!ONE_THREAD) {
    V v = start;
    each_ahead(threadIdx.x, n, blockDim.x, f, [&](auto x) { v = Op::both(v, x); });
    return block_combine(v, [](V a, V b) { return Op::both(a, b); });
  }
  constexpr int LANES = 64;  // several of a CPU's vector registers
  V lane[LANES];
  for (int l = 0; l < LANES; l++) lane[l] = start;
  long long i = 0;
  for (; i + LANES <= n; i += LANES) {
    SIMD for (int l = 0; l < LANES; l++) lane[l] = Op::both(lane[l], f(i + l));
  }
  for (int l = 0; l < n - i; l++) lane[l] = Op::both(lane[l], f(i + l));
  UNROLL for (int half = LANES / 2; half > 0; half /= 2) {
    SIMD for (int l = 0; l < half; l++) lane[l] = Op::both(lane[l], lane[l + half]);
  }
  return lane[0];
}

// The part of a row on which threads work in _rows: `count` elements of x from `start` on, with `first` elements of the
// row before them.
struct Part {
  long long count, start, first;
  __device__ __forceinline__ Part(long long n, long long part) {
    const long long parts = (n + part - 1) / part;
    first = own_row() % parts * part;
    start = own_row() / parts * n + first;
    count = n - first < part ? n - first : part;
  }
};

template <typename Op, typename Y>
__device__ __forceinline__ void fold_rows(Y* __restrict__ y, const T* __restrict__ x, long long rows, long long n,
                                          long long part) {
  if (own_row() >= rows) return;
  const Part own(n, part);
  x += own.start;
  const typename Op::V v = fold<Op>(own.count, [&](long long i) { return Op::load(x[i]); });
  if (threadIdx.x == 0) y[own_row()] = Y(v);
}

// The slab on which a block of _columns works: up to WIDTH columns of up to `part` rows, at one index of outer.
struct Slab {
  long long rows, x, y;  // the number of rows, and the offsets of the first in x and of the result in y
  int width;
  __device__ __forceinline__ Slab(long long n, long long inner, long long part) {
    const long long parts = (n + part - 1) / part, chunks = (inner + WIDTH - 1) / WIDTH;
    const long long slab = blockIdx.x / chunks, c0 = blockIdx.x % chunks * WIDTH, first = slab % parts * part;
    rows = n - first < part ? n - first : part;
    width = inner - c0 < WIDTH ? inner - c0 : WIDTH;
    x = (slab / parts * n + first) * inner + c0;
    y = slab * inner + c0;
  }
};

template <typename Op, typename Y>
__device__ __forceinline__ void fold_columns(Y* __restrict__ y, const T* __restrict__ x, long long n, long long inner,
                                             long long part) {
  typedef typename Op::V V;
  const Slab slab(n, inner, part);
  const long long rows = slab.rows;
  const int width = slab.width;
  x += slab.x;
  y += slab.y;
  if (ONE_THREAD) {
    V acc[WIDTH];
    for (int c = 0; c < width; c++) acc[c] = Op::start(Op::load(x[c]));
    for (long long i = 0; i < rows; i++, x += inner) {
      if (width == WIDTH) {
        SIMD for (int c = 0; c < WIDTH; c++) acc[c] = Op::both(acc[c], Op::load(x[c]));
      } else {
        SIMD for (int c = 0; c < width; c++) acc[c] = Op::both(acc[c], Op::load(x[c]));
      }
    }
    for (int c = 0; c < width; c++) y[c] = Y(acc[c]);
    return;
  }
  __shared__ V groups[4 * WIDTH];  // [group][column]
  const int c = threadIdx.x % width, group = threadIdx.x / width, count = blockDim.x / width;
  if (group < count) {
    V v = Op::start(Op::load(x[c]));
    each_ahead(group, rows, count, [&](long long i) { return Op::load(x[i * inner + c]); },
               [&](auto x) { v = Op::both(v, x); });
    groups[threadIdx.x] = v;
  }
  __syncthreads();
  if (group == 0) {
    V v = groups[c];
    for (int g = 1; g < count; g++) v = Op::both(v, groups[g * width + c]);
    y[c] = Y(v);
  }
}

template <typename Op, typename Y>
__device__ __forceinline__ void fold_each(Y* __restrict__ y, const T* __restrict__ x, long long outer, long long n,
                                          long long inner) {
  grid_each(outer * inner, [&](long long place) {
    const T* from = x + place / inner * n * inner + place % inner;
    typename Op::V v = Op::start(Op::load(from[0]));
    for (long long i = 0; i < n; i++) v = Op::both(v, Op::load(from[i * inner]));
    y[place] = Y(v);
  });
}

// args  y (rows); x (rows // up(n, part), n)
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
sum_rows(A* __restrict__ y, const T* __restrict__ x, long long rows, long long n, long long part) {
  if (own_row() >= rows) return;
  const Part own(n, part);
  x += own.start;
  const A v = sum<A>(own.count, [&](long long i) { return Sum::load(x[i]); });
  if (threadIdx.x == 0) y[own_row()] = v;
}
// args  y (grid // up(inner, WIDTH), inner); x (grid // up(inner, WIDTH) // up(n, part), n, inner)
extern "C" __global__ void sum_columns(A* __restrict__ y, const T* __restrict__ x, long long n, long long inner,
                                       long long part) {
  if (!ONE_THREAD) return fold_columns<Sum>(y, x, n, inner, part);
  const Slab slab(n, inner, part);
  x += slab.x;
  add_rows(y + slab.y, slab.width, slab.rows, [&](long long i) { return x + i * inner; });
}
// args  y (outer, inner); x (outer, n, inner)
extern "C" __global__ void sum_each(A* __restrict__ y, const T* __restrict__ x, long long outer, long long n,
                                    long long inner) {
  fold_each<Sum>(y, x, outer, n, inner);
}

// args  y (rows); x (rows // up(n, part), n)
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
max_rows(T* __restrict__ y, const T* __restrict__ x, long long rows, long long n, long long part) {
  fold_rows<Max>(y, x, rows, n, part);
}
// args  y (grid // up(inner, WIDTH), inner); x (grid // up(inner, WIDTH) // up(n, part), n, inner)
extern "C" __global__ void max_columns(T* __restrict__ y, const T* __restrict__ x, long long n, long long inner,
                                       long long part) {
  fold_columns<Max>(y, x, n, inner, part);
}
// args  y (outer, inner); x (outer, n, inner)
extern "C" __global__ void max_each(T* __restrict__ y, const T* __restrict__ x, long long outer, long long n,
                                    long long inner) {
  fold_each<Max>(y, x, outer, n, inner);
}

// args  y (rows); x (rows // up(n, part), n)
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
min_rows(T* __restrict__ y, const T* __restrict__ x, long long rows, long long n, long long part) {
  fold_rows<Min>(y, x, rows, n, part);
}
// args  y (grid // up(inner, WIDTH), inner); x (grid // up(inner, WIDTH) // up(n, part), n, inner)
extern "C" __global__ void min_columns(T* __restrict__ y, const T* __restrict__ x, long long n, long long inner,
                                       long long part) {
  fold_columns<Min>(y, x, n, inner, part);
}
// args  y (outer, inner); x (outer, n, inner)
extern "C" __global__ void min_each(T* __restrict__ y, const T* __restrict__ x, long long outer, long long n,
                                    long long inner) {
  fold_each<Min>(y, x, outer, n, inner);
}

// Two passes over the part: the first finds the best value, the second its first position.
template <typename Op>
__device__ __forceinline__ void arg_rows(long long* __restrict__ y, const T* __restrict__ x, long long rows,
                                         long long n, long long part) {
  if (own_row() >= rows) return;
  const Part own(n, part);
  x += own.start;
  const R best = fold<Op>(own.count, [&](long long i) { return R(x[i]); });
  const long long at = fold<First>(own.count, [&](long long i) {
    const R v = x[i];
    return v == best || (v != v && best != best) ? i : n;
  });
  if (threadIdx.x == 0) y[own_row()] = own.first + at;
}
// args  y (rows); x (rows // up(n, part), n)
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
argmax_rows(long long* __restrict__ y, const T* __restrict__ x, long long rows, long long n, long long part) {
  arg_rows<Max>(y, x, rows, n, part);
}
// args  y (rows); x (rows // up(n, part), n)
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
argmin_rows(long long* __restrict__ y, const T* __restrict__ x, long long rows, long long n, long long part) {
  arg_rows<Min>(y, x, rows, n, part);
}

// args  y (grid); a, b (n)
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
dot_parts(A* __restrict__ y, const T* __restrict__ a, const T* __restrict__ b, long long n, long long part) {
  const long long first = blockIdx.x * part;
  const A v = sum<A>(n - first < part ? n - first : part, [&](long long i) {
    return Sum::load(a[first + i]) * Sum::load(b[first + i]);
  });
  if (threadIdx.x == 0) y[blockIdx.x] = v;
}
