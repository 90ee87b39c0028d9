// What a kernel file sees when it is compiled for the CPU with real blocks of threads: CUDA's words, on top of words.h
// and fibers.h. Nothing here is fast: it is there to prove a kernel's barriers, shuffles, bounds and indices without a GPU.
#pragma once
#define MINIGRAD_EMULATED 1

#define __global__ __attribute__((noinline))
#define __align__(n) alignas(n)
#define DYNAMIC_SHARED(type, name) type* name = (type*)dynamic_shared_memory()
UNCHECKED static void* dynamic_shared_memory() { return emulator::dynamic_shared; }

#define VECTORS(type, name) \
  struct alignas(2 * sizeof(type)) name##2 { type x, y; }; \
  struct alignas(sizeof(type) < 8 ? 4 * sizeof(type) : 16) name##4 { type x, y, z, w; }; \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; } \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
VECTORS(float, float) VECTORS(double, double) VECTORS(int, int) VECTORS(unsigned, uint)
#undef VECTORS

// ----------------------------------------------------------------------------------------------- waiting and talking

using emulator::Place;

inline unsigned __float_as_uint(float x) { unsigned y; memcpy(&y, &x, 4); return y; }
inline float __uint_as_float(unsigned x) { float y; memcpy(&y, &x, 4); return y; }

UNCHECKED static void __syncthreads(Place place = HERE) { emulator::barrier(place); }

UNCHECKED static void __syncwarp(unsigned mask = 0xffffffffu, Place place = HERE) {
  auto release = [](void**) UNCHECKED { checker::warp_synchronised(emulator::current->thread / emulator::WARP); };
  char nothing;
  emulator::meet(mask, release, &nothing, place);
}

// Every lane brings a value and names the lane whose value it wants: its own, if that is out of its segment of `width`
// lanes. What it gets from a lane that takes no part is not defined: NaN here.
template <typename V>
struct Shuffle { V value, got; int from; };
template <typename V>
UNCHECKED static V shuffle(unsigned mask, V value, int from, Place place) {
  static_assert(std::is_arithmetic_v<V> || std::is_same_v<V, half>, "CUDA shuffles numbers only");
  Shuffle<V> lane = {value, value, from};
  auto exchange = [](void** lanes) UNCHECKED {
    for (unsigned l = 0; l < emulator::WARP; l++) {
      auto to = (Shuffle<V>*)lanes[l];
      if (!to) continue;
      if (auto source = (Shuffle<V>*)lanes[to->from]) to->got = source->value;
      else memset((void*)&to->got, 0xff, sizeof(V));
    }
  };
  emulator::meet(mask, exchange, &lane, place);
  return lane.got;
}
UNCHECKED static int own_lane() { return emulator::current->thread % emulator::WARP; }

template <typename V>
UNCHECKED static V __shfl_sync(unsigned mask, V v, int from, int width = 32, Place place = HERE) {
  return shuffle(mask, v, (own_lane() & -width) | (from & (width - 1)), place);
}
template <typename V>
UNCHECKED static V __shfl_xor_sync(unsigned mask, V v, int bits, int width = 32, Place place = HERE) {
  int lane = own_lane(), from = (lane ^ bits) & 31;
  return shuffle(mask, v, (from & -width) > (lane & -width) ? lane : from, place);
}
template <typename V>
UNCHECKED static V __shfl_down_sync(unsigned mask, V v, unsigned by, int width = 32, Place place = HERE) {
  int lane = own_lane();
  return shuffle(mask, v, (lane & (width - 1)) + by < unsigned(width) ? lane + int(by) : lane, place);
}
template <typename V>
UNCHECKED static V __shfl_up_sync(unsigned mask, V v, unsigned by, int width = 32, Place place = HERE) {
  int lane = own_lane();
  return shuffle(mask, v, unsigned(lane & (width - 1)) >= by ? lane - int(by) : lane, place);
}

