<<<<<<< HEAD
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
=======
"""How many floating-point operations this CPU can do: a loop of nothing but multiply-adds, on several threads at once.

    python tests/benchmarks/peak.py
"""

import functools
import threading
import time

from minigrad import backend
from minigrad.backend.runners.toolchain import load

FLAGS = ("-std=c++17", "-O3", "-march=native", "-w")
SUMS = 12  # that do not depend on each other: enough to keep two units busy at a latency of 4 to 6 cycles
STEPS = 1 << 16  # of a call: some 200 µs, in which other processes may leave a thread alone
SOURCE = """
#ifdef __AVX512F__
constexpr int BYTES = 64;
#elif defined(__AVX__)
constexpr int BYTES = 32;
#else
constexpr int BYTES = 16;
#endif

template <typename T>
static long run(long steps) {
  typedef T Vector __attribute__((vector_size(BYTES)));
  volatile T half = 0.5;  // so that the compiler does not know it
  Vector sums[SUMS] = {}, x = Vector{} + half, y = Vector{} + T(1);
  for (long i = 0; i < steps; i++)
    for (int s = 0; s < SUMS; s++) sums[s] = sums[s] * x + y;
  for (int s = 1; s < SUMS; s++) sums[0] += sums[s];
  volatile T kept = sums[0][0];
  return 2 * SUMS * steps * long(sizeof(Vector) / sizeof(T));
}
extern "C" long run_float32(long steps) { return run<float>(steps); }
extern "C" long run_float64(long steps) { return run<double>(steps); }
>>>>>>> 1af7ed5857837c3a08e9937bc98a6f83ce49f0c5
"""


@functools.cache
<<<<<<< HEAD
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
=======
def library():
    return load(SOURCE.replace("SUMS", str(SUMS)), FLAGS, "peak")


def peak_gflops(dtype="float32", threads=None, seconds=0.1):
    """GFLOP/s of all threads together, as many as the native backend has: each at its best while all of them run."""
    function = getattr(library(), f"run_{dtype}")
    threads = threads or getattr(backend.cpu(), "threads", 1)
    rates = []

    def work():
        end, best = time.perf_counter() + seconds, 0.0
        while (start := time.perf_counter()) < end:
            done = function(STEPS)  # ctypes lets other threads run meanwhile
            best = max(best, done / (time.perf_counter() - start))
        rates.append(best)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(rates) / 1e9


if __name__ == "__main__":
    for dtype in ("float32", "float64"):
        one, all_ = (peak_gflops(dtype, threads) for threads in (1, None))
        print(f"{dtype}: {one:.0f} GFLOP/s on one core, {all_:.0f} on all")
>>>>>>> 1af7ed5857837c3a08e9937bc98a6f83ce49f0c5
