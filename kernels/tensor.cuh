// Products of small matrices on tensor cores: PTX's mma.sync and ldmatrix, of GPUs from sm_80 on.
//
// A warp multiplies (16, K) by (K, 8), where K is 16 halves or bfloat16s, or 8 floats. TF32 keeps 10 bits of a float
// after the point. The products are exact, and the sums are floats. A lane holds a Fragment of the 16 × K numbers of an
// operand. With g = lane / 4 and t = lane % 4, it is
//
//   r[0], r[1]   rows g and g + 8, in the t-th 4 bytes of the first 16 bytes of k: two halves or a float
//   r[2], r[3]   the same rows, in the other 16 bytes of k
//
// The columns of an operand on the right are the rows here. There are 16, for two products: {r[0], r[1]} are row g in
// the first and in the other 16 bytes, {r[2], r[3]} row g + 8. A lane holds four numbers of a sum: (g, 2t), (g, 2t +
// 1), (g + 8, 2t), (g + 8, 2t + 1).
//
// TENSOR is 1 for this; 2, if T is float, for factors that are rounded to bfloat16; and in attention also 0, for no
// tensor cores.
#pragma once
#include "common.cuh"

struct bfloat16 {
  unsigned short bits;  // the upper half of a float
  __device__ __forceinline__ explicit operator float() const { return __uint_as_float((unsigned)bits << 16); }
};

template <bool, typename A, typename B> struct Either { typedef A type; };
template <typename A, typename B> struct Either<false, A, B> { typedef B type; };
typedef Either<TENSOR == 2, bfloat16, T>::type Factor;  // the type that an mma multiplies

template <typename E> constexpr int K = 32 / sizeof(E);  // the K of an mma, see above

struct Fragment { unsigned r[4]; };

// d += a b. d holds a lane's four numbers in the order above.
__device__ __forceinline__ void multiply_add(float& d0, float& d1, float& d2, float& d3, const unsigned (&a)[4],
                                             unsigned b0, unsigned b1, half) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
               "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply_add(float& d0, float& d1, float& d2, float& d3, const unsigned (&a)[4],
                                             unsigned b0, unsigned b1, float) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
               "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void multiply_add(float& d0, float& d1, float& d2, float& d3, const unsigned (&a)[4],
                                             unsigned b0, unsigned b1, bfloat16) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
               "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8 × 8 matrices of 2 bytes, the rows of the i-th at the addresses of lanes 8i to 8i + 7. Of each a lane gets two
// neighbours of row g, or, transposed, of column g.
template <bool TRANSPOSED>
__device__ __forceinline__ void ldmatrix(unsigned (&r)[4], const void* row) {
  const unsigned at = (unsigned)__cvta_generic_to_shared(row);
  if (TRANSPOSED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

// The TF32 nearest to x. If two are as near, it is the even one, or before sm_90 the one further from 0.
__device__ __forceinline__ unsigned tf32(float x) {
  unsigned y;
#if __CUDA_ARCH__ >= 900
  asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
#else
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
#endif
  return y;
}

// The bfloat16s that are nearest to two numbers (of two as near, the even one), the first in the lower half.
__device__ __forceinline__ unsigned bfloat16_pair(float low, float high) {
  unsigned y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}

// 16 bytes on their way from global to shared memory, or zeros if they do not exist. What a thread has begun since it
// last committed is a group. It waits until no more than LATEST of its groups are on their way; other threads see what
// has arrived after a barrier.
__device__ __forceinline__ void copy_async(void* to, const void* from, bool exist) {
  const unsigned at = (unsigned)__cvta_generic_to_shared(to), bytes = exist ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(at), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LATEST>
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_group %0;" :: "n"(LATEST) : "memory"); }

// 2^x. The GPU's instruction has errors of up to two units in the last place, and gives 0 for results below 1e-38.
__device__ __forceinline__ float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The Fragment of rows from `row` on and k from `k` on, of an operand in shared memory; at(row, k) points to an
// element. ALONG: neighbours along k are contiguous, at least 16 aligned bytes of them; otherwise neighbouring rows
// are. RIGHT: for the operand on the right. Floats have been rounded to TF32 before.
template <bool RIGHT, bool ALONG, typename E, typename F>
__device__ __forceinline__ Fragment fragment(int row, int k, F at) {
  const int lane = threadIdx.x % 32;
  auto part = [&](int i, int row_in, int k_in) {  // the i-th quarter, which becomes r[i]
    return at(row + (RIGHT ? i / 2 : i % 2) * 8 + row_in, k + (RIGHT ? i % 2 : i / 2) * (K<E> / 2) + k_in);
  };
  Fragment f;
  if constexpr (ALONG) {
    ldmatrix<false>(f.r, part(lane / 8, lane % 8, 0));
  } else if constexpr (sizeof(E) == 2) {
    ldmatrix<true>(f.r, part(lane / 8, 0, lane % 8));
  } else {
    UNROLL for (int i = 0; i < 4; i++) f.r[i] = __float_as_uint(*part(i, lane / 4, lane % 4));
  }
  return f;
}

// The Fragments of 8 floats along k and of the next 8, joined to one Fragment of 16 bfloat16s. Two neighbours of a lane
// are then floats whose k differ by 4. This is the same in both operands, so equal k still meet.
template <bool RIGHT>
__device__ __forceinline__ Fragment joined(const Fragment& f, const Fragment& next) {
  auto pair = [](unsigned low, unsigned high) { return bfloat16_pair(__uint_as_float(low), __uint_as_float(high)); };
  if (RIGHT)
    return {{pair(f.r[0], f.r[1]), pair(next.r[0], next.r[1]), pair(f.r[2], f.r[3]), pair(next.r[2], next.r[3])}};
  return {{pair(f.r[0], f.r[2]), pair(f.r[1], f.r[3]), pair(next.r[0], next.r[2]), pair(next.r[1], next.r[3])}};
}
