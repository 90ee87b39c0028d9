// The header of a kernel file that is compiled for the CPU with one thread per block: CUDA's keywords, hints for the
// vectoriser, float versions of exp and other functions that vectorise, and launch(), which spreads blocks over the
// cores.
#pragma once
#define MINIGRAD_NATIVE 1

#include <cmath>
#include <cstddef>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __restrict__ __restrict

static const int warpSize = 32;
typedef _Float16 half;
#define __global__
#define __shared__ static thread_local
#define __syncthreads()
#define __syncwarp(...)

// A loop marked by this may add in any order. No other may: there is no -ffast-math, and NaN and ∞ stay what they are.
#define PRAGMA(text) _Pragma(#text)
#define UNROLL PRAGMA(GCC unroll 8)
#define SIMD PRAGMA(omp simd)
#define SIMD_SUM(...) PRAGMA(omp simd reduction(+ : __VA_ARGS__))
#define SIMD_MAX(m) PRAGMA(omp simd reduction(max : m))

#define DYNAMIC_SHARED(type, name) type* name = reinterpret_cast<type*>(own_shared_bytes())
alignas(64) static thread_local unsigned char shared_bytes[1 << 19];
inline void* own_shared_bytes() {
  unsigned char* first = shared_bytes;
  asm("" : "+r"(first));  // or the compiler would ask for this thread's address again at every use
  return __builtin_assume_aligned(first, 64);
}

struct Index3 { unsigned x, y, z; };
static const Index3 threadIdx = {0, 0, 0}, blockDim = {1, 1, 1};
static thread_local Index3 gridDim, blockIdx;

template <typename V> inline V __shfl_xor_sync(unsigned, V v, int, int = 32) { return v; }
template <typename V> inline V __shfl_sync(unsigned, V v, int, int = 32) { return v; }
#define ATOMIC(name, result)                                                                                    \
  template <typename V> inline V name(V* p, std::common_type_t<V> v) {                                          \
    V old, now;                                                                                                 \
    __atomic_load(p, &old, __ATOMIC_RELAXED);                                                                   \
    do now = result; while (!__atomic_compare_exchange(p, &old, &now, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)); \
    return old;                                                                                                 \
  }
ATOMIC(atomicAdd, old + v)
ATOMIC(atomicMin, v < old ? v : old)
ATOMIC(atomicMax, old < v ? v : old)
#undef ATOMIC

// ------------------------------------------------------------------------------------------------- float functions
// libm's functions are exact to half a unit in the last place, but scalar. These are exact to 2 units, and vectorise.
// Doubles use libm. Each is right at ±∞ and NaN.

// A polynomial of x; the coefficient of the highest power comes first.
template <typename V, typename... C>
inline __attribute__((always_inline)) V poly(V x, V p, C... rest) {
  ((p = p * x + rest), ...);
  return p;
}

// e^x = 2^n e^r, |r| ≤ ln 2 / 2: Cephes' polynomial (S. L. Moshier, "Methods and programs", 1989). Results that are 0
// in float are not computed: a product that underflows takes a CPU a hundred times as long, and masks of attention are
// e^-∞.
inline __attribute__((always_inline)) float exp_(float x) {
  const bool zero = x < -104.f;                 // a NaN stays
  float clipped = zero ? 0.f : x;
  clipped = clipped > 89.f ? 89.f : clipped;    // e^89 is ∞
  float shifted = __builtin_fmaf(clipped, 1.44269504088896341f, 12582912.f);  // 1.5 · 2^23: the last bits are n
  float n = shifted - 12582912.f;
  float r = __builtin_fmaf(n, -0.693359375f, clipped);
  r = __builtin_fmaf(n, 2.12194440e-4f, r);
  float p = poly(r, 1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f,
                 5.0000001201e-1f, 1.f, 1.f);
  int both;
  std::memcpy(&both, &shifted, 4);
  both += 254 - 0x4b400000;  // n + 254: less the bits of 12582912
  int first = both >> 1;  // 2^n in two steps: n may be -150
  unsigned bits1 = unsigned(first) << 23, bits2 = unsigned(both - first) << 23;
  float scale1, scale2;
  std::memcpy(&scale1, &bits1, 4);
  std::memcpy(&scale2, &bits2, 4);
  return zero ? 0.f : p * scale1 * scale2;
}

inline __attribute__((always_inline)) float tanh_(float x) {
  float a = __builtin_fabsf(x), s = x * x;
  float large = 1.f - 2.f / (exp_(a + a) + 1.f);
  float p = poly(s, -5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f, -3.33332819422e-1f);
  float small = p * s * a + a;
  return __builtin_copysignf(a < 0.625f ? small : large, x);
}

