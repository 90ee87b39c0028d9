"""How many floating-point operations this CPU can do: a loop of nothing but multiply-adds, on several threads at once.

python tests/benchmarks/peak.py
"""

import functools
import sys
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
  Vector sums[SUMS], x = Vector{} + half, y = Vector{} + T(1);
  for (int s = 0; s < SUMS; s++) sums[s] = Vector{} + T(s);  // equal ones would be computed once
  for (long i = 0; i < steps; i++)
    for (int s = 0; s < SUMS; s++) sums[s] = sums[s] * x + y;
  for (int s = 1; s < SUMS; s++) sums[0] += sums[s];
  volatile Vector kept = sums[0];
  return 2 * SUMS * steps * long(sizeof(Vector) / sizeof(T));
}
extern "C" long run_float32(long steps) { return run<float>(steps); }
extern "C" long run_float64(long steps) { return run<double>(steps); }
"""


@functools.cache
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


def main():
    if sys.argv[1:] == ["--worker"]:  # of train_step.py
        from workers import serve

        serve(lambda: (peak_gflops(), lambda samples: [peak_gflops(seconds=0.02) for _ in range(samples)]))
        return
    for dtype in ("float32", "float64"):
        one, all_ = (peak_gflops(dtype, threads) for threads in (1, None))
        print(f"{dtype}: {one:.0f} GFLOP/s on one core, {all_:.0f} on all")


if __name__ == "__main__":
    main()
