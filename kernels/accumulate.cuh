// The type A in which sums of T are accumulated (long long for integers and bools, R for floats); sums of columns.
#pragma once
#include "common.cuh"

template <bool real> struct Accumulator { typedef long long type; };
template <> struct Accumulator<true> { typedef R type; };
typedef Accumulator<(R(1) / 2 != 0)>::type A;  // R(1) / 2 is 0 for integers

constexpr int WIDTH = 64;  // columns that a block works on

// Natively, y[c] = Σ row(i)[c] over i in [0, n), for each column c in [0, width). RUN rows at a time are added up in A,
// and the result is added to a Total.
template <typename Y, typename F>
__device__ __forceinline__ void add_rows(Y* __restrict__ y, int width, long long n, F row) {
  Total<A> acc[WIDTH] = {};
  auto columns = [&](auto f) {
    if (width == WIDTH) {  // a constant bound, for the vectoriser
      SIMD for (int c = 0; c < WIDTH; c++) f(c);
    } else {
      SIMD for (int c = 0; c < width; c++) f(c);
    }
  };
  long long i = 0;
  auto take = [&](auto rows) {
    constexpr int ROWS = decltype(rows)::value;
    const T* from[ROWS];
    UNROLL for (int k = 0; k < ROWS; k++) from[k] = row(i + k);
    columns([&](int c) { acc[c].add(tree<ROWS>([&](int k) { return A(R(from[k][c])); })); });
    i += ROWS;
  };
  while (i + RUN <= n) take(Count<RUN>{});
  if (n - i & 4) take(Count<4>{});
  if (n - i & 2) take(Count<2>{});
  if (n - i & 1) take(Count<1>{});
  columns([&](int c) { y[c] = Y(A(acc[c])); });
}