// The coefficients below are minimax fits of our own: Lawson's iteration on a Chebyshev grid, values from mpmath. Those
// of floats were rounded one by one, from the lowest power on, and the others fitted again.

// erf x = x + x P(x²) for |x| < 1.1; beyond, 1 - erfc |x| = 1 - Q(|x| - 2)^4, where the rounding of Q matters little.
inline __attribute__((always_inline)) float erf_(float x) {
  float a = __builtin_fabsf(x), s = x * x;
  float p = poly(s, 7.23606863e-05f, -0.000782473944f, 0.00516773108f, -0.026843518f, 0.112833641f, -0.376126111f,
                 0.128379166f);
  float small = __builtin_fmaf(x, p, x);
  float t = (a > 4.f ? 4.f : a) - 2.f;  // erf 4 is 1 in float; a NaN stays
  float q = poly(t, -1.30057915e-05f, -0.000179836847f, 0.000750374747f, 0.00152864959f, -0.0122346748f,
                 0.00690604467f, 0.0991374478f, -0.288862288f, 0.261522323f);
  q *= q;
  return a < 1.1f ? small : __builtin_copysignf(1.f - q * q, x);
}

// erfc |x| = t exp(P(t) - x²), t = 2 / (2 + |x|), the form of Numerical Recipes' erfcc, with a fit that is exact to
// 8e-9; in double, since the last bit of x² is many of erfc's. e^y = 2^n e^r by Taylor's series, exact to 5e-9.
inline __attribute__((always_inline)) float erfc_(float x) {
  double a = __builtin_fabs((double)x);
  a = a > 11. ? 11. : a;  // erfc 11 is 0 in float; a NaN stays
  double t = 2. / (2. + a);
  double p = poly(t, -0.128928588453, 0.896536537587, -2.59631942731, 3.95967679126, -3.29680785466, 1.51340063692,
                 -0.650025404249, 0.209345162921, 0.357261549117, 1.00142203309, -1.26556142846);
  double y = p - a * a;
  double shifted = y * 1.4426950408889634 + 0x1.8p52, n = shifted - 0x1.8p52;  // rounds: n stands in the lowest bits
  double r = __builtin_fma(n, -0.6931471805599453, y);
  double e = poly(r, 1. / 5040, 1. / 720, 1. / 120, 1. / 24, 1. / 6, 0.5, 1., 1.);
  unsigned long long bits;
  std::memcpy(&bits, &shifted, 8);
  bits = (bits + 1023) << 52;
  double scale;
  std::memcpy(&scale, &bits, 8);
  double tail = t * e * scale;
  return float(x < 0 ? 2. - tail : tail);
}

// ln x = i ln 2 + ln(1 + f), x = 2^i (1 + f), 2/3 ≤ 1 + f < 4/3, and ln(1 + f) = f - f²/2 + f³ P(f).
inline __attribute__((always_inline)) float log_(float x) {
  bool tiny = x < 1.17549435e-38f;  // a subnormal number has fewer bits: times 2^23 it is a normal one
  float whole = tiny ? x * 8388608.f : x;
  int bits;
  std::memcpy(&bits, &whole, 4);
  int exponent = (bits - 0x3f2aaaab) & 0xff800000;
  bits -= exponent;
  float i = (float)(exponent >> 23) - (tiny ? 23.f : 0.f), f;
  std::memcpy(&f, &bits, 4);
  f -= 1.f;
  float s = f * f;
  float p = poly(f, -1.28423e-01f, 1.3991696e-01f, -1.21945955e-01f, 1.4004566e-01f, -1.6679817e-01f, 2.0010473e-01f,
                 -2.4999811e-01f, 3.3333215e-01f, -0.5f);
  float y = __builtin_fmaf(i, 0.693147182f, __builtin_fmaf(p, s, f));
  y = x == __builtin_inff() ? x : y;
  y = x == 0 ? -__builtin_inff() : y;
  return x >= 0 ? y : __builtin_nanf("");
}

