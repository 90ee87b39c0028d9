// Casts: y = x in another dtype. Compiled for each dtype of x, with an entry point for each of y.
//
//   launch   1-D, as for map_places
//   equals   x.astype(dtype): floats to integers round towards zero, and to bool is x != 0. NaN, or a float beyond the
//            integer type's limits, gives an unspecified integer, which differs between GPU and CPU
#include "layout.cuh"

template <typename Y>
__device__ __forceinline__ void cast(Y* __restrict__ y, const T* __restrict__ x, const Layout& layout) {
  map_places(layout, [=](T x) { return Y(R(x)); }, y, x);
}

// args  y, x in layout
extern "C" __global__ void to_float32_kernel(float* y, const T* x, Layout layout) { cast(y, x, layout); }
// args  y, x in layout
extern "C" __global__ void to_float64_kernel(double* y, const T* x, Layout layout) { cast(y, x, layout); }
// args  y, x in layout
extern "C" __global__ void to_float16_kernel(half* y, const T* x, Layout layout) { cast(y, x, layout); }
// args  y, x in layout
extern "C" __global__ void to_int64_kernel(long long* y, const T* x, Layout layout) { cast(y, x, layout); }
// args  y, x in layout
extern "C" __global__ void to_int32_kernel(int* y, const T* x, Layout layout) { cast(y, x, layout); }
// args  y, x in layout
extern "C" __global__ void to_int16_kernel(short* y, const T* x, Layout layout) { cast(y, x, layout); }
// args  y, x in layout
extern "C" __global__ void to_int8_kernel(signed char* y, const T* x, Layout layout) { cast(y, x, layout); }
// args  y, x in layout
extern "C" __global__ void to_uint8_kernel(unsigned char* y, const T* x, Layout layout) { cast(y, x, layout); }
// args  y, x in layout
extern "C" __global__ void to_bool_kernel(bool* y, const T* x, Layout layout) { cast(y, x, layout); }
