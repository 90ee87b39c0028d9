// Random numbers and dropout, from a Philox stream. Element i depends only on (key, offset, i), so a seed gives the
// same numbers on every device.
//
//   layout   all arrays are compact, of n elements. Word i is word i % 4 of block offset + i / 4 of the stream `key`.
//            If `stream` is not null, it holds another key, which is taken instead, and an offset, which is added
//   launch   1-D, as for grid_each over the blocks of four words: n / 4, rounded up
//   equals   philox.words(key, offset, n), and what backend/numpy/random.py makes of them
#include "philox.cuh"

// Where in which stream a launch begins. What a launch repeats may differ each time: so it can lie in memory.
struct Start {
  unsigned long long key, offset;
  __device__ __forceinline__ Start(const unsigned long long* __restrict__ stream, unsigned long long key,
                                   unsigned long long offset)
      : key(stream ? stream[0] : key), offset(stream ? stream[1] + offset : offset) {}
};

// f(i, word) for each i in [0, n).
template <typename F>
__device__ __forceinline__ void each_word(Start start, long long n, F f) {
  grid_each(n / 4, [=](long long block) {
    const Words words = philox(start.key, start.offset + block);
    UNROLL for (int k = 0; k < 4; k++) f(4 * block + k, words.w[k]);
  });
  if (n % 4 && blockIdx.x == 0 && threadIdx.x == 0) {  // the rest, so that the loop above needs no branch
    const Words words = philox(start.key, start.offset + n / 4);
    for (int k = 0; k < n % 4; k++) f(n / 4 * 4 + k, words.w[k]);
  }
}

// A double in [0, 1) from 53 bits of two words.
__device__ __forceinline__ double unit(unsigned high, unsigned low) {
  return double((((unsigned long long)high << 32) | low) >> 11) * (1.0 / 9007199254740992.0);
}

extern "C" __global__ void words_kernel(const unsigned long long* __restrict__ stream, unsigned long long key,
                                        unsigned long long offset, unsigned* __restrict__ y, long long n) {
  each_word({stream, key, offset}, n, [=](long long i, unsigned word) { y[i] = word; });
}

// y = x mask, mask = scale where the element's word ≥ threshold, else 0.
extern "C" __global__ void dropout_kernel(const unsigned long long* __restrict__ stream, unsigned long long key,
                                          unsigned long long offset, T* __restrict__ y, T* __restrict__ mask,
                                          const T* __restrict__ x, unsigned threshold, double scale, long long n) {
  const R kept = R(T(scale));
  each_word({stream, key, offset}, n, [=](long long i, unsigned word) {
    R m = word >= threshold ? kept : R(0);
    mask[i] = T(m);
    y[i] = T(R(x[i]) * m);
  });
}

// Numbers in [0, 1), each from `bits` bits of a word.
extern "C" __global__ void uniform_kernel(const unsigned long long* __restrict__ stream, unsigned long long key,
                                          unsigned long long offset, T* __restrict__ y, int bits, long long n) {
  const R step = R(1) / R(1u << bits);
  each_word({stream, key, offset}, n, [=](long long i, unsigned word) { y[i] = T(R(int(word >> (32 - bits))) * step); });
}

// Doubles in [0, 1), each from 53 bits of two words.
extern "C" __global__ void uniform_double_kernel(const unsigned long long* __restrict__ stream,
                                                 unsigned long long key, unsigned long long offset,
                                                 double* __restrict__ y, long long n) {
  const Start start(stream, key, offset);
  grid_each((n + 1) / 2, [=](long long block) {
    const Words words = philox(start.key, start.offset + block);
    y[2 * block] = unit(words.w[0], words.w[1]);
    if (2 * block + 1 < n) y[2 * block + 1] = unit(words.w[2], words.w[3]);
  });
}

// Standard normal numbers by the Box-Muller transform: the first half are radii times cosines, the second half sines.
extern "C" __global__ void normal_kernel(const unsigned long long* __restrict__ stream, unsigned long long key,
                                         unsigned long long offset, T* __restrict__ y, long long n) {
  const Start start(stream, key, offset);
  const long long pairs = (n + 1) / 2;
  auto number = [=](long long i) {
    const Words words = philox(start.key, start.offset + i / 2);
    return i % 2 ? unit(words.w[2], words.w[3]) : unit(words.w[0], words.w[1]);
  };
  grid_each(pairs, [=](long long i) {
    const double radius = sqrt(-2 * log1p(-number(i))), angle = 6.283185307179586 * number(pairs + i);
    y[i] = T(radius * cos(angle));
    if (pairs + i < n) y[pairs + i] = T(radius * sin(angle));
  });
}
