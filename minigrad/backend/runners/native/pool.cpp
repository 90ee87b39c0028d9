// The threads that native kernels run on: one pool for the whole process, and nothing that any other library can see.
//
// A launch is `blocks` pieces of work that do not depend on each other. Its caller offers them to the workers as a job,
// and all take parts of it from one counter. Which thread computes a block makes no difference to its result. While the
// workers are busy with one caller's job, other callers do theirs alone: nobody waits for the job of another.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

namespace {

typedef void (*Work)(void* launch, long long first, long long last);

constexpr int PARTS = 8;  // of a job for each thread, so that a slow thread does fewer of them

// Pool::state: the number of the job << 32 | workers at it << 1 | may others still join?
constexpr unsigned long long OPEN = 1, WORKER = 2, JOB = 1ull << 32;

struct Pool {
  std::atomic_flag taken = ATOMIC_FLAG_INIT;  // by the caller whose job it is
  int workers = 0;                            // that have been started
  std::atomic<unsigned long long> state{0};
  Work work;  // these four change only while no worker is at the job and none can join
  void* launch;
  long long blocks, part;
  std::atomic<long long> next{0};  // the first block that nobody has taken
  std::mutex door;
  std::condition_variable wake;
  std::atomic<int> asleep{0};
};

Pool* pool = new Pool;  // never destroyed: at exit its workers are still waiting
int threads = 1;

void take_parts() {
  for (;;) {
    long long first = pool->next.fetch_add(pool->part, std::memory_order_relaxed);
    if (first >= pool->blocks) return;
    pool->work(pool->launch, first, std::min(first + pool->part, pool->blocks));
  }
}

// The state in which a job other than number `last` can be joined; waits for one, asleep. A worker that looked for jobs
// all the time would take its core from the workers of NumPy's OpenBLAS, which do so: on two cores a training step took
// 1.1 to 1.2 times as long.
unsigned long long next_job(unsigned long long last) {
  unsigned long long state;
  auto found = [&] { return ((state = pool->state.load()) & OPEN) && state / JOB != last; };
  if (found()) return state;
  std::unique_lock<std::mutex> lock(pool->door);
  pool->asleep++;  // before it looks again: a caller first opens its job and then looks who is asleep
  while (!found()) pool->wake.wait(lock);
  pool->asleep--;
  return state;
}

void* worker(void*) {
  for (unsigned long long state = 0;;) {
    state = next_job(state / JOB);
    unsigned long long number = state / JOB;
    while ((state & OPEN) && state / JOB == number)
      if (pool->state.compare_exchange_weak(state, state + WORKER)) {
        take_parts();
        pool->state.fetch_sub(WORKER);
        break;
      }
    state = number * JOB;
  }
}

// Signals are left to the threads that the program knows of. Where a thread cannot be had, there are fewer.
void start_workers() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (pool->workers < threads - 1) {
    pthread_t thread;
    if (pthread_create(&thread, nullptr, worker, nullptr)) break;
    pthread_detach(thread);
    pool->workers++;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

// Call work(launch, first, last) until blocks 0 to blocks - 1 have been done, each once.
extern "C" void run_blocks(Work work, void* launch, long long blocks) {
  if (blocks < 2 || threads < 2 || pool->taken.test_and_set()) return work(launch, 0, blocks);
  if (pool->workers < threads - 1) start_workers();
  pool->work = work;
  pool->launch = launch;
  pool->blocks = blocks;
  pool->part = std::max(1ll, blocks / (threads * PARTS));
  pool->next = 0;
  pool->state = (pool->state / JOB + 1) * JOB + OPEN;
  if (pool->asleep) {
    std::lock_guard<std::mutex> lock(pool->door);
    pool->wake.notify_all();
  }
  take_parts();
  pool->state &= ~OPEN;  // a worker that is late need not come any more
  for (int spins = 0; pool->state % JOB; spins++)
    if (spins > 1000) sched_yield();
  pool->taken.clear();
}

// A child of a fork has no workers, whatever they were doing: it begins with a new pool, which starts its own.
extern "C" void start_pool(int n) {
  threads = n;
  pthread_atfork(nullptr, nullptr, [] { pool = new Pool; });
}
