// Kernels of captured steps that run as a CUDA graph, and checks of indices without waiting on the host. Arrays have
// 8-byte elements.
//
//   copy_parameters  fills n parameter buffers of a step from memory of the host. That memory has `count` slots of
//                    `size` numbers each, which calls use in turn; *turn counts the calls. Launch one block
//   check            y = index if it is in [0, n) or is `ignored`; index + n if index is below 0, `wraps` is true and
//                    the sum is in [0, n); otherwise 0, and the index is wrong. found[0] becomes the lowest wrong number
//                    below 0, and found[1] the highest that is n or more. If any is wrong, *stop becomes 1. Launch over
//                    the indices
#include "common.cuh"

// The copy of `size` numbers of a slot, from number `start` on, to the parameter buffer `to`.
// minigrad/replay/cuda_graph.py reads the fields from here.
struct ParameterCopy {
  T* to;
  long long start, size;
};

// args  copies[n] bits to (size); slots (count, size); turn (1)
extern "C" __global__ void copy_parameters(const ParameterCopy* copies, int n, const T* slots, long long size,
                                           long long count, long long* turn) {
  const T* slot = slots + *turn % count * size;
  for (int k = 0; k < n; k++) {
    const ParameterCopy copy = copies[k];
    each(copy.size, [&](long long i) { copy.to[i] = slot[copy.start + i]; });
  }
  __syncthreads();  // all threads have read turn
  if (threadIdx.x == 0) ++*turn;
}

// args  y, index (size); found (2); stop (1)
extern "C" __global__ void check(long long* __restrict__ y, const long long* __restrict__ index, long long size,
                                 long long n, bool wraps, bool ignores, long long ignored, long long* found,
                                 long long* stop) {
  grid_each(size, [&](long long i) {
    const long long value = wraps && index[i] < 0 ? index[i] + n : index[i];
    const bool low = value < 0, high = value >= n, wrong = (low || high) && !(ignores && value == ignored);
    y[i] = wrong ? 0 : value;
    if (!wrong) return;
    if (low) atomicMin(&found[0], index[i]);
    else atomicMax(&found[1], value);
    atomicMax(stop, 1LL);
  });
}
