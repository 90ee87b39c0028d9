// Helpers of all kernels. Kernels are written in CUDA C++ and compiled in two ways.
//
//   on a GPU      by NVRTC, which has no standard headers: no INFINITY, FLT_MAX or int32_t here
//   natively      for a CPU, by the system's C++ compiler, with one thread per block (blockDim is the constant 1), so
//                 that a loop over threadIdx.x becomes a plain loop, which vectorises; blocks are spread over the cores
//
// A kernel must therefore be right for any launch shape: its loops use the helpers below or stride by blockDim. (The
// threads of matmul and attention share tiles. Natively, gemm.cpp and attention.cpp replace them.) A file is compiled
// once for each dtype: T is the type of arrays, R the type of arithmetic (float where T is half). The NumPy backend
// defines what each primitive means. Names are those of the Python code: x, y, dy, dx; q, k, v; B, T, C, nh, hs.
#pragma once

#ifndef SIMD  // hints to a CPU's vectoriser: a sum or maximum may be taken in any order
#define SIMD
#define SIMD_SUM(...)
#define SIMD_MAX(m)
#endif
#ifndef UNROLL
#define UNROLL _Pragma("unroll")
#endif
#ifndef DYNAMIC_SHARED  // an array whose size the launch gives: DYNAMIC_SHARED(R, tiles);
#define DYNAMIC_SHARED(type, name)                              \
  extern __shared__ __align__(16) unsigned char shared_bytes[]; \
  type* name = reinterpret_cast<type*>(shared_bytes)
#endif
#define INF (R(1e300) * R(1e300))  // NVRTC has no INFINITY

#ifdef MINIGRAD_NATIVE
constexpr bool ONE_THREAD = true;  // blockDim.x is 1
#else
constexpr bool ONE_THREAD = false;  // a constant, so that a GPU's code has only one of the branches
#endif

// ------------------------------------------------------------------------------------------------------------- totals
// The type of a long sum while it is added up. A float loses digits as it grows: at 2^24, adding 1 no longer changes
// it. So natively, a sum of floats is a double. On a GPU, where doubles may be 64 times slower, it is two floats: the
// sum, and the part that rounding took from it (Knuth's TwoSum, The Art of Computer Programming 2, section 4.2.2). A
// sum of any other type is of that type.

template <typename V> struct Wide { typedef V type; };
#ifdef MINIGRAD_NATIVE
template <> struct Wide<float> { typedef double type; };
#endif

template <typename V>
struct Total {
  typename Wide<V>::type v;
  __device__ __forceinline__ void add(V x) { v += x; }
  __device__ __forceinline__ void add(Total x) { v += x.v; }
  __device__ __forceinline__ void scale(V factor) { v *= factor; }
  __device__ __forceinline__ explicit operator V() const { return V(v); }
  __device__ __forceinline__ Total from(unsigned mask, int lane) const { return {__shfl_xor_sync(mask, v, lane)}; }
};

#ifndef MINIGRAD_NATIVE
template <>
struct Total<float> {
  float v, lost;
  __device__ __forceinline__ float plus(float x) {  // returns what rounding took
    const float before = v;
    v = before + x;
    const float added = v - before;
    return (before - (v - added)) + (x - added);
  }
  __device__ __forceinline__ void add(float x) { lost += plus(x); }
  __device__ __forceinline__ void add(Total x) {
    lost += x.lost;
    lost += plus(x.v);
  }
  __device__ __forceinline__ void scale(float factor) { v *= factor, lost *= factor; }
  __device__ __forceinline__ explicit operator float() const {
    const float both = v + lost;
    return both == both ? both : v;  // when v is ∞, `lost` is NaN
  }
  __device__ __forceinline__ Total from(unsigned mask, int lane) const {
    return {__shfl_xor_sync(mask, v, lane), __shfl_xor_sync(mask, lost, lane)};
  }
};
#endif

template <typename V>
__device__ __forceinline__ Total<V> __shfl_xor_sync(unsigned mask, Total<V> total, int lane) {
  return total.from(mask, lane);
}
template <typename V>
__device__ __forceinline__ Total<V> sum_of(Total<V> a, Total<V> b) {
  a.add(b);
  return a;
}

// ------------------------------------------------------------------------------------------------- loops of a block
// All threads of a block call these. There is 1, or a power of 2 from 32 to 1024. In a 2-D block each row of threads
// has a loop of its own, and is a warp or a part of one.

// f(i) for each i in [0, n), distributed over the block's threads: neighbouring i go to neighbouring threads.
template <typename F>
__device__ __forceinline__ void each(long long n, F f) {
  SIMD for (long long i = threadIdx.x; i < n; i += blockDim.x) f(i);
}

// On a GPU: take(f(i)) for each i in [first, n), `step` apart, in order. Several f load at the same time.
template <typename F, typename Take>
__device__ __forceinline__ void each_ahead(long long first, long long n, long long step, F f, Take take) {
  constexpr int AT_ONCE = 8;
  long long i = first;
  for (; i + (AT_ONCE - 1) * step < n; i += AT_ONCE * step) {
    decltype(f(i)) v[AT_ONCE];
    UNROLL for (int k = 0; k < AT_ONCE; k++) v[k] = f(i + k * step);
    UNROLL for (int k = 0; k < AT_ONCE; k++) take(v[k]);
  }
  for (; i < n; i += step) take(f(i));
}