struct Vote { bool yes; unsigned got; };
UNCHECKED static unsigned __ballot_sync(unsigned mask, int yes, Place place = HERE) {
  Vote lane = {yes != 0, 0};
  auto count = [](void** lanes) UNCHECKED {
    unsigned votes = 0;
    for (unsigned l = 0; l < emulator::WARP; l++)
      if (lanes[l] && ((Vote*)lanes[l])->yes) votes |= 1u << l;
    for (unsigned l = 0; l < emulator::WARP; l++)
      if (lanes[l]) ((Vote*)lanes[l])->got = votes;
  };
  emulator::meet(mask, count, &lane, place);
  return lane.got;
}
UNCHECKED static int __any_sync(unsigned mask, int yes, Place place = HERE) {
  return __ballot_sync(mask, yes, place) != 0;
}
UNCHECKED static int __all_sync(unsigned mask, int yes, Place place = HERE) {
  return __ballot_sync(mask, !yes, place) == 0;
}
// ------------------------------------------------------------------------------------------------------ tensor cores
// What kernels/tensor.cuh says, for all 32 lanes at once.

struct Matrices { unsigned* r; const char* row; };
template <bool TRANSPOSED>
UNCHECKED static void emulated_ldmatrix(unsigned (&r)[4], const void* row, Place place = HERE) {
  if ((size_t)row % 16) return emulator::fail("ldmatrix: a row is not at a multiple of 16 bytes");
  checker::read(row, 16, CALLER);
  Matrices lane = {r, (const char*)row};
  auto load = [](void** lanes) UNCHECKED {
    unsigned got[32][4];
    for (int l = 0; l < 32; l++)
      for (int i = 0; i < 4; i++)
        for (int half = 0; half < 2; half++) {
          const int row = TRANSPOSED ? l % 4 * 2 + half : l / 4, column = TRANSPOSED ? l / 4 : l % 4 * 2 + half;
          memcpy((char*)&got[l][i] + 2 * half, ((Matrices*)lanes[8 * i + row])->row + 2 * column, 2);
        }
    for (int l = 0; l < 32; l++) memcpy(((Matrices*)lanes[l])->r, got[l], 16);
  };
  emulator::meet(0xffffffffu, load, &lane, place);
}

