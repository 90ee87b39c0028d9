// Elementwise primitives: y = f(a), f(a, b) or f(a, b, c) at every place of arrays of any strides, broadcast.
//
//   layout   y and those operands that are arrays, in this order. A null pointer stands for the number passed beside it
//   launch   1-D, as for map_places. y may be a or b itself (in place), so nothing is __restrict__ here
//   equals   np.add(a, b), np.exp(a), np.where(a, b, c), …
//
// minigrad/backend/launch/source.py generates the entry points from the table of formulas at the end of this file, and
// appends them to it, for each dtype those that support it:
//
//   extern "C" __global__ void add_kernel(T* y, const T* a, const T* b, double na, double nb, Layout layout) {
//     map2<R>(y, a, b, na, nb, layout, [=](R a, R b) { return a + b; });
//   }
#include "layout.cuh"

// --------------------------------------------------------------------------------------------------------- functions
// Called by the table's formulas. They are templates because, for integers, most are neither needed nor correct.

template <typename X>
__device__ __forceinline__ X larger(X a, X b) { return a > b || a != a ? a : b; }  // NaN if either is

template <typename X>
__device__ __forceinline__ X smaller(X a, X b) { return a < b || a != a ? a : b; }

// a within [low, high]; a NaN stays. (Written as smaller(larger(a, low), high), a CPU's loop would not vectorise.)
template <typename X>
__device__ __forceinline__ X clamped(X a, X low, X high) {
  const X x = a <= low ? low : a;
  return x >= high ? high : x;
}

// a^b of integers, exact modulo 2^bits. A negative power is the true value truncated: 0 unless a = ±1.
template <typename X>
__device__ __forceinline__ X whole_power(X a, X b) {
  if (b < 0) return a == 1 ? X(1) : a == X(-1) ? (b & 1 ? a : X(1)) : X(0);
  unsigned long long y = 1, square = a;
  for (unsigned long long rest = b; rest; rest >>= 1, square *= square) if (rest & 1) y *= square;
  return X(y);
}

// fmod, which is exact. A function of its own, as it is a long loop, which would else be in this file a dozen times.
template <typename X>
__attribute__((noinline)) __device__ X rest(X a, X b) { return X(fmod(double(a), double(b))); }

// ⌊a / b⌋ and a - b ⌊a / b⌋ of floats, as Python's // and %. a - fmod(a, b) is a multiple of b, so the quotient is
// whole up to rounding.
template <typename X>
__device__ __forceinline__ X floored_remainder(X a, X b) {
  const X r = rest(a, b);
  return r == 0 ? copysign(r, b) : (r < 0) != (b < 0) ? r + b : r;
}

template <typename X>
__device__ __forceinline__ X floored_quotient(X a, X b) {
  if (b == 0) return a / b;
  const X r = rest(a, b);
  const X q = (a - r) / b - ((r < 0) != (b < 0) && r != 0), y = floor(q);
  return q == 0 ? copysign(X(0), a / b) : q - y > X(0.5) ? y + 1 : y;
}

// The same of integers. What a CPU would trap is 0 (by 0) or wraps around (the smallest by -1).
template <typename X>
__device__ __forceinline__ X whole_quotient(X a, X b) {
  if (b == 0) return 0;
  if (X(-1) < X(0) && b == X(-1)) return X(0ull - (unsigned long long)a);
  return a / b - ((a % b != 0) && (a < 0) != (b < 0));
}

