// Shared by the kernels that work on rows: two sums at once, and the softmax of a row.
#pragma once
#include "common.cuh"

struct Pair { R a, b; };

// {Σ f(i).a, Σ f(i).b} over i in [0, n), in every thread.
template <typename F>
__device__ __forceinline__ Pair sum_pairs(long long n, F f) {
  Total<R> a = {}, b = {};
  if (ONE_THREAD) {
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
  for (long long i = threadIdx.x; i < n; i += blockDim.x) { Pair v = f(i); a.add(v.a); b.add(v.b); }
  auto join = [](Total<R> v, Total<R> w) { return sum_of(v, w); };
  a = block_combine(a, join);
  b = block_combine(b, join);
  return {R(a), R(b)};
}

struct ExpSum { R top; Total<R> total; };

__device__ __forceinline__ ExpSum __shfl_xor_sync(unsigned mask, ExpSum s, int lane) {
  return {__shfl_xor_sync(mask, s.top, lane), s.total.from(mask, lane)};
}

// {top, total} of x(0) … x(n - 1): the largest of them, and Σ exp(x(i) - top). If all are -∞, top is 0, so that the
// differences are -∞ rather than NaN, and total is 0. A NaN or +∞ makes the total NaN.
template <typename X>
__device__ __forceinline__ Pair exp_sums(long long n, X x) {
  if (ONE_THREAD) {
    R top = largest(n, x);
    if (top == -INF) top = 0;
    return {top, sum(n, [&](long long i) { return exp(x(i) - top); })};
  }
  ExpSum s = {-INF, {}};
  for (long long i = threadIdx.x; i < n; i += blockDim.x) {  // one pass over memory: top is corrected on the way
    R v = x(i);
    if (v == -INF) continue;
    if (v > s.top) {
      s.total.scale(exp(s.top - v));
      s.top = v;
    }
    s.total.add(exp(v - s.top));
  }
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

// y[i] = exp(x(i)) / Σ exp(x(j)) for i in [0, n), or zeros if all x are -∞. Returns {top, total}, as above.
template <typename X>
__device__ __forceinline__ Pair softmax_row(T* __restrict__ y, long long n, X x) {
  Pair s;
  if (ONE_THREAD && sizeof(T) == sizeof(R)) {  // on a CPU exp is expensive and the row is cached: exp once
    s.a = largest(n, x);
    if (s.a == -INF) s.a = 0;
    s.b = sum(n, [&](long long i) { R e = exp(x(i) - s.a); y[i] = e; return e; });
    const R scale = s.b == 0 ? R(1) : 1 / s.b;
    each(n, [&](long long i) { y[i] = R(y[i]) * scale; });
  } else {  // on a GPU memory traffic is what is expensive
    s = exp_sums(n, x);
    const R scale = s.b == 0 ? R(1) : 1 / s.b;
    each(n, [&](long long i) { y[i] = T(exp(x(i) - s.a) * scale); });
  }
  return s;
}