struct Products { float* d[4]; const unsigned* a; unsigned b[2]; };
template <typename E>
UNCHECKED static void emulated_mma(float& d0, float& d1, float& d2, float& d3, const unsigned (&a)[4], unsigned b0,
                                   unsigned b1, E, Place place = HERE) {
  Products lane = {{&d0, &d1, &d2, &d3}, a, {b0, b1}};
  auto multiply = [](void** lanes) UNCHECKED {
    constexpr int EACH = 4 / sizeof(E), K = 8 * EACH;  // elements in 4 bytes; of k
    float a[16][K], b[K][8];
    auto number = [](unsigned bits, int i) UNCHECKED {
      E x;
      memcpy((void*)&x, (char*)&bits + i * sizeof(E), sizeof(E));
      return float(x);
    };
    for (int l = 0; l < 32; l++) {
      auto& of = *(Products*)lanes[l];
      const int g = l / 4, t = l % 4;
      for (int i = 0; i < EACH; i++) {
        const int k = t * EACH + i;
        for (int r = 0; r < 4; r++) a[g + r % 2 * 8][k + r / 2 * (K / 2)] = number(of.a[r], i);
        for (int r = 0; r < 2; r++) b[k + r * (K / 2)][g] = number(of.b[r], i);
      }
    }
    for (int l = 0; l < 32; l++)
      for (int i = 0; i < 4; i++) {
        float& sum = *((Products*)lanes[l])->d[i];
        double s = sum;
        for (int k = 0; k < K; k++) s += double(a[l / 4 + i / 2 * 8][k]) * b[k][l % 4 * 2 + i % 2];
        sum = float(s);
      }
  };
  emulator::meet(0xffffffffu, multiply, &lane, place);
}
UNCHECKED static unsigned emulated_tf32(float x) {
  const unsigned bits = __float_as_uint(x);
  return (bits & 0x7f800000) == 0x7f800000 ? bits : (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
}
UNCHECKED static unsigned emulated_bfloat16_pair(float low, float high) {
  auto upper = [](float x) UNCHECKED {
    const unsigned bits = __float_as_uint(x);
    return x != x ? 0x7fffu : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  };
  return upper(high) << 16 | upper(low);
}

// A copy may happen at any time between its beginning and the wait for it: with even schedules at once, so that what
// was to be read there before is lost; with odd ones at the wait, so that what does not wait reads what was there.
UNCHECKED static void emulated_copy(void* to, const void* from, bool exist) {
  if ((size_t)to % 16 || (exist && (size_t)from % 16)) return emulator::fail("cp.async: not a multiple of 16 bytes");
  auto& f = *emulator::current;
  if (exist) checker::read(from, 16, CALLER);
  checker::write(to, 16, CALLER);
  if (emulator::schedule & 1) {
    if (f.copy_count == emulator::MAX_COPIES) return emulator::fail("cp.async: too many copies on their way");
    f.copies[f.copy_count++] = {to, from, exist, f.group};
  } else if (exist) memcpy(to, from, 16);
  else memset(to, 0, 16);
}
UNCHECKED static void emulated_commit() { emulator::current->group++; }
template <int LATEST>
UNCHECKED static void emulated_wait() {
  auto& f = *emulator::current;
  int kept = 0;
  for (int i = 0; i < f.copy_count; i++) {
    const auto c = f.copies[i];
    if (c.group >= f.group - LATEST) f.copies[kept++] = c;
    else if (c.exist) memcpy(c.to, c.from, 16);
    else memset(c.to, 0, 16);
  }
  f.copy_count = kept;
}

#define __threadfence()
#define __threadfence_block()

// ------------------------------------------------------------------------------------------------------------ atomics
// One thread runs at a time, so plain code is atomic; the checker is told what it stands for.

template <typename V, typename F>
UNCHECKED static V atomically(V* p, F next) {
  checker::atomic(p, sizeof(V), CALLER);
  V before = *p;
  *p = next(before);
  return before;
}
#define ATOMIC(name, result) \
  template <typename V> \
  inline __attribute__((always_inline)) V name(V* p, std::common_type_t<V> v) { \
    return atomically(p, [=](V old) UNCHECKED { return V(result); }); \
  }
ATOMIC(atomicAdd, old + v)
ATOMIC(atomicSub, old - v)
ATOMIC(atomicMax, old < v ? v : old)
ATOMIC(atomicMin, v < old ? v : old)
ATOMIC(atomicExch, v)
#undef ATOMIC
template <typename V>
inline __attribute__((always_inline)) V atomicCAS(V* p, std::common_type_t<V> expected, std::common_type_t<V> v) {
  return atomically(p, [=](V old) UNCHECKED { return old == expected ? v : old; });
}

// --------------------------------------------------------------------------------------------------------------- math

using std::exp; using std::log; using std::log1p; using std::expm1; using std::tanh; using std::erf; using std::erfc;
using std::sqrt; using std::sin; using std::cos; using std::tan; using std::atan; using std::pow; using std::floor;
using std::ceil; using std::fabs; using std::isnan; using std::isinf; using std::isfinite; using std::copysign;
using std::fma; using std::fmax; using std::fmin; using std::fmod; using std::trunc; using std::rint;
inline float rsqrt(float x) { return 1 / std::sqrt(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline float max(float a, float b) { return std::fmax(a, b); }  // of a NaN and a number, the number
inline float min(float a, float b) { return std::fmin(a, b); }
inline double max(double a, double b) { return std::fmax(a, b); }
inline double min(double a, double b) { return std::fmin(a, b); }
template <typename V> inline std::enable_if_t<std::is_integral_v<V>, V> max(V a, V b) { return a < b ? b : a; }
template <typename V> inline std::enable_if_t<std::is_integral_v<V>, V> min(V a, V b) { return b < a ? b : a; }
template <typename V> inline V __ldg(const V* p) { return *p; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned long long)a * b >> 32; }

// ---------------------------------------------------------------------------------------------------------- launching

template <typename... A>
struct Call {
  void (*kernel)(A...);
  const char* packed;

  template <std::size_t... I>
  UNCHECKED void run(std::index_sequence<I...>) const {
    static constexpr Packed<A...> where;
    kernel(*(const std::remove_cv_t<A>*)(packed + where.at[I])...);
  }
  UNCHECKED static void of_thread(void* call) { ((Call*)call)->run(std::index_sequence_for<A...>()); }
};

template <typename... A>
UNCHECKED static int launch(void (*kernel)(A...), const unsigned* shape, unsigned long shared, const char* packed) {
  Call<A...> call = {kernel, packed};
  return emulator::run_grid(call.of_thread, &call, shape, shared);
}
