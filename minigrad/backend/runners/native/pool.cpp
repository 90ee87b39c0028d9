// The threads that native kernels run on: one pool for the whole process, which no other library can see. At the end of
// this file, a setting of the C library's malloc.
//
// A launch is `blocks` pieces of work that do not depend on each other. Its caller offers them to the workers as a job,
// and all of them take parts of it from one counter. The result of a block does not depend on the thread that computes
// it. While the workers are busy with the job of one caller, other callers do their jobs alone: nobody waits for
// another's.
//
// If other processes need the cores, a worker may lose its core for milliseconds, in the middle of a part that the
// caller then has to wait for. So the time of each job is compared with the time that its caller would have taken
// alone, which is estimated from the time that it was on a core for its own part. Time that was won is saved, up to
// SAVINGS, and time that was lost is paid from the savings, so that a single delay changes nothing. After a loss that
// the savings do not cover, callers compute alone for PATIENCE times as long. So losses are at most about 1 / PATIENCE
// of all time, however great the load is, and the workers return soon after it has gone. A loss of more than SLICE does
// not count: the whole machine stood still, as virtual ones do, or the process was stopped.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <pthread.h>
#include <signal.h>
#include <thread>
#include <time.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace {

typedef void (*Work)(void* launch, long long first, long long last);

constexpr int PARTS = 8;  // parts of a job for each thread, so that a slow thread does fewer of them
constexpr int PROBE = 64;  // the caller first does one of so many parts of a job, to see how long the job is
constexpr int PATIENCE = 10;
constexpr long long SAVINGS = 20'000'000, SLICE = 10'000'000;  // ns
// In ns. How long a thread looks for what it waits for before it sleeps, since being woken takes as long as a small
// kernel, and on a virtual machine much longer; the long time applies while sharing jobs pays. And how short a job must
// be not to be offered to workers who are looking for one, or who have to be woken.
constexpr long long SPIN = 50'000, LONG_SPIN = 3'000'000, SMALL = 2'000, SMALL_FOR_SLEEPERS = 20'000;

// Pool::state: the number of the job << 32 | the number of workers at it << 1 | 1 if others may still join.
constexpr unsigned long long OPEN = 1, WORKER = 2, JOB = 1ull << 32;

struct Sleepers {
  std::condition_variable wake;
  std::atomic<int> count{0};
};

struct Pool {
  std::atomic_flag taken = ATOMIC_FLAG_INIT;  // set by the caller whose job it is
  int workers = 0;                            // the number of threads that were started
  std::atomic<long long> alone_until{0};      // the time until which callers do their jobs alone
  std::atomic<long long> saved{0};            // ns, by sharing jobs; changed only by the caller who has taken the pool
  std::atomic<unsigned long long> state{0};
  Work work;  // these four change only while no worker is at the job and none can join
  void* launch;
  long long blocks, part;
  std::atomic<long long> next{0};  // the first block that nobody has taken
  std::mutex door;
  Sleepers workers_asleep, caller_asleep;
};

Pool* pool = new Pool;  // never destroyed: at exit its workers are still waiting
int threads = 1;
bool spins = true;

long long now() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

// The time for which this thread has been on a core.
long long busy() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1'000'000'000ll + t.tv_nsec;
}

// Waits until there() is true: looks for a while, then sleeps. Whoever makes it true calls wake_up afterwards.
template <typename There>
void wait(There there, Sleepers& sleepers) {
  if (there()) return;
  const long long spin = !spins ? 0 : pool->saved > SAVINGS / 2 ? LONG_SPIN : SPIN;
  for (const long long end = now() + spin; now() < end;)
    if (there()) return;
  std::unique_lock<std::mutex> lock(pool->door);
  sleepers.count++;  // before it looks again
  while (!there()) sleepers.wake.wait(lock);
  sleepers.count--;
}

void wake_up(Sleepers& sleepers) {
  if (!sleepers.count) return;
  { std::lock_guard<std::mutex> all_wait(pool->door); }
  sleepers.wake.notify_all();
}

// Computes parts until all are taken; the first part is the caller's without asking. Returns the number of blocks done.
long long take_parts(long long first) {
  long long mine = 0;
  for (; first < pool->blocks; first = pool->next.fetch_add(pool->part, std::memory_order_relaxed)) {
    const long long last = std::min(first + pool->part, pool->blocks);
    pool->work(pool->launch, first, last);
    mine += last - first;
  }
  return mine;
}

