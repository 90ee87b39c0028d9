// kernels/: every fast primitive, written once in CUDA C++ and run three ways.
//
//   on a GPU      compiled by NVRTC, which has no standard headers: no INFINITY, FLT_MAX or int32_t here
//   on a CPU      compiled by the system's C++ compiler with one thread per block (blockDim is the constant 1), so that
//                 a loop over threadIdx.x becomes a plain loop, which vectorises; the blocks are spread over the cores
//   in a test     compiled likewise, but with real blocks of threads, whose barriers and memory accesses are checked
//
// So a kernel is right for any launch shape: its loops stride by blockDim or go through for_each. minigrad's NumPy
// backend says what each primitive means. Names, as everywhere: x, y, dy, dx; q, k, v; B, T, C, nh, hs, V.
#pragma once

// Calls f(i) for each i in [0, n), shared out over the whole 1-D grid. Neighbouring threads get neighbouring elements,
// so that a warp's accesses coalesce; a block of one thread gets neighbouring elements itself, for the same reason.
template <typename F>
__device__ __forceinline__ void for_each(long long n, F f) {
  long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x, end = n;
  long long step = (long long)gridDim.x * blockDim.x;
  if (blockDim.x == 1) {
    long long chunk = (n + gridDim.x - 1) / gridDim.x;
    first = chunk * blockIdx.x;
    end = first + chunk < n ? first + chunk : n;
    step = 1;
  }
  for (long long i = first; i < end; i += step) f(i);
}

// The sum of v over the block, in every thread, always added in the same order. All threads of the 1-D block must call
// it, and they are 1 or a multiple of 32 (at most 1024).
template <typename T>
__device__ __forceinline__ T block_sum(T v) {
  if (blockDim.x == 1) return v;
  __shared__ T warp_sums[32];
  for (int lane = 16; lane > 0; lane /= 2) v += __shfl_xor_sync(0xffffffffu, v, lane);
  __syncthreads();  // until everyone has read the sums of the call before
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = v;
  __syncthreads();
  T sum = 0;
  for (unsigned warp = 0; warp < blockDim.x / 32; warp++) sum += warp_sums[warp];
  return sum;
}
