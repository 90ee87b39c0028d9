// Rows of n elements, for the kernels that need a whole row before they can write any of it: softmax, norms and their
// kin.
//
// blockDim.x threads share a row. They are a whole block; or a warp or a part of a warp, and a block has blockDim.y of
// these. The two cases differ only in block_combine, in which the threads of a block wait for each other.
#pragma once
#include "common.cuh"

// HELD: the largest number of a row's elements that a thread holds in registers. HELD_THREADS: the largest number of
// threads of a block. launcher.py may define larger ones.
#ifndef HELD
#define HELD 4
#define HELD_THREADS ROW_THREADS
#endif
constexpr int HELD_BLOCKS = HELD == 4 ? 1 : 768 / HELD_THREADS;  // of a multiprocessor: a thread has 80 registers

struct Pair { R a, b; };
struct Totals { Total<R> a, b; };

__device__ __forceinline__ Totals __shfl_xor_sync(unsigned mask, Totals s, int lane) {
  return {s.a.from(mask, lane), s.b.from(mask, lane)};
}

// {Σ f(i).a, Σ f(i).b} over i in [0, n), natively.
template <typename F>
__device__ __forceinline__ Pair sum_pairs(long long n, F f) {
  Total<R> a = {}, b = {};
  long long i = 0;
  while (n - i >= LANES) {
    R as[LANES] = {}, bs[LANES] = {};
    for (const long long end = run_end(i, n); i < end; i += LANES) {
      SIMD for (int l = 0; l < LANES; l++) { Pair v = f(i + l); as[l] += v.a; bs[l] += v.b; }
    }
    a.add(lanes_sum(as));
    b.add(lanes_sum(bs));
  }
  if (i == n) return {R(a), R(b)};
  R rest_a = 0, rest_b = 0;
  SIMD_SUM(rest_a, rest_b) for (long long j = i; j < n; j++) { Pair v = f(j); rest_a += v.a; rest_b += v.b; }
  a.add(rest_a);
  b.add(rest_b);
  return {R(a), R(b)};
}

// ------------------------------------------------------------------------------------------------- elements of a row
// x is the row's first element, or a function of the index, or two rows: then an element is a Pair.

struct Rows { const T *a, *b; };
template <typename X> struct Element { typedef R type; };
template <> struct Element<Rows> { typedef Pair type; };

// W neighbours in memory. They are moved together, up to 16 bytes by an instruction, or one by one.
template <int W> struct alignas(W * sizeof(T) < 16 ? W * sizeof(T) : 16) Few { T of[W]; };

template <typename X> constexpr bool IN_MEMORY = false;
template <> constexpr bool IN_MEMORY<const T*> = true;
template <> constexpr bool IN_MEMORY<Rows> = true;

__device__ __forceinline__ bool aligned(const T* x) { return reinterpret_cast<size_t>(x) % alignof(Few<4>) == 0; }
__device__ __forceinline__ bool aligned(Rows x) { return aligned(x.a) && aligned(x.b); }

// Element i.
__device__ __forceinline__ R at(const T* x, long long i) { return R(x[i]); }
__device__ __forceinline__ Pair at(Rows x, long long i) { return {R(x.a[i]), R(x.b[i])}; }
template <typename F> __device__ __forceinline__ R at(F x, long long i) { return x(i); }

template <int W>
__device__ __forceinline__ Few<W> few(const T* x, bool at_once) {
  if (at_once) return *reinterpret_cast<const Few<W>*>(x);
  Few<W> y;
  UNROLL for (int j = 0; j < W; j++) y.of[j] = x[j];
  return y;
}
template <int W>
__device__ __forceinline__ void put(T* x, const Few<W>& y, bool at_once) {
  if (at_once) *reinterpret_cast<Few<W>*>(x) = y;
  else UNROLL for (int j = 0; j < W; j++) x[j] = y.of[j];
}