void* worker(void*) {
  for (unsigned long long number = 0;;) {
    unsigned long long state;
    wait([&] { return ((state = pool->state) & OPEN) && state / JOB != number; }, pool->workers_asleep);
    number = state / JOB;
    while ((state & OPEN) && state / JOB == number)
      if (pool->state.compare_exchange_weak(state, state + WORKER)) {
        take_parts(pool->next.fetch_add(pool->part, std::memory_order_relaxed));
        pool->state -= WORKER;
        wake_up(pool->caller_asleep);
        break;
      }
  }
}

// Workers block all signals, which are left to the program's own threads. If a thread cannot be started, there are
// fewer.
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

// Does the blocks from `first` on together with the workers, which the caller has taken.
void share(Work work, void* launch, long long first, long long blocks) {
  if (pool->workers < threads - 1) start_workers();
  pool->work = work;
  pool->launch = launch;
  pool->blocks = blocks;
  pool->part = std::max(1ll, (blocks - first) / (threads * PARTS));
  pool->next = first + pool->part;
  const long long begun = now(), busy_before = busy();
  pool->state = (pool->state / JOB + 1) * JOB + OPEN;
  wake_up(pool->workers_asleep);
  const long long mine = take_parts(first), worked = busy() - busy_before;
  pool->state &= ~OPEN;  // no further worker may join
  wait([] { return pool->state % JOB == 0; }, pool->caller_asleep);
  const long long end = now(), alone = worked * (blocks - first) / mine;
  const long long saved = std::min(pool->saved + std::max(alone - (end - begun), -SLICE), SAVINGS);
  if (saved < 0) pool->alone_until = end - PATIENCE * saved;
  pool->saved = std::max(saved, 0ll);
}

}  // namespace

// Calls work(launch, first, last) until each of the blocks 0 to blocks - 1 has been done once.
extern "C" void run_blocks(Work work, void* launch, long long blocks) {
  if (blocks < 2 || threads < 2) return work(launch, 0, blocks);
  const long long begun = now();
  if (begun < pool->alone_until) return work(launch, 0, blocks);
  long long first = 0;
  if (blocks >= PROBE) {
    first = blocks / PROBE;
    work(launch, 0, first);
    const long long small = pool->workers_asleep.count ? SMALL_FOR_SLEEPERS : SMALL;
    if ((now() - begun) * PROBE < small) return work(launch, first, blocks);
  }
  if (pool->taken.test_and_set()) return work(launch, first, blocks);
  share(work, launch, first, blocks);
  pool->taken.clear();
}

// If there are more threads than cores, they do not look for work, since they would keep each other from working.
// A child of a fork has no workers: it begins with a new pool, which starts its own.
extern "C" void start_pool(int n) {
  threads = n;
  spins = n <= int(std::thread::hardware_concurrency());
  pthread_atfork(nullptr, nullptr, [] { pool = new Pool; });
}

// A captured launch of a kernel: its function, and the arguments of that function, as in native.h.
struct Launch {
  void (*function)(const unsigned* grid, const char* packed);
  const unsigned* grid;
  const char* packed;
};

// Runs n launches, one after the other.
extern "C" void replay(const Launch* launches, long long n) {
  for (long long i = 0; i < n; i++) launches[i].function(launches[i].grid, launches[i].packed);
}

// Lets malloc keep up to 64 MiB of freed memory at the top of its heap, and take blocks of up to 32 MiB from the heap. By
// default glibc returns large freed blocks to the system at once. Then each op's result is new memory again, which the
// system clears page by page: 5,200 pages and 20 % of an eager step of nanoGPT's CPU configuration, on two cores of an
// Intel Xeon. (A pool of our own, which reuses arrays, was as fast, but its arrays do not own their memory.) Settings of
// the user's are left alone. Other C libraries have no such setting.
extern "C" void keep_freed_memory() {
#ifdef __GLIBC__
  for (const char* name : {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_"})
    if (std::getenv(name)) return;
  const char* tunables = std::getenv("GLIBC_TUNABLES");
  if (tunables && std::strstr(tunables, "glibc.malloc")) return;
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
#endif
}