template <typename X>
__device__ __forceinline__ X whole_remainder(X a, X b) {
  if (b == 0 || (X(-1) < X(0) && b == X(-1))) return 0;
  const X r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

template <typename X>
__device__ __forceinline__ X sigmoid(X x) {  // by e^-|x|, which cannot overflow
  X e = exp(-fabs(x));
  return (x >= 0 ? X(1) : e) / (1 + e);
}

// x σ(x). For x < 0, x e^x keeps digits where e^x alone would underflow.
template <typename X>
__device__ __forceinline__ X silu(X x) {
  X e = exp(-fabs(x));
  return (x >= 0 ? x : x * e) / (1 + e);
}

// gelu(x) = x Φ(x). In double, Φ comes from erfc, which is accurate where Φ is tiny. In float it comes from erf, which
// is faster, and whose error there is an absolute 1e-7.
template <typename X>
__device__ __forceinline__ X gelu_none(X x) {
  const X root = X(0.70710678118654752);
  return sizeof(X) == 8 ? x * (X(0.5) * erfc(-x * root)) : x * (X(0.5) * (1 + erf(x * root)));
}

// (1 + tanh(u/2)) / 2 = σ(u), with u = 2 √(2/π) (x + 0.044715 x³), and exp is half the work of tanh. If it overflows,
// x / ∞ is 0, which is correct.
template <typename X>
__device__ __forceinline__ X gelu_tanh(X x) {
  const X slope = X(1.5957691216057308), bend = X(0.044715 * 1.5957691216057308);
  return x / (1 + exp(-x * (slope + bend * (x * x))));
}

// dy/dx = Φ(x) + x Φ'(x).
template <typename X>
__device__ __forceinline__ X gelu_slope_none(X x, X y) {  // Φ' = exp(-x²/2) / √(2π)
  X cdf = fabs(x) < X(1e-30) ? X(0.5) : y / x;            // from y, unless x is so small that y has lost digits
  return cdf + x * exp(X(-0.5) * x * x) * X(0.39894228040143268);
}

// Φ = σ(u) = 1 / (1 + e^-u), so Φ' = Φ (1 - Φ) u'. 1 - Φ is e^-u Φ: subtracting would lose digits where Φ is nearly 1.
template <typename X>
__device__ __forceinline__ X gelu_slope_tanh(X x) {
  const X slope = X(1.5957691216057308), bend = X(0.044715 * 1.5957691216057308);
  const X most = sizeof(X) == 8 ? 21 : 10;  // beyond, the slope is 0 or 1, and x² and e^-u would overflow
  if (x < -most) return 0;
  x = x > most ? most : x;
  const X square = x * x, e = exp(-x * (slope + bend * square)), cdf = 1 / (1 + e);
  return cdf + x * (e * cdf) * cdf * (slope + 3 * bend * square);
}

// -------------------------------------------------------------------------------------------------------------- maps
// f at every place of a layout. X is the type that operands are converted to first. Which operands are numbers is
// decided outside the loops, so that each loop is a plain one over arrays.

template <typename X, typename Y, typename F>
__device__ __forceinline__ void map1(Y* y, const T* a, const Layout& layout, F f) {
  map_places(layout, [=](T a) { return Y(f(X(a))); }, y, a);
}

template <typename X, typename Y, typename N, typename F>
__device__ __forceinline__ void map2(Y* y, const T* a, const T* b, N na, N nb, const Layout& layout, F f) {
  const X left = X(na), right = X(nb);
  if (!b) map_places(layout, [=](T a) { return Y(f(X(a), right)); }, y, a);
  else if (!a) map_places(layout, [=](T b) { return Y(f(left, X(b))); }, y, b);
  else map_places(layout, [=](T a, T b) { return Y(f(X(a), X(b))); }, y, a, b);
}

template <typename X, typename F>
__device__ __forceinline__ void map3(T* y, const T* a, const T* b, const T* c, const Layout& layout, F f) {
  map_places(layout, [=](T a, T b, T c) { return T(f(X(a), X(b), X(c))); }, y, a, b, c);
}

// y = b where a, else c. Both are read, and the bools are read as bytes, so that a CPU can select eight at a time.
template <typename N>
__device__ __forceinline__ void choose(T* y, const bool* bools, const T* b, const T* c, N nb, N nc,
                                       const Layout& layout) {
  typedef unsigned char Byte;
  const Byte* a = reinterpret_cast<const Byte*>(bools);
  const T then = T(nb), other = T(nc);
  if (!b && !c) map_places(layout, [=](Byte a) { return a ? then : other; }, y, a);
  else if (!c) map_places(layout, [=](Byte a, T b) { return a ? b : other; }, y, a, b);
  else if (!b) map_places(layout, [=](Byte a, T c) { return a ? then : c; }, y, a, c);
  else map_places(layout, [=](Byte a, T b, T c) { return a ? b : c; }, y, a, b, c);
}

// ---------------------------------------------------------------------------------------------------------- formulas
/* FORMULAS
# name, the dtypes it is for (f floats, i integers, b bools; =b: gives bools), and y of operands a, b, c of type R; after
# "ints:" y of integers and bools, where that is another. nb and nc are b and c where those are always numbers.
add                 fib    a + b
sub                 fi     a - b
mul                 fib    a * b
div                 f      a / b
neg                 fi     -a
abs                 fib    fabs(a)  ints: a < 0 ? -a : a
sign                fi     a > 0 ? R(1) : a < 0 ? R(-1) : a == 0 ? R(0) : a
floor               fib    floor(a)  ints: a
round               fib    rint(a)  ints: a
maximum             fib    larger(a, b)
minimum             fib    smaller(a, b)
clamp               fi     clamped(a, R(nb), R(nc))
where               fib    a ? b : c
pow                 fi     pow(a, b)  ints: whole_power(a, b)
floor_divide        fi     floored_quotient(a, b)  ints: whole_quotient(a, b)
remainder           fi     floored_remainder(a, b)  ints: whole_remainder(a, b)
sqrt                f      sqrt(a)
rsqrt               f      R(1) / sqrt(a)
exp                 f      exp(a)
log                 f      log(a)
log1p               f      log1p(a)
sin                 f      sin(a)
cos                 f      cos(a)
tanh                f      tanh(a)
erf                 f      erf(a)
erfc                f      erfc(a)
relu                fi     larger(a, R(0))
sigmoid             f      sigmoid(a)
silu                f      silu(a)
eq                  fib=b  a == b
ne                  fib=b  a != b
lt                  fib=b  a < b
le                  fib=b  a <= b
gt                  fib=b  a > b
ge                  fib=b  a >= b
logical_and         fib=b  a != 0 && b != 0
logical_or          fib=b  a != 0 || b != 0
logical_not         fib=b  a == 0
bitwise_and         ib     a & b
bitwise_or          ib     a | b
bitwise_xor         ib     a ^ b
bitwise_not         i      ~a
isnan               fib=b  a != a  ints: false
isinf               fib=b  fabs(a) == INF  ints: false
isfinite            fib=b  fabs(a) < INF  ints: true

# Forms of a primitive, which chooses one by its other arguments: pow(x, 2) is square, gelu(x, "tanh") is gelu_tanh.
one                 f      R(1)
same                f      a
square              f      a * a
cube                f      a * a * a
reciprocal          f      R(1) / a
gelu_none           f      gelu_none(a)
gelu_tanh           f      gelu_tanh(a)
gelu_backward_none  f      a * gelu_slope_none(b, c)
gelu_backward_tanh  f      a * gelu_slope_tanh(b)
*/
