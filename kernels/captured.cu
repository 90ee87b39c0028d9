// What a step needs beside its own launches when it is captured as a CUDA graph, and how indices are checked without a
// wait. Arrays are of 8-byte numbers.
//
//   deliver  letters: a row for each small array that the host fills before each call. Its numbers are copied from this
//            call's slot, of `size` numbers, of which there are `count` in the host's memory; turn counts the calls.
//            Launch one block
//   check    y = index where it is in [0, n) or is `ignored`, index + n where it is below 0 and wraps, if that is in
//            [0, n), and 0 elsewhere. found[0] becomes the lowest of the wrong numbers below 0 and found[1] the highest
//            from n on, if there are any, and then *stop is 1; launch over the indices
#include "common.cuh"

// minigrad/replay/memory.py reads the fields from here.
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
