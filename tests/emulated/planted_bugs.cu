// Small kernels, each with one bug, for the emulator to find: test_emulator.py says which. `good` has none.
// Launched with 2 blocks of 64 threads over arrays of 128 elements, except where the test says otherwise.
typedef float T;
typedef float R;
#line 6 "planted_bugs.cu"

__device__ int place() { return blockIdx.x * blockDim.x + threadIdx.x; }

extern "C" __global__ void good(float* y, const float* x) {  // a barrier, a collective of each kind, atomics
  __shared__ float turned[64];
  DYNAMIC_SHARED(float, votes);
  turned[63 - threadIdx.x] = x[place()];
  if (threadIdx.x < 2) votes[threadIdx.x] = 0;
  __syncthreads();
  float v = turned[threadIdx.x] + __shfl_sync(0xffffffffu, x[place()], 3) + __shfl_up_sync(0xffffffffu, 1.f, 1);
  v += __shfl_xor_sync(0xffffffffu, x[place()], 16) + __shfl_down_sync(0xffffffffu, x[place()], 1, 16);
  atomicAdd(&votes[threadIdx.x / 32], float(__popc(__ballot_sync(0xffffffffu, threadIdx.x % 4 == 0))));
  if (__any_sync(0xffffffffu, threadIdx.x == 40)) v += 1000;
  if (__all_sync(0xffffffffu, threadIdx.x < 32)) v += 2000;
  __syncthreads();
  y[place()] = v + votes[0] + votes[1];
}

extern "C" __global__ void hand_over(float* y, const float* x) {  // right, thanks to __syncwarp
  __shared__ float turned[64];
  turned[threadIdx.x ^ 31] = x[place()];
  __syncwarp();
  y[place()] = turned[threadIdx.x];
}

extern "C" __global__ void missing_syncwarp(float* y, const float* x) {
  __shared__ float turned[64];
  turned[threadIdx.x ^ 31] = x[place()];
  y[place()] = turned[threadIdx.x];
}

extern "C" __global__ void missing_barrier(float* y, const float* x) {
  __shared__ float turned[64];
  turned[63 - threadIdx.x] = x[place()];
  y[place()] = turned[threadIdx.x];
}

extern "C" __global__ void overwritten_too_early(float* y, const float* x) {  // no barrier at the end of the loop
  __shared__ float turned[64];
  float sum = 0;
  for (int turn = 0; turn < 2; turn++) {
    turned[63 - threadIdx.x] = x[place()] + turn;
    __syncthreads();
    sum += turned[threadIdx.x];
  }
  y[place()] = sum;
}

extern "C" __global__ void reads_past_the_end(float* y, const float* x) { y[place()] = x[place() + 1]; }
extern "C" __global__ void writes_past_the_end(float* y, const float* x) { y[place() + 1] = x[place()]; }
extern "C" __global__ void writes_before_the_start(float* y, const float* x) { y[place() - 1] = x[place()]; }
extern "C" __global__ void reads_a_null_pointer(float* y, const float* x) { y[place()] = x[place()]; }

extern "C" __global__ void past_dynamic_shared(float* y, const float* x) {
  DYNAMIC_SHARED(float, row);
  row[threadIdx.x + 1] = x[place()];
  y[place()] = row[threadIdx.x + 1];
}

extern "C" __global__ void past_static_shared(float* y, const float* x) {
  __shared__ float row[64];
  row[threadIdx.x + 64] = x[place()];
  y[place()] = row[threadIdx.x + 64];
}

extern "C" __global__ void unwritten_shared(float* y, const float* x) {
  __shared__ float row[64];
  if (threadIdx.x != 5) row[threadIdx.x] = x[place()];
  __syncthreads();
  y[place()] = row[threadIdx.x];
}

extern "C" __global__ void unwritten_dynamic(float* y, const float* x) {
  DYNAMIC_SHARED(float, row);
  y[place()] = x[place()] + row[threadIdx.x];
}

extern "C" __global__ void unwritten_output(float* y, const float* x) {
  if (place() != 77) y[place()] = x[place()];
}

extern "C" __global__ void filled_by_the_first_block_only(float* y, const float* x) {
  __shared__ float s[64];
  if (blockIdx.x == 0) s[threadIdx.x] = x[place()];
  y[place()] = s[threadIdx.x];
}

extern "C" __global__ void wrong_shuffle(float* y, const float* x) {  // 8 where a sum over the warp needs 16
  float v = x[place()];
  for (int lane = 8; lane > 0; lane /= 2) v += __shfl_xor_sync(0xffffffffu, v, lane);
  y[place()] = v;
}

extern "C" __global__ void barrier_for_some(float* y, const float* x) {
  if (threadIdx.x < 16) __syncthreads();
  y[place()] = x[place()];
}

extern "C" __global__ void two_barriers(float* y, const float* x) {
  if (threadIdx.x < 32)
    __syncthreads();
  else
    __syncthreads();
  y[place()] = x[place()];
}

extern "C" __global__ void missing_lane(float* y, const float* x) {
  float v = x[place()];
  if (threadIdx.x % 32 < 31) v += __shfl_xor_sync(0xffffffffu, v, 1);
  y[place()] = v;
}

extern "C" __global__ void unnamed_lane(float* y, const float* x) {
  y[place()] = __shfl_xor_sync(0xffffu, x[place()], 1);
}

extern "C" __global__ void mixed_collectives(float* y, const float* x) {
  if (threadIdx.x & 1) y[place()] = __shfl_sync(0xffffffffu, x[place()], 0);
  else y[place()] = __ballot_sync(0xffffffffu, x[place()] > 0);
}

extern "C" __global__ void all_blocks_write(float* y, const float* x) { y[threadIdx.x] = x[place()]; }
extern "C" __global__ void all_blocks_add(float* y, const float* x) { y[threadIdx.x] += x[place()]; }
extern "C" __global__ void one_block_reads_anothers(float* y, const float* x) {
  y[place()] = x[place()];
  if (blockIdx.x == 1) y[place()] += y[threadIdx.x];
}
extern "C" __global__ void atomic_and_plain(float* y, const float* x) {
  atomicAdd(&y[0], x[place()]);
  if (threadIdx.x == 40) y[0] = 0;
}