// In double, to 2 units in the last place: ln x of a positive, normal x, and for random numbers cos and sin of an angle in
// [0, 2π). The polynomials are Cephes'.
inline __attribute__((always_inline)) double ln(double x) {
  unsigned long long bits;
  std::memcpy(&bits, &x, 8);
  int n = int(bits >> 52) - 1022;  // x = m 2^n
  bits = (bits & 0x000fffffffffffff) | 0x3fe0000000000000;
  double m;
  std::memcpy(&m, &bits, 8);
  const bool low = m < 0.70710678118654752440;
  n -= low;
  const double r = low ? m + m - 1 : m - 1, z = r * r;
  double p = 1.01875663804580931796e-4, q = r + 1.12873587189167450590e1;
  p = p * r + 4.97494994976747001425e-1;
  p = p * r + 4.70579119878881725854;
  p = p * r + 1.44989225341610930846e1;
  p = p * r + 1.79368678507819816313e1;
  p = p * r + 7.70838733755885391666;
  q = q * r + 4.52279145837532221105e1;
  q = q * r + 8.29875266912776603211e1;
  q = q * r + 7.11544750618563894466e1;
  q = q * r + 2.31251620126765340583e1;
  const double rest = r * (z * p / q) - n * 2.121944400546905827679e-4 - 0.5 * z;
  return r + rest + n * 0.693359375;
}

// ln(1 + x), in double. What 1 + x rounds away is added to first order, as in fdlibm.
inline __attribute__((always_inline)) float log1p_(float x) {
  const double u = 1 + double(x);
  float y = float(ln(u) + (x - (u - 1)));
  y = x == __builtin_inff() ? x : x == -1 ? -__builtin_inff() : __builtin_copysignf(y, x);
  return x >= -1 ? y : __builtin_nanf("");
}

inline __attribute__((always_inline)) void cos_sin(double angle, double& cosine, double& sine) {
  const int quarter = int(angle * 0.63661977236758134308 + 0.5);
  double z = __builtin_fma(-quarter, 1.57079632679489661923, angle);  // of π/2, the double and what it lacks
  z = __builtin_fma(-quarter, 6.12323399573676603587e-17, z);
  const double s = z * z;
  double p = poly(s, 1.58962301576546568060e-10, -2.50507477628578072866e-8, 2.75573136213857245213e-6,
                 -1.98412698295895385996e-4, 8.33333333332211858878e-3, -1.66666666666666307295e-1);
  double q = poly(s, -1.13585365213876817300e-11, 2.08757008419747316778e-9, -2.75573141792967388112e-7,
                 2.48015872888517045348e-5, -1.38888888888730564116e-3, 4.16666666666665929218e-2);
  const double near_0 = z + z * s * p, near_1 = 1 - 0.5 * s + s * s * q;
  sine = quarter & 1 ? near_1 : near_0;
  cosine = quarter & 1 ? near_0 : near_1;
  sine = quarter & 2 ? -sine : sine;
  cosine = (quarter + 1) & 2 ? -cosine : cosine;
}

// Kernels write exp(x) for both types.
inline __attribute__((always_inline)) double exp_(double x) { return std::exp(x); }
inline __attribute__((always_inline)) double tanh_(double x) { return std::tanh(x); }
inline __attribute__((always_inline)) double erf_(double x) { return std::erf(x); }
inline __attribute__((always_inline)) double erfc_(double x) { return std::erfc(x); }
inline __attribute__((always_inline)) double log_(double x) { return std::log(x); }
inline __attribute__((always_inline)) double log1p_(double x) { return std::log1p(x); }
#define exp exp_
#define tanh tanh_
#define erf erf_
#define erfc erfc_
#define log log_
#define log1p log1p_
using std::sqrt; using std::sin; using std::cos; using std::pow;
using std::fmod; using std::floor; using std::rint; using std::fabs; using std::isnan; using std::isinf; using std::copysign;
using std::fma;

// ---------------------------------------------------------------------------------------------------------- launching

// run_blocks of pool.cpp, which spreads blocks over the cores.
typedef void (*Work)(void* launch, long long first, long long last);
static void (*run_blocks)(Work, void* launch, long long blocks);
extern "C" void use_pool(void (*f)(Work, void*, long long)) { run_blocks = f; }

// The byte at which each argument begins: they are packed one after the other, each at a multiple of 8 bytes.
template <typename... A>
struct Packed {
  std::size_t at[sizeof...(A) + 1] = {0};
  constexpr Packed() {
    const std::size_t sizes[] = {((sizeof(A) + 7) & ~std::size_t(7))..., 0};
    for (std::size_t i = 0; i < sizeof...(A); i++) at[i + 1] = at[i] + sizes[i];
  }
};

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
  if (blocks < grid[3]) return some(0, blocks);
  run_blocks([](void* launch, long long first, long long last) { (*(decltype(some)*)launch)(first, last); }, &some, blocks);
}
// grid: the blocks along x, y and z, and how many blocks there must be for threads to share them.
template <typename... A>
inline void launch(void (*kernel)(A...), const unsigned* grid, const char* packed) {
  launch_with(kernel, (long long)grid[0] * grid[1] * grid[2], grid, packed, std::index_sequence_for<A...>());
}
