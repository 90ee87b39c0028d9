// Moving elements unchanged, from any strides to any strides, and filling with one value. Compiled for unsigned
// integers of 1, 2, 4 and 8 bytes, since what the bits mean does not matter.
//
//   copy       launch over the elements; layout: operand 0 is y, operand 1 is x          y[...] = x
//   transpose  the same, when the dim that is contiguous in x is not the one that is contiguous in y. Those two come
//              last in the layout, x's before y's, and are cut into tiles. A block for each tile of each place of the
//              other dims. The layout is narrow. by_tiles and by_across: what quotient() takes to divide by the number
//              of tiles of a place, and of those along x's dim
//   fill       launch over the elements; layout: operand 0 is y                          y[...] = value
#include "layout.cuh"

// args  bits y, x in layout
extern "C" __global__ void copy(T* __restrict__ y, const T* __restrict__ x, Layout layout) {
  map_places(layout, [](T x) { return x; }, y, x);
}

// args  bits y in layout
extern "C" __global__ void fill(T* __restrict__ y, T value, Layout layout) {
  map_places(layout, [=] { return value; }, y);
}

constexpr int SIDE = 32;  // elements along a side of a tile

// f(i, j) for each place of a tile that lies within rows × columns; neighbouring j go to neighbouring threads.
template <typename F>
__device__ __forceinline__ void tile_each(int rows, int columns, F f) {
  const int across = blockDim.x < SIDE ? 1 : SIDE, down = blockDim.x / across;
  const int height = rows < SIDE ? rows : SIDE, width = columns < SIDE ? columns : SIDE;
  for (int i = threadIdx.x / across; i < height; i += down) {
    for (int j = threadIdx.x % across; j < width; j += across) f(i, j);
  }
}

// Reads run along x's contiguous dim and writes along y's, so that both coalesce. A tile in shared memory is between.
// args  bits y, x in layout
extern "C" __global__ void transpose(T* __restrict__ y, const T* __restrict__ x, Layout layout, long long by_tiles,
                                     long long by_across) {
  __shared__ T tile[SIDE][SIDE + 1];  // + 1: the elements of a column lie in different banks
  const int a = int(layout.ndim) - 2, b = a + 1;  // contiguous in x, contiguous in y
  const unsigned across = unsigned(layout.shape[a] + SIDE - 1) / SIDE;
  const unsigned down = unsigned(layout.shape[b] + SIDE - 1) / SIDE;
  unsigned place = quotient(blockIdx.x, by_tiles);
  const unsigned within = blockIdx.x - place * across * down, row = quotient(within, by_across);
  const int i0 = int(row) * SIDE, j0 = int(within - row * across) * SIDE;  // along b, along a
  const int rows = int(layout.shape[b]) - i0, columns = int(layout.shape[a]) - j0;
  const int y_step = int(layout.strides[0][a]), x_step = int(layout.strides[1][b]);
  int to = i0 + j0 * y_step, from = j0 + i0 * x_step;
  for (int d = a - 1; d >= 0; d--) {
    const unsigned rest = quotient(place, layout.reciprocals[d]);
    const int index = int(place - rest * unsigned(layout.shape[d]));
    place = rest;
    to += index * int(layout.strides[0][d]);
    from += index * int(layout.strides[1][d]);
  }
  y += to;
  x += from;
  tile_each(rows, columns, [&](int i, int j) { tile[j][i] = x[i * x_step + j]; });
  __syncthreads();
  tile_each(columns, rows, [&](int j, int i) { y[j * y_step + i] = tile[j][i]; });
}
