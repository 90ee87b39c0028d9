// What the kernels that work on rows share: two sums at once, and the softmax of a row.
#pragma once
#include "common.cuh"

struct Pair { R a, b; };

__device__ __forceinline__ Pair __shfl_xor_sync(unsigned mask, Pair v, int lane) {
  return {__shfl_xor_sync(mask, v.a, lane), __shfl_xor_sync(mask, v.b, lane)};
}

// {Σ f(i).a, Σ f(i).b} over i in [0, n), in every thread.
template <typename F>
__device__ __forceinline__ Pair sum_pairs(long long n, F f) {
  R a = 0, b = 0;
  SIMD_SUM(a, b) for (long long i = threadIdx.x; i < n; i += blockDim.x) { Pair v = f(i); a += v.a; b += v.b; }
  return block_combine(Pair{a, b}, [](Pair v, Pair w) { return Pair{v.a + w.a, v.b + w.b}; });
}

// {top, total} of x(0) … x(n - 1): the largest, and Σ exp(x(i) - top). Where all are -∞ the top is 0, so that the
// differences are -∞ and not NaN, and the total is 0. A NaN or +∞ makes the total NaN.
template <typename X>
__device__ __forceinline__ Pair exp_sums(long long n, X x) {
  R top = -INF, total = 0;
  if (ONE_THREAD) {
    top = largest(n, x);
    if (top == -INF) top = 0;
    return {top, sum(n, [&](long long i) { return exp(x(i) - top); })};
  }
  for (long long i = threadIdx.x; i < n; i += blockDim.x) {  // one trip to memory: the top is corrected on the way
    R v = x(i);
    if (v == -INF) continue;
    if (v > top) {
      total *= exp(top - v);
      top = v;
    }
    total += exp(v - top);
  }
  Pair s = block_combine(Pair{top, total}, [](Pair v, Pair w) {
    R most = v.a < w.a ? w.a : v.a;
    if (most == -INF) return Pair{most, v.b + w.b};
    return Pair{most, v.b * exp(v.a - most) + w.b * exp(w.a - most)};
  });
  if (s.a == -INF) s.a = 0;
  return s;
}

// y[i] = exp(x(i)) / Σ exp(x(j)) for i in [0, n), zeros where all x are -∞; -> {top, total}, as above.
template <typename X>
__device__ __forceinline__ Pair softmax_row(T* __restrict__ y, long long n, X x) {
  Pair s;
  if (ONE_THREAD && sizeof(T) == sizeof(R)) {  // exp is dear on a CPU, and the row is in its cache: exp once
    s.a = largest(n, x);
    if (s.a == -INF) s.a = 0;
    s.b = sum(n, [&](long long i) { R e = exp(x(i) - s.a); y[i] = e; return e; });
    const R scale = s.b == 0 ? R(1) : 1 / s.b;
    each(n, [&](long long i) { y[i] = R(y[i]) * scale; });
  } else {  // on a GPU the trips to memory are dear
    s = exp_sums(n, x);
    const R scale = s.b == 0 ? R(1) : 1 / s.b;
    each(n, [&](long long i) { y[i] = T(exp(x(i) - s.a) * scale); });
  }
  return s;
}
