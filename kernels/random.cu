// Random numbers and dropout, from a Philox stream. Element i depends only on (key, offset, i), so a seed gives the
// same numbers on every device.
//
//   layout   all arrays are compact, of n elements. Word i is word i % 4 of block offset + i / 4
//   launch   1-D, as for grid_each over the blocks of four words: n / 4, rounded up
//   equals   philox.words(key, offset, n), and what backend/numpy/random.py makes of them
#include "philox.cuh"

// f(i, word) for each i in [0, n).
template <typename F>
__device__ __forceinline__ void each_word(unsigned long long key, unsigned long long offset, long long n, F f) {
  grid_each(n / 4, [=](long long block) {
    const Words words = philox(key, offset + block);
    UNROLL for (int k = 0; k < 4; k++) f(4 * block + k, words.w[k]);
  });
  if (n % 4 && blockIdx.x == 0 && threadIdx.x == 0) {  // the rest, so that the loop above needs no branch
    const Words words = philox(key, offset + n / 4);
    for (int k = 0; k < n % 4; k++) f(n / 4 * 4 + k, words.w[k]);
  }
}

// A double in [0, 1) from 53 bits of two words.
__device__ __forceinline__ double unit(unsigned high, unsigned low) {
  return double((((unsigned long long)high << 32) | low) >> 11) * (1.0 / 9007199254740992.0);
}

extern "C" __global__ void words_kernel(unsigned* __restrict__ y, unsigned long long key, unsigned long long offset,
                                        long long n) {
  each_word(key, offset, n, [=](long long i, unsigned word) { y[i] = word; });
}

// y = x mask, mask = scale where the element's word ≥ threshold, else 0.
extern "C" __global__ void dropout_kernel(T* __restrict__ y, T* __restrict__ mask, const T* __restrict__ x,
                                          unsigned long long key, unsigned long long offset, unsigned threshold,
                                          double scale, long long n) {
  const R kept = R(T(scale));
  each_word(key, offset, n, [=](long long i, unsigned word) {
    R m = word >= threshold ? kept : R(0);
    mask[i] = T(m);
    y[i] = T(R(x[i]) * m);
  });
}

// Numbers in [0, 1), each from `bits` bits of a word.
extern "C" __global__ void uniform_kernel(T* __restrict__ y, unsigned long long key, unsigned long long offset,
                                          int bits, long long n) {
  const R step = R(1) / R(1u << bits);
  each_word(key, offset, n, [=](long long i, unsigned word) { y[i] = T(R(int(word >> (32 - bits))) * step); });
}

// Doubles in [0, 1), each from 53 bits of two words.
extern "C" __global__ void uniform_double_kernel(double* __restrict__ y, unsigned long long key,
                                                 unsigned long long offset, long long n) {
  grid_each((n + 1) / 2, [=](long long block) {
    const Words words = philox(key, offset + block);
    y[2 * block] = unit(words.w[0], words.w[1]);
    if (2 * block + 1 < n) y[2 * block + 1] = unit(words.w[2], words.w[3]);
  });
}

// Standard normal numbers by the Box-Muller transform: the first half are radii times cosines, the second half sines.
extern "C" __global__ void normal_kernel(T* __restrict__ y, unsigned long long key, unsigned long long offset,
                                         long long n) {
  const long long pairs = (n + 1) / 2;
  auto number = [=](long long i) {
    const Words words = philox(key, offset + i / 2);
    return i % 2 ? unit(words.w[2], words.w[3]) : unit(words.w[0], words.w[1]);
  };
  grid_each(pairs, [=](long long i) {
    const double radius = sqrt(-2 * log1p(-number(i))), angle = 6.283185307179586 * number(pairs + i);
    y[i] = T(radius * cos(angle));
    if (pairs + i < n) y[pairs + i] = T(radius * sin(angle));
  });
}
