// The arithmetic of PTX that C++ has no operator for. instructions.py says which instruction is which.
#pragma once
#include <math.h>
#include <type_traits>
#include "thread.h"

template <int BYTES>
struct Unsigned;
template <>
struct Unsigned<1> {
  typedef u8 type;
};
template <>
struct Unsigned<2> {
  typedef u16 type;
};
template <>
struct Unsigned<4> {
  typedef u32 type;
};
template <>
struct Unsigned<8> {
  typedef u64 type;
};

// ---- registers: they hold bits, which an instruction reads and writes as one of its types

template <class T, class Register>
static inline T read(Register bits) {
  if constexpr (std::is_same_v<T, bool>)
    return (bool)bits;
  else {
    const typename Unsigned<sizeof(T)>::type low = (typename Unsigned<sizeof(T)>::type)bits;
    T value;
    memcpy(&value, &low, sizeof value);
    return value;
  }
}

template <class T, class Register>
static inline void write(Register &bits, T value) {
  if constexpr (std::is_same_v<T, bool> || std::is_integral_v<T>)
    bits = (Register)value;  // signed ones are extended
  else {
    typename Unsigned<sizeof(T)>::type low;
    memcpy(&low, &value, sizeof low);
    bits = low;
  }
}

// ---- float

static inline f32 ftz(f32 x) { return fabsf(x) < 1.17549435e-38f ? copysignf(0.0f, x) : x; }
static inline u32 to_tf32(u32 bits) {  // to the nearest, of two the even one; infinities and NaN stay
  return (bits & 0x7f800000) == 0x7f800000 ? bits : (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
}
static inline u32 to_bf16(u32 bits) {  // the 16 bits; NaNs are one NaN
  return (bits & 0x7fffffff) > 0x7f800000 ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
static inline f32 saturate(f32 x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }  // NaN to 0

template <class T>
static inline T canonical(T x) {  // arithmetic gives one NaN, whatever NaNs went in
  if constexpr (sizeof(T) == 4) {
    const u32 nan = 0x7fffffff;
    return x == x ? x : read<f32>(nan);
  } else if constexpr (sizeof(T) == 2) {
    const u16 nan = 0x7fff;
    return x == x ? x : read<f16>(nan);
  } else {
    const u64 nan = 0x7ff8000000000000;
    return x == x ? x : read<f64>(nan);
  }
}

// A NaN loses against a number, and -0 is less than 0.
template <class T>
static inline T minimum(T a, T b) {
  if (a != a) return canonical(b);
  if (b != b) return a;
  return a < b || (a == b && __builtin_signbit((f64)a)) ? a : b;
}
template <class T>
static inline T maximum(T a, T b) {
  if (a != a) return canonical(b);
  if (b != b) return a;
  return a > b || (a == b && !__builtin_signbit((f64)a)) ? a : b;
}

// a + b, rounded towards zero. In f64 the sum is off by a rounding error, which is known exactly.
static inline f32 add_towards_zero(f32 a, f32 b) {
  const f64 x = a, y = b, sum = x + y, part = sum - x, error = (x - (sum - part)) + (y - part);
  const f32 near = (f32)sum;
  const bool beyond = near > 0 ? near > sum || (near == sum && error < 0) : near < sum || (near == sum && error > 0);
  return near != 0 && beyond ? nextafterf(near, 0.0f) : near;
}

// a * b + c rounded towards -inf. The product is exact in f64; the sum may not be, so what it lost decides too.
static inline f32 fma_down(f32 a, f32 b, f32 c) {
  const f64 product = (f64)a * b, sum = product + c;
  if (!(fabs(sum) < INFINITY)) return (f32)sum;
  const f64 part = sum - product, lost = (product - (sum - part)) + ((f64)c - part);
  const f32 near = (f32)sum;
  return near > sum || (near == sum && lost < 0) ? nextafterf(near, -INFINITY) : near;
}

// Float to integer: rounded as asked before, limited to what T has. NaN is 0, or with 64 bits on either side 1 << 63.
template <class T, class F>
static inline T to_integer(F x) {
  constexpr bool is_signed = std::is_signed_v<T>;
  constexpr T low = is_signed ? (T)((u64)1 << (8 * sizeof(T) - 1)) : 0, high = (T)(is_signed ? ~low : ~(T)0);
  if (x != x) return sizeof(F) == 8 || sizeof(T) == 8 ? (T)((u64)1 << (8 * sizeof(T) - 1)) : 0;
  if ((long double)x <= (long double)low) return low;
  if ((long double)x >= (long double)high) return high;
  return (T)x;
}

// ---- integers

template <class T>
static inline T divide(T a, T b) {  // by zero: all ones
  if (b == 0) return (T) ~(u64)0;
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return (T)(0 - (u64)a);
  return a / b;
}
template <class T>
static inline T remainder_of(T a, T b) {
  if (b == 0) return a;
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return 0;
  return a % b;
}

template <class T>
static inline T shift_left(T a, u32 by) {
  return by >= 8 * sizeof(T) ? 0 : (T)(a << by);
}
template <class T>
static inline T shift_right(T a, u32 by) {  // of a signed number: with copies of its sign
  return by >= 8 * sizeof(T) ? (T)(a < 0 ? -1 : 0) : (T)(a >> by);
}
static inline u32 funnel_left(u32 low, u32 high, u32 by) { return (u32)((((u64)high << 32 | low) << by) >> 32); }
static inline u32 funnel_right(u32 low, u32 high, u32 by) { return (u32)(((u64)high << 32 | low) >> by); }

template <class T>
static inline T multiply_high(T a, T b) {
  typedef std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128> Wide;
  return (T)(((Wide)a * (Wide)b) >> (8 * sizeof(T)));
}

// Sums with the carry flag: `set` says whether .cc leaves it changed.
template <class T>
static inline T add_carry(Thread &t, T a, T b, bool carry, bool set) {
  const unsigned __int128 sum = (unsigned __int128)a + b + carry;
  if (set) t.carry = (sum >> (8 * sizeof(T))) & 1;
  return (T)sum;
}
template <class T>
static inline T subtract_borrow(Thread &t, T a, T b, bool borrow, bool set) {
  const unsigned __int128 difference = (unsigned __int128)a - b - borrow;
  if (set) t.carry = (difference >> (8 * sizeof(T))) & 1;
  return (T)difference;
}

static inline u32 permute_bytes(u32 a, u32 b, u32 which) {  // four of the eight bytes of a and b, or their sign
  const u64 both = (u64)b << 32 | a;
  u32 y = 0;
  for (int i = 0; i < 4; i++) {
    const u32 one = which >> 4 * i, byte = (u32)(both >> 8 * (one & 7)) & 255;
    y |= (one & 8 ? (byte >> 7) * 255 : byte) << 8 * i;
  }
  return y;
}
template <class T>
static inline T insert_bits(T a, T b, u32 from, u32 count) {  // a's low bits into b
  from &= 255, count &= 255;
  constexpr u32 width = 8 * sizeof(T);
  if (from >= width || !count) return b;
  const T mask = shift_left<T>(count >= width ? (T) ~(T)0 : (T)(((T)1 << count) - 1), from);
  return (T)((b & ~mask) | (shift_left<T>(a, from) & mask));
}
template <class T>
static inline T extract_bits(T a, u32 from, u32 count) {  // of a signed number: extended
  from &= 255, count &= 255;
  typedef typename Unsigned<sizeof(T)>::type U;
  constexpr u32 width = 8 * sizeof(T);
  const u32 last = from + count - 1 < width - 1 ? from + count - 1 : width - 1;
  const bool sign = std::is_signed_v<T> && count && ((U)a >> last & 1);
  const U mask = count >= width ? (U) ~(U)0 : (U)(((U)1 << count) - 1);
  U bits = shift_right<U>((U)a, from) & mask;
  const u32 present = from >= width ? 0 : (width - from < count ? width - from : count);
  if (sign && present < width) bits |= (U) ~(U)0 << present;
  return (T)bits;
}
template <class T>
static inline u32 leading_zeros(T a) {
  return a ? (u32)__builtin_clzll((u64)a) - (64 - 8 * sizeof(T)) : 8 * sizeof(T);
}
template <class T>
static inline T reversed(T a) {
  T bits = 0;
  for (u32 i = 0; i < 8 * sizeof(T); i++) bits = (T)(bits << 1 | (a >> i & 1));
  return bits;
}
