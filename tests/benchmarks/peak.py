"""The most float32 GFLOP/s that this CPU does: multiply-adds in registers, on all cores.

    python tests/benchmarks/peak.py

Compiled as minigrad's kernels are, so for the widest vectors there are. No step can take less than its FLOPs at this
rate.
"""

import ctypes
import functools
import os
import sys

FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-pthread", "-w")
ITERATIONS = 4_000_000  # about 10 ms, whatever the width of a vector
SOURCE = """
#include <chrono>
#include <thread>
#include <vector>
#if defined __AVX512F__
constexpr int bytes = 64;
#elif defined __AVX__
constexpr int bytes = 32;
#else
constexpr int bytes = 16;
#endif
typedef float V __attribute__((vector_size(bytes)));
constexpr int chains = 12;  // more than a unit's latency × the units; with two operands they fit in 16 registers

static void work(long n, float* out) {
  V a[chains], x = V{} + 0.999f, y = V{} + 1e-3f;
  for (int i = 0; i < chains; i++) a[i] = V{} + (float)i;
  for (long k = 0; k < n; k++)
#pragma GCC unroll 12
    for (int i = 0; i < chains; i++) a[i] = a[i] * x + y;
  for (int i = 1; i < chains; i++) a[0] += a[i];
  *out = a[0][0];
}

extern "C" double gflops(int threads, long n) {
  std::vector<std::thread> team;
  std::vector<float> sums(threads);
  auto start = std::chrono::steady_clock::now();
  for (int i = 1; i < threads; i++) team.emplace_back(work, n, &sums[i]);
  work(n, &sums[0]);
  for (auto& thread : team) thread.join();
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return 2e-9 * threads * n * chains * (bytes / sizeof(float)) / seconds.count();
}
"""


@functools.cache
def _loop():
    from minigrad.backend.runners.toolchain import load

    function = load(SOURCE, FLAGS, "peak").gflops
    function.argtypes, function.restype = (ctypes.c_int, ctypes.c_long), ctypes.c_double
    return function


def peak_gflops(samples=20, threads=None):
    """float32 GFLOP/s of multiply-adds (two operations each), the best of several samples of about 10 ms.

    threads: None is one for each core that this process may use. Raises minigrad's CompilerError without a compiler."""
    threads = threads or len(os.sched_getaffinity(0))
    return max(_loop()(threads, ITERATIONS) for _ in range(samples))


def main():
    if sys.argv[1:] == ["--worker"]:
        from workers import serve

        serve(lambda: (peak_gflops(), lambda samples: [peak_gflops(samples)]))
    else:
        print(f"{peak_gflops():.0f} GFLOP/s")


if __name__ == "__main__":
    main()
