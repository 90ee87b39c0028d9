// What a captured step needs besides its own launches when it is a CUDA graph, and checks of indices that the host does
// not wait for. Arrays are of 8-byte numbers.
//
//   deliver  fills the parameter buffers of a step, one for each of n letters, from memory of the host. It has `count`
//            slots of `size` numbers, which calls use in turn; *turn counts the calls. Launch one block
//   check    y = index if it is in [0, n) or is `ignored`; index + n if index is below 0, `wraps` is true and the sum
//            is in [0, n); otherwise 0, and the index is wrong. found[0] becomes the lowest wrong number below 0, and
//            found[1] the highest that is n or more. If any is wrong, *stop becomes 1. Launch over the indices
#include "common.cuh"

// A parameter buffer, and its first number in a slot. minigrad/replay/cuda_graph.py reads the fields from here.
struct Letter {
  T* to;
  long long at, size;
};

// args  letters[n] bits to (size); slots (count, size); turn (1)
extern "C" __global__ void deliver(const Letter* letters, int n, const T* slots, long long size, long long count,
                                   long long* turn) {
  const T* slot = slots + *turn % count * size;
  for (int k = 0; k < n; k++) each(letters[k].size, [&](long long i) { letters[k].to[i] = slot[letters[k].at + i]; });
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
