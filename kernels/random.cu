// Random numbers and dropout, from a Philox stream. Element i depends only on (key, offset, i), so a seed gives the
// same numbers on every device.
//
//   layout   all arrays are compact, of n elements. Word i is word i % 4 of block offset + i / 4 of the stream `key`.
//            If `stream` is not null, it holds another key, which is taken instead, and an offset, which is added
//   launch   1-D, as for grid_each over the blocks of four words: n / 4, rounded up
//   equals   the functions of backend/numpy/random.py, from philox.words(key, offset, n)
#include "layout.cuh"
#include "philox.cuh"

// The stream, and the position in it where a launch begins. It can lie in memory, so that a launch that is repeated by
// a captured step draws other numbers each time.
struct Start {
  unsigned long long key, offset;
  __device__ __forceinline__ Start(const unsigned long long* __restrict__ stream, unsigned long long key,
                                   unsigned long long offset)
      : key(stream ? stream[0] : key), offset(stream ? stream[1] + offset : offset) {}
};

// Four neighbours of an array, which are loaded at once if V is const, and stored otherwise.
template <typename V>
struct Four {
  V* p;
  Run<V, 4> x;
  __device__ __forceinline__ void load() {}
  __device__ __forceinline__ void store() const { *reinterpret_cast<Run<V, 4>*>(p) = x; }
};
template <typename V>
struct Four<const V> {
  const V* p;
  Run<V, 4> x;
  __device__ __forceinline__ void load() { x = *reinterpret_cast<const Run<V, 4>*>(p); }
  __device__ __forceinline__ void store() const {}
};

template <typename F, typename... V>
__device__ __forceinline__ void each_of_four(const Words& words, F f, Four<V>... a) {
  (a.load(), ...);
  UNROLL for (int k = 0; k < 4; k++) f(words.w[k], a.x.at[k]...);
  (a.store(), ...);
}

// f(word, a[i], …) for each i in [0, n). f reads the arrays that are const, and writes the others.
template <typename F, typename... V>
__device__ __forceinline__ void each_word(Start start, long long n, F f, V*... a) {
  const bool at_once = !ONE_THREAD && (((unsigned long long)a % sizeof(Run<V, 4>) == 0) && ...);
  grid_each(n / 4, [=](long long block) {
    const Words words = philox(start.key, start.offset + block);
    if (at_once) each_of_four(words, f, Four<V>{a + 4 * block, {}}...);
    else UNROLL for (int k = 0; k < 4; k++) f(words.w[k], a[4 * block + k]...);
  });
  if (n % 4 && blockIdx.x == 0 && threadIdx.x == 0) {  // the rest, so that the loop above needs no branch
    const Words words = philox(start.key, start.offset + n / 4);
    for (int k = 0; k < n % 4; k++) f(words.w[k], a[n / 4 * 4 + k]...);
  }
}

// A double in [0, 1) from 53 bits of two words.
__device__ __forceinline__ double unit(unsigned high, unsigned low) {
  return double((((unsigned long long)high << 32) | low) >> 11) * (1.0 / 9007199254740992.0);
}

// args  stream? (2); y (n)
extern "C" __global__ void words_kernel(const unsigned long long* __restrict__ stream, unsigned long long key,
                                        unsigned long long offset, unsigned* __restrict__ y, long long n) {
  each_word({stream, key, offset}, n, [=](unsigned word, unsigned& y) { y = word; }, y);
}

// y = x mask. mask is `scale` where the element's word ≥ threshold, and 0 elsewhere.
// args  stream? (2); y, mask, x (n)
extern "C" __global__ void dropout_kernel(const unsigned long long* __restrict__ stream, unsigned long long key,
                                          unsigned long long offset, T* __restrict__ y, T* __restrict__ mask,
                                          const T* __restrict__ x, unsigned threshold, double scale, long long n) {
  const R kept = R(T(scale));
  auto drop = [=](unsigned word, T& y, T& mask, const T& x) {
    R m = word >= threshold ? kept : R(0);
    mask = T(m);
    y = T(R(x) * m);
  };
  each_word({stream, key, offset}, n, drop, y, mask, x);
}

// y is true where that mask is not 0.
// args  stream? (2); y (n)
extern "C" __global__ void kept_kernel(const unsigned long long* __restrict__ stream, unsigned long long key,
                                       unsigned long long offset, bool* __restrict__ y, unsigned threshold,
                                       long long n) {
  each_word({stream, key, offset}, n, [=](unsigned word, bool& y) { y = word >= threshold; }, y);
}

// Numbers in [0, 1), each from `bits` bits of a word.
// args  stream? (2); y (n)
extern "C" __global__ void uniform_kernel(const unsigned long long* __restrict__ stream, unsigned long long key,
                                          unsigned long long offset, T* __restrict__ y, int bits, long long n) {
  const R step = R(1) / R(1u << bits);
  auto number = [=](unsigned word, T& y) { y = T(R(int(word >> (32 - bits))) * step); };
  each_word({stream, key, offset}, n, number, y);
}

// Doubles in [0, 1), each from 53 bits of two words.
// args  stream? (2); y (n)
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

#ifndef MINIGRAD_NATIVE  // native.h has versions that vectorise
__device__ __forceinline__ double ln(double x) { return log(x); }
__device__ __forceinline__ void cos_sin(double angle, double& cosine, double& sine) { sincos(angle, &sine, &cosine); }
#endif

// Standard normal numbers by the Box-Muller transform: the first half are radii times cosines, the second half sines.
// args  stream? (2); y (n)
extern "C" __global__ void normal_kernel(const unsigned long long* __restrict__ stream, unsigned long long key,
                                         unsigned long long offset, T* __restrict__ y, long long n) {
  const Start start(stream, key, offset);
  const long long pairs = (n + 1) / 2;
  auto number = [=](long long i) {
    const Words words = philox(start.key, start.offset + i / 2);
    return i % 2 ? unit(words.w[2], words.w[3]) : unit(words.w[0], words.w[1]);
  };
  constexpr int AT_ONCE = ONE_THREAD ? 64 : 1;  // natively, a loop that stores nothing else vectorises
  grid_each((pairs + AT_ONCE - 1) / AT_ONCE, [=](long long some) {
    const long long first = some * AT_ONCE, count = pairs - first < AT_ONCE ? pairs - first : AT_ONCE;
    double radius[AT_ONCE], cosine[AT_ONCE], sine[AT_ONCE];
    SIMD for (int k = 0; k < AT_ONCE; k++) {
      radius[k] = sqrt(-2 * ln(1 - number(first + k)));
      cos_sin(6.283185307179586 * number(pairs + first + k), cosine[k], sine[k]);
    }
    for (int k = 0; k < count; k++) {
      const long long i = first + k;
      y[i] = T(radius[k] * cosine[k]);
      if (pairs + i < n) y[pairs + i] = T(radius[k] * sine[k]);
    }
  });
}
