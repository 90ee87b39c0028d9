// Elementwise access to arrays of any strides: the shape of the work, and the strides of each operand along it.
#pragma once
#include "common.cuh"

// Strides count elements. Operand 0 is written to; an operand that is broadcast has strides of 0.
struct Layout {
  long long size;              // Π shape
  long long ndim;              // at least 1; neighbouring dims that are contiguous in every operand are merged
  long long shape[16];
  long long strides[4][16];
};

// The offsets in all operands at which row number `row` (a run along the last dim) begins.
__device__ void seek(const Layout& layout, long long row, long long at[4]) {
  for (int k = 0; k < 4; k++) at[k] = 0;
  _Pragma("unroll 1")  // a division is a hundred instructions; unrolled, they took most of a file's compile time
  for (long long d = layout.ndim - 2; d >= 0; d--) {
    long long rest = row / layout.shape[d], index = row - rest * layout.shape[d];
    row = rest;
    for (int k = 0; k < 4; k++) at[k] += index * layout.strides[k][d];
  }
}

// f(i0, i1, i2, i3), the offsets in operands 0 to 3, for each place of the layout, distributed over the whole 1-D grid.
template <int OPERANDS, typename F>
__device__ __forceinline__ void grid_places(const Layout& layout, F f) {
  const long long last = layout.ndim - 1, inner = layout.shape[last];
  const long long s0 = layout.strides[0][last], s1 = layout.strides[1][last];
  const long long s2 = OPERANDS > 2 ? layout.strides[2][last] : 0, s3 = OPERANDS > 3 ? layout.strides[3][last] : 0;
  long long at[4] = {0, 0, 0, 0};
  if (!ONE_THREAD) {
    grid_each(layout.size, [&](long long i) {
      long long row = 0, j = i;
      if (last) row = i / inner, j = i - row * inner, seek(layout, row, at);
      f(at[0] + j * s0, at[1] + j * s1, at[2] + j * s2, at[3] + j * s3);
    });
    return;
  }
  // Natively, row by row. The usual strides of the last dim become constants, so that the loops vectorise.
  long long chunk = (layout.size + gridDim.x - 1) / gridDim.x, first = chunk * blockIdx.x;
  long long end = first + chunk < layout.size ? first + chunk : layout.size;
  while (first < end) {
    long long row = first / inner, from = first - row * inner;
    long long to = end - row * inner < inner ? end - row * inner : inner;
    seek(layout, row, at);
    const long long a = at[0], b = at[1], c = at[2], d = at[3];
    if (s0 == 1 && s1 == 1 && (OPERANDS < 3 || s2 == 1) && (OPERANDS < 4 || s3 == 1)) {
      SIMD for (long long j = from; j < to; j++) f(a + j, b + j, c + j, d + j);
    } else if (OPERANDS == 3 && s0 == 1 && s1 == 1 && s2 == 0) {
      SIMD for (long long j = from; j < to; j++) f(a + j, b + j, c, d);
    } else if (OPERANDS == 3 && s0 == 1 && s1 == 0 && s2 == 1) {
      SIMD for (long long j = from; j < to; j++) f(a + j, b, c + j, d);
    } else {
      for (long long j = from; j < to; j++) {
        asm volatile("");  // keeps this rare loop scalar: vectorising it too would take half of the compile time
        f(a + j * s0, b + j * s1, c + j * s2, d + j * s3);
      }
    }
    first += to - from;
  }
}