// v[0] … v[W - 1] = the elements from i on.
template <int W, typename V, typename X>
__device__ __forceinline__ void read(V* v, X x, long long i, bool) {
  UNROLL for (int j = 0; j < W; j++) v[j] = at(x, i + j);
}
template <int W>
__device__ __forceinline__ void read(R* v, const T* x, long long i, bool at_once) {
  const Few<W> some = few<W>(x + i, at_once);
  UNROLL for (int j = 0; j < W; j++) v[j] = R(some.of[j]);
}
template <int W>
__device__ __forceinline__ void read(Pair* v, Rows x, long long i, bool at_once) {
  const Few<W> a = few<W>(x.a + i, at_once), b = few<W>(x.b + i, at_once);
  UNROLL for (int j = 0; j < W; j++) v[j] = {R(a.of[j]), R(b.of[j])};
}

// ------------------------------------------------------------------------------------------------- a row
// Each thread has W of W · blockDim.x neighbours: W is 4 if the length of rows is a multiple of 4, otherwise 1. A
// thread loads N elements at a time (4, or HELD), so that the loads do not wait for each other. If a thread has no more
// than N elements, it holds them in registers; otherwise it loads them again, from a cache, at each use. Natively, a
// row is read element by element.

template <int W, typename X, int N = 4>
struct Row {
  typedef typename Element<X>::type V;
  const long long n;
  const X x;
  const bool at_once, held;
  V v[N];

  __device__ __forceinline__ Row(long long n, X x, bool at_once)
      : n(n), x(x), at_once(at_once), held(!ONE_THREAD && n <= N * (long long)blockDim.x) {
    if (held) load(0, int(n));
  }

  // f(i, k) for each W neighbours that this thread has of `count` elements: the first is the i-th, and v[k] is for it.
  template <typename F>
  __device__ __forceinline__ void places(int count, F f) const {
    UNROLL for (int k = 0; k < N; k += W) {
      const int i = k * blockDim.x + W * threadIdx.x;
      if (i < count) f(i, k);
    }
  }
  __device__ __forceinline__ void load(long long from, int count) {
    places(count, [&](int i, int k) { read<W>(v + k, x, from + i, at_once); });
  }

  // f(i, v) for each W neighbours that this thread has of the row: the first is the i-th, and v points to their values.
  template <typename F>
  __device__ __forceinline__ void pieces(F f) {
    const int most = N * blockDim.x;
    for (long long from = 0; from < n; from += most) {
      const int count = n - from < most ? int(n - from) : most;
      if (!held) load(from, count);
      places(count, [&](int i, int k) { f(from + i, v + k); });
    }
  }

  // Σ f(i, v) over all elements v, in every thread.
  template <typename F>
  __device__ __forceinline__ R sum(F f) {
    if (ONE_THREAD) return ::sum(n, [f, x = x](long long i) { V value = at(x, i); return f(i, value); });
    Total<R> s = {};
    pieces([&](long long i, V* v) { UNROLL for (int j = 0; j < W; j++) s.add(f(i + j, v[j])); });
    return R(block_combine(s, [](Total<R> a, Total<R> b) { return sum_of(a, b); }));
  }

  // {Σ f(v, others[i]…).a, Σ f(v, others[i]…).b} over all elements v, in every thread.
  template <typename F, typename... P>
  __device__ __forceinline__ Pair sums(F f, const P* __restrict__... others) {
    if constexpr (ONE_THREAD) {
      return sum_pairs(n, [=, x = x](long long i) { return f(at(x, i), R(others[i])...); });
    } else {
      Totals s = {};
      pieces([&](long long i, V* v) {
        auto add = [&](auto... some) {
          UNROLL for (int j = 0; j < W; j++) {
            const Pair p = f(v[j], R(some.of[j])...);
            s.a.add(p.a), s.b.add(p.b);
          }
        };
        add(few<W>(others + i, at_once)...);
      });
      s = block_combine(s, [](Totals v, Totals w) { return Totals{sum_of(v.a, w.a), sum_of(v.b, w.b)}; });
      return {R(s.a), R(s.b)};
    }
  }

  // The largest element; -∞ for n = 0. NaN is ignored.
  __device__ __forceinline__ R largest() {
    if (ONE_THREAD) return ::largest(n, [x = x](long long i) { return at(x, i); });
    R m = -INF;
    pieces([&](long long, V* v) { UNROLL for (int j = 0; j < W; j++) m = m < v[j] ? v[j] : m; });
    return block_combine(m, [](R a, R b) { return a < b ? b : a; });
  }