// The v of all threads, combined by op, in every thread. The order is always the same.
template <typename V, typename Op>
__device__ __forceinline__ V block_combine(V v, Op op) {
  if (ONE_THREAD) return v;
  const unsigned threads = blockDim.x < 32 ? blockDim.x : 32;
  const unsigned mask = 0xffffffffu >> (32 - threads) << threads * threadIdx.y % 32;
  for (int lane = threads / 2; lane > 0; lane /= 2) v = op(v, __shfl_xor_sync(mask, v, lane));
  if (blockDim.x <= 32) return v;
  __shared__ V warps[32];
  __syncthreads();  // all threads have read `warps` of the previous call
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = v;
  __syncthreads();
  const int count = blockDim.x / 32;
  v = warps[threadIdx.x % count];  // each warp joins all of them, which takes less time than another barrier
  for (int lane = count / 2; lane > 0; lane /= 2) v = op(v, __shfl_xor_sync(0xffffffffu, v, lane));
  return v;
}

// The row of this thread, in a grid of `rows` in launcher.py. In the last block it may lie beyond the last row.
__device__ __forceinline__ long long own_row() { return (long long)blockIdx.x * blockDim.y + threadIdx.y; }

constexpr int ROW_THREADS = 512;  // the most that a block has for a row (launcher.py: row_threads), of 128 registers

template <int N> struct Count { static constexpr int value = N; };  // a constant to hand to a function

// term(first) + … + term(first + N - 1), for N a power of 2, as a tree: pairs, then pairs of pairs, and so on.
template <int N, typename F>
__device__ __forceinline__ auto tree(F term, int first = 0) {
  if constexpr (N == 1) return term(first);
  else return tree<N / 2>(term, first) + tree<N / 2>(term, first + N / 2);
}

// The same sum one term after the other: cheaper where the terms are products, which can become fused multiply-adds.
template <int N, typename F>
__device__ __forceinline__ auto chain(F term) {
  if constexpr (N == 1) return term(0);
  else return chain<N - 1>(term) + term(N - 1);
}

// A vector register holds half as many doubles as floats. So natively, LANES sums run side by side as floats. After RUN
// numbers each, few enough to lose no more than the last digit, they are added to a Total.
constexpr int RUN = 8, LANES = 64;

// The end of the run that begins at i, of n numbers. At least LANES numbers are left.
__device__ __forceinline__ long long run_end(long long i, long long n) {
  const long long left = (n - i) / LANES;
  return i + (left < RUN ? left : RUN) * LANES;
}
template <typename V>
__device__ __forceinline__ V lanes_sum(V (&lane)[LANES]) {
  UNROLL for (int half = LANES / 2; half > 0; half /= 2) {
    SIMD for (int l = 0; l < half; l++) lane[l] += lane[l + half];
  }
  return lane[0];
}

// Σ f(i) over i in [0, n), accumulated in a Total<V>, in every thread. f(i) may also write element i of an array.
template <typename V = R, typename F>
__device__ __forceinline__ V sum(long long n, F f) {
  if (ONE_THREAD) {
    Total<V> s = {};
    long long i = 0;
    while (n - i >= LANES) {
      V lane[LANES] = {};
      for (const long long end = run_end(i, n); i < end; i += LANES) {
        SIMD for (int l = 0; l < LANES; l++) lane[l] += f(i + l);
      }
      s.add(lanes_sum(lane));
    }
    if (i == n) return V(s);
    V rest = 0;
    SIMD_SUM(rest) for (long long j = i; j < n; j++) rest += f(j);
    s.add(rest);
    return V(s);
  }
  Total<V> s = {};
  each_ahead(threadIdx.x, n, blockDim.x, f, [&](V v) { s.add(v); });
  return V(block_combine(s, [](Total<V> a, Total<V> b) { return sum_of(a, b); }));
}

// The largest f(i) over i in [0, n), in every thread; -∞ for n = 0. NaN is ignored.
template <typename F>
__device__ __forceinline__ R largest(long long n, F f) {
  R m = -INF;
  SIMD_MAX(m) for (long long i = threadIdx.x; i < n; i += blockDim.x) { R v = f(i); m = m < v ? v : m; }
  return block_combine(m, [](R a, R b) { return a < b ? b : a; });
}

// ------------------------------------------------------------------------------------------------- loops of the grid

// f(i) for each i in [0, n), distributed over the whole 1-D grid. On a GPU neighbouring i go to neighbouring threads,
// so that a warp's accesses coalesce. Natively each block gets a run of neighbours, so its accesses are sequential.
template <typename F>
__device__ __forceinline__ void grid_each(long long n, F f) {
  if (ONE_THREAD) {
    long long chunk = (n + gridDim.x - 1) / gridDim.x, first = chunk * blockIdx.x;
    long long end = first + chunk < n ? first + chunk : n;
    SIMD for (long long i = first; i < end; i++) f(i);
  } else {
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) f(i);
  }
}

// f(i, j) for each j in [0, n) of each row i in [0, rows), distributed in the same way.
template <typename F>
__device__ __forceinline__ void grid_rows(long long rows, long long n, F f) {
  if (ONE_THREAD) {
    long long chunk = (rows + gridDim.x - 1) / gridDim.x, first = chunk * blockIdx.x;
    long long end = first + chunk < rows ? first + chunk : rows;
    for (long long i = first; i < end; i++) {
      SIMD for (long long j = 0; j < n; j++) f(i, j);
    }
  } else {
    grid_each(rows * n, [&](long long place) {
      long long i = place / n;
      f(i, place - i * n);
    });
  }
}
