// One pool of threads for NumPy's OpenBLAS and our kernels. With a pool each, the workers of one spin for the cores that
// the other wants: a matmul of 520 µs and a softmax of 62 µs took 8 ms together.
#include <cstddef>
#include <omp.h>

// What OpenBLAS calls to run its jobs. They wait for each other, so each needs a thread of its own at once.
extern "C" void run_jobs(int, void (*job)(int, void*, int), int jobs, std::size_t size, void* data, int extra) {
#pragma omp parallel for schedule(static, 1) num_threads(jobs)
  for (int i = 0; i < jobs; i++) job(i, (char*)data + i * size, extra);
}

// The most threads that a parallel region can have.
extern "C" int thread_limit() {
  omp_set_dynamic(0);  // and it is sure to get them
  return omp_get_thread_limit();
}

// The threads that a parallel region has by default: OMP_NUM_THREADS, or as many as this process has cores.
extern "C" int threads() { return omp_get_max_threads(); }
extern "C" void set_threads(int n) { omp_set_num_threads(n); }
