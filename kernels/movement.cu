// Moving elements unchanged, from any strides to any strides, and filling with one value. Compiled for unsigned
// integers of 1, 2, 4 and 8 bytes, since what the bits mean does not matter.
//
//   copy       launch over the elements; layout: operand 0 is y, operand 1 is x          y[...] = x
//   transpose  the same, when the dim that is contiguous in x is not the one that is contiguous in y. Those two come
//              last in the layout, x's before y's, and are cut into tiles. A block for each tile of each place of the
//              other dims.
//   fill       launch over the elements                                                  y[...] = value
#include "layout.cuh"

extern "C" __global__ void copy(T* __restrict__ y, const T* __restrict__ x, Layout layout) {
  map_places(layout, [](T x) { return x; }, y, x);
}

extern "C" __global__ void fill(T* __restrict__ y, T value, long long n) {
  grid_each(n, [&](long long i) { y[i] = value; });
}

constexpr int SIDE = 32;  // of a tile, in elements

// f(i, j) for each place of a tile that lies within rows × columns; neighbouring j go to neighbouring threads.
template <typename F>
__device__ __forceinline__ void tile_each(long long rows, long long columns, F f) {
  const int across = blockDim.x < SIDE ? 1 : SIDE, down = blockDim.x / across;
  const int height = rows < SIDE ? rows : SIDE, width = columns < SIDE ? columns : SIDE;
  for (int i = threadIdx.x / across; i < height; i += down) {
    for (int j = threadIdx.x % across; j < width; j += across) f(i, j);
  }
}

// Reads run along x's contiguous dim and writes along y's, so that both coalesce; shared memory is where they meet.
extern "C" __global__ void transpose(T* __restrict__ y, const T* __restrict__ x, Layout layout) {
  __shared__ T tile[SIDE][SIDE + 1];  // + 1: the elements of a column lie in different banks
  const long long a = layout.ndim - 2, b = layout.ndim - 1;  // contiguous in x, contiguous in y
  const long long across = (layout.shape[a] + SIDE - 1) / SIDE, down = (layout.shape[b] + SIDE - 1) / SIDE;
  long long place = blockIdx.x / (across * down), within = blockIdx.x % (across * down);
  const long long i0 = within / across * SIDE, j0 = within % across * SIDE;  // along b, along a
  const long long rows = layout.shape[b] - i0, columns = layout.shape[a] - j0;
  const long long y_step = layout.strides[0][a], x_step = layout.strides[1][b];
  y += i0 + j0 * y_step;
  x += j0 + i0 * x_step;
  for (long long d = a - 1; d >= 0; d--) {
    long long index = place % layout.shape[d];
    place /= layout.shape[d];
    y += index * layout.strides[0][d];
    x += index * layout.strides[1][d];
  }
  tile_each(rows, columns, [&](int i, int j) { tile[j][i] = x[i * x_step + j]; });
  __syncthreads();
  tile_each(columns, rows, [&](int j, int i) { y[j * y_step + i] = tile[j][i]; });
}
