// What a kernel file sees, after words.h, when it is compiled for the CPU with one thread per block: the loops' hints to
// the vectoriser, float versions of exp and its kin that vectorise, and launch(), which spreads blocks over the cores.
#pragma once
#define MINIGRAD_NATIVE 1

#include <cstring>

#define __global__
#define __shared__ static thread_local
#define __syncthreads()
#define __syncwarp(...)

// A reduction may add in any order here; nothing else may, so no -ffast-math, and NaN and ∞ are themselves.
#define PRAGMA(text) _Pragma(#text)
#define UNROLL PRAGMA(GCC unroll 8)
#define SIMD PRAGMA(omp simd)
#define SIMD_SUM(...) PRAGMA(omp simd reduction(+ : __VA_ARGS__))
#define SIMD_MAX(m) PRAGMA(omp simd reduction(max : m))

#define DYNAMIC_SHARED(type, name) type* name = reinterpret_cast<type*>(shared_bytes)
alignas(64) static thread_local unsigned char shared_bytes[1 << 19];

struct Index3 { unsigned x, y, z; };
static const Index3 threadIdx = {0, 0, 0}, blockDim = {1, 1, 1};
static thread_local Index3 gridDim, blockIdx;

template <typename V> inline V __shfl_xor_sync(unsigned, V v, int, int = 32) { return v; }
template <typename V> inline V __shfl_sync(unsigned, V v, int, int = 32) { return v; }
template <typename V, typename W> inline V atomicAdd(V* p, W v) {
  V before, after;
  __atomic_load(p, &before, __ATOMIC_RELAXED);
  do after = before + v; while (!__atomic_compare_exchange(p, &before, &after, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return before;
}

// ------------------------------------------------------------------------------------------------- float functions
// libm's are exact to half a unit, but scalar; these are within 2 units in the last place and vectorise. Double stays
// with libm. Each is right at ±∞ and NaN.

// e^x = 2^n e^r, |r| ≤ ln 2 / 2: Cephes' polynomial (S. L. Moshier, "Methods and programs", 1989).
inline __attribute__((always_inline)) float exp_(float x) {
  float clipped = x < -104.f ? -104.f : x;      // e^-104 is 0 in float; a NaN stays
  clipped = clipped > 89.f ? 89.f : clipped;    // e^89 is ∞
  float n = __builtin_rintf(clipped * 1.44269504088896341f);
  float r = __builtin_fmaf(n, -0.693359375f, clipped);
  r = __builtin_fmaf(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.f;
  int whole = n == n ? (int)n : 0, first = whole >> 1, second = whole - first;  // 2^n in two steps: n may be -150
  int bits1 = (first + 127) << 23, bits2 = (second + 127) << 23;
  float scale1, scale2;
  std::memcpy(&scale1, &bits1, 4);
  std::memcpy(&scale2, &bits2, 4);
  return p * scale1 * scale2;
}

inline __attribute__((always_inline)) float tanh_(float x) {
  float a = __builtin_fabsf(x), s = x * x;
  float large = 1.f - 2.f / (exp_(a + a) + 1.f);
  float p = -5.70498872745e-3f;
  p = p * s + 2.06390887954e-2f;
  p = p * s - 5.37397155531e-2f;
  p = p * s + 1.33314422036e-1f;
  p = p * s - 3.33332819422e-1f;
  float small = p * s * x + x;
  return a < 0.625f ? small : __builtin_copysignf(large, x);
}

// One odd rational function, exact to 2 ulp of 1 on |x| < 4 (the coefficients used by Eigen), as in the reference.
inline __attribute__((always_inline)) float erf_(float x) {
  float z = x < -4.f ? -4.f : x > 4.f ? 4.f : x, s = z * z;
  float p = -2.72614225801306e-10f;
  p = p * s + 2.77068142495902e-08f;
  p = p * s - 2.10102402082508e-06f;
  p = p * s - 5.69250639462346e-05f;
  p = p * s - 7.34990630326855e-04f;
  p = p * s - 2.95459980854025e-03f;
  p = p * s - 1.60960333262415e-02f;
  float q = -1.45660718464996e-05f;
  q = q * s - 2.13374055278905e-04f;
  q = q * s - 1.68282697438203e-03f;
  q = q * s - 7.37332916720468e-03f;
  q = q * s - 1.42647390514189e-02f;
  return p * z / q;
}

// A kernel writes exp(x) for either type.
inline __attribute__((always_inline)) double exp_(double x) { return std::exp(x); }
inline __attribute__((always_inline)) double tanh_(double x) { return std::tanh(x); }
inline __attribute__((always_inline)) double erf_(double x) { return std::erf(x); }
#define exp exp_
#define tanh tanh_
#define erf erf_
using std::erfc; using std::log; using std::log1p; using std::sqrt; using std::sin; using std::cos; using std::pow;
using std::floor; using std::fabs; using std::isnan; using std::isinf; using std::copysign; using std::fma;

// ---------------------------------------------------------------------------------------------------------- launching

// What spreads blocks over the cores: run_blocks of pool.cpp.
typedef void (*Work)(void* launch, long long first, long long last);
static void (*run_blocks)(Work, void* launch, long long blocks);
extern "C" void use_pool(void (*f)(Work, void*, long long)) { run_blocks = f; }

template <typename... A, std::size_t... I>
inline void launch_with(void (*kernel)(A...), long long blocks, const unsigned* grid, const char* packed,
                        std::index_sequence<I...>) {
  static constexpr Packed<A...> where;
  std::tuple<std::remove_cv_t<A>...> args;
  ((std::memcpy((void*)&std::get<I>(args), packed + where.at[I], sizeof(A))), ...);
  auto some = [&](long long first, long long last) {
    gridDim = {grid[0], grid[1], grid[2]};
    for (long long b = first; b < last; b++) {
      blockIdx = {unsigned(b % grid[0]), unsigned(b / grid[0] % grid[1]), unsigned(b / grid[0] / grid[1])};
      kernel(std::get<I>(args)...);
    }
  };
  run_blocks([](void* launch, long long first, long long last) { (*(decltype(some)*)launch)(first, last); }, &some, blocks);
}
template <typename... A>
inline int launch(void (*kernel)(A...), const unsigned* grid, unsigned long, const char* packed) {
  launch_with(kernel, (long long)grid[0] * grid[1] * grid[2], grid, packed, std::index_sequence_for<A...>());
  return 0;
}