  // y[i] = f(i, v, others[i]…) for each element v.
  template <typename F, typename... P>
  __device__ __forceinline__ void map(T* __restrict__ y, F f, const P* __restrict__... others) {
    if (ONE_THREAD) return each(n, [=, x = x](long long i) { y[i] = T(f(i, at(x, i), R(others[i])...)); });
    pieces([&](long long i, V* v) {
      auto make = [&](auto... some) {
        Few<W> made;
        UNROLL for (int j = 0; j < W; j++) made.of[j] = T(f(i + j, v[j], R(some.of[j])...));
        return made;
      };
      put(y + i, make(few<W>(others + i, at_once)...), at_once);
    });
  }
};

// Call f with a Row of n elements of x. others: the other arrays that f passes to row.map. The assignment of elements
// to threads decides the order of sums, so it depends on n only and not on the alignment of the row.
template <typename X, typename F, typename... P>
__device__ __forceinline__ void with_row(long long n, X x, F f, const P*... others) {
  if constexpr (IN_MEMORY<X> && !ONE_THREAD) {
    if (n % 4 == 0) {
      Row<4, X, HELD> row(n, x, aligned(x) && (aligned(others) && ...));
      return f(row);
    }
  }
  Row<1, X> row(n, x, true);
  f(row);
}

// ------------------------------------------------------------------------------------------------- softmax of a row

struct ExpSum { R top; Total<R> total; };

__device__ __forceinline__ ExpSum __shfl_xor_sync(unsigned mask, ExpSum s, int lane) {
  return {__shfl_xor_sync(mask, s.top, lane), s.total.from(mask, lane)};
}

// {top, total} of a row's elements v: the maximum, and Σ exp(v - top). If all are -∞, top is 0, so that the differences
// are -∞ rather than NaN, and total is 0. A NaN or +∞ makes the total NaN.
template <int W, typename X, int N>
__device__ __forceinline__ Pair exp_sums(Row<W, X, N>& row) {
  if (ONE_THREAD) {
    R top = row.largest();
    if (top == -INF) top = 0;
    return {top, row.sum([&](long long, R v) { return exp(v - top); })};
  }
  ExpSum s = {-INF, {}};
  row.pieces([&](long long, R* v) {  // one pass over memory: top is corrected on the way
    R most = s.top;
    UNROLL for (int j = 0; j < W; j++) most = most < v[j] ? v[j] : most;
    if (most > s.top) s.total.scale(exp(s.top - most));
    s.top = most;
    UNROLL for (int j = 0; j < W; j++) s.total.add(exp(v[j] - (most == -INF ? R(0) : most)));
  });
  s = block_combine(s, [](ExpSum v, ExpSum w) {
    const R most = v.top < w.top ? w.top : v.top;
    if (most != -INF) {
      v.total.scale(exp(v.top - most));
      w.total.scale(exp(w.top - most));
    }
    return ExpSum{most, sum_of(v.total, w.total)};
  });
  return {s.top == -INF ? R(0) : s.top, R(s.total)};
}

// y[i] = exp(v) / Σ exp(v) for a row's elements v, or zeros if all are -∞. Returns {top, total}, as above.
template <int W, typename X, int N>
__device__ __forceinline__ Pair softmax_row(T* __restrict__ y, Row<W, X, N>& row) {
  Pair s;
  if (ONE_THREAD) {  // on a CPU exp is expensive and the row is cached: exp once
    s.a = row.largest();
    if (s.a == -INF) s.a = 0;
    s.b = row.sum([&](long long i, R v) { R e = exp(v - s.a); y[i] = e; return e; });
    const R scale = s.b == 0 ? R(1) : 1 / s.b;
    each(row.n, [&](long long i) { y[i] = R(y[i]) * scale; });
  } else {  // on a GPU memory traffic is what is expensive
    s = exp_sums(row);
    const R scale = s.b == 0 ? R(1) : 1 / s.b;
    row.map(y, [&](long long, R v) { return exp(v - s.a) * scale; });
  }
  return s;
}
