// CUDA's words that mean the same natively and emulated, and how the arguments of a launch lie in memory.
#pragma once
#include <cmath>
#include <cstddef>
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

// Where each argument begins: one after the other, each at a multiple of 8 bytes.
template <typename... A>
struct Packed {
  std::size_t at[sizeof...(A) + 1] = {0};
  constexpr Packed() {
    const std::size_t sizes[] = {((sizeof(A) + 7) & ~std::size_t(7))..., 0};
    for (std::size_t i = 0; i < sizeof...(A); i++) at[i + 1] = at[i] + sizes[i];
  }
};
