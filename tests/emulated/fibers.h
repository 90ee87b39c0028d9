// Thread blocks on a CPU: each thread is a fiber, and one block runs at a time. A fiber runs until it waits, at a
// barrier of the block or in a collective of its warp, so a launch is deterministic: its schedule says who goes first.
//
//   schedule 0   threads and blocks in order
//   schedule 1   both reversed
//   schedule n   both shuffled by n
//   odd          a warp that can go on does, as far as it can, while the others have not even begun: where threads take
//                turns evenly, a missing barrier may do no harm
#pragma once
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

struct Index3 { unsigned x, y, z; };
static struct { Index3 thread, block, block_size, grid_size; } indices;
#define threadIdx indices.thread
#define blockIdx indices.block
#define blockDim indices.block_size
#define gridDim indices.grid_size

namespace checker {
#ifdef CHECKED  // checker.h has them
static void launch_begins(), block_begins(), block_synchronised(), warp_synchronised(unsigned warp);
static const char* findings();
#else
static void launch_begins() {}
static void block_begins() {}
static void block_synchronised() {}
static void warp_synchronised(unsigned) {}
static void atomic(void*, size_t, void*) {}
static void read(const void*, size_t, void*) {}
static void write(void*, size_t, void*) {}
static const char* findings() { return ""; }
#endif
}  // namespace checker

namespace emulator {

constexpr unsigned WARP = 32;
constexpr size_t MAX_SHARED = 227 << 10;  // what an H100 gives a block
constexpr size_t UNASKED = 48 << 10;      // what any GPU gives a block whose kernel has not asked for more

// ------------------------------------------------------------------------------------------------------------ threads

enum State { READY, AT_BARRIER, IN_COLLECTIVE, RETURNED };
typedef void (*Collective)(void** lanes);  // what each of 32 lanes brought, null for those that take no part

struct Place { const char* file; int line; };  // as a default argument, HERE is where the kernel calls
#define HERE {__builtin_FILE(), __builtin_LINE()}

constexpr int MAX_COPIES = 256;
struct Copy { void* to; const void* from; bool exist; int group; };  // of cp.async, on its way

struct Fiber {
  Context context;
  State state;
  unsigned thread;
  Index3 index;
  Place place;            // where it waits
  Collective collective;  // and, in a collective: which, with whom, with what
  unsigned mask;
  void* argument;
  Copy copies[MAX_COPIES];
  int copy_count, group;
};

static Fiber fibers[MAX_THREADS], outside;
static Fiber* current = &outside;
static unsigned order[MAX_THREADS], position[MAX_THREADS];  // order[position[thread]] = thread
static unsigned threads, arrived;                           // in the block; at its barrier
static unsigned schedule;
static void (*entry)(void*);
static void* entry_arguments;
static char* dynamic_shared;
static size_t dynamic_shared_bytes;
static char message[8192];
static bool failed;

UNCHECKED static void switch_to(Fiber& to) {
  Fiber& from = *current;
  current = &to;
  threadIdx = to.index;
  switch_context(from.context, to.context);
}

template <size_t N>
UNCHECKED static void append(char (&text)[N], const char* format, ...) {
  size_t length = strlen(text);
  va_list values;
  va_start(values, format);
  vsnprintf(text + length, N - length, format, values);
  va_end(values);
}

UNCHECKED static bool same(Place a, Place b) { return a.line == b.line && !strcmp(a.file, b.file); }

// Gives the launch up: `what`, and where every thread of the block is. Does not return to a thread.
UNCHECKED static void fail(const char* what) {
  failed = true;
  append(message, "%s, in block (%u, %u, %u) of schedule %u:", what, blockIdx.x, blockIdx.y, blockIdx.z, schedule);
  for (unsigned first = 0, last; first < threads; first = last + 1) {
    const Fiber& f = fibers[first];
    auto alike = [&](const Fiber& g) UNCHECKED {
      if (g.state != f.state || (&g == current) != (&f == current)) return false;
      return g.state == READY || g.state == RETURNED || same(g.place, f.place);
    };
    for (last = first; last + 1 < threads && alike(fibers[last + 1]);) last++;
    append(message, first == last ? " thread %u " : " threads %u to %u ", first, last);
    if (f.state == READY) append(message, "could go on");
    else if (f.state == RETURNED) append(message, "returned");
    else append(message, "at %s:%d", f.place.file, f.place.line);
    if (f.state == IN_COLLECTIVE) append(message, ", mask %#x", f.mask);
    append(message, &f == current ? " (at fault);" : ";");
  }
  message[strlen(message) - 1] = '\n';
  if (current != &outside) switch_to(outside);
}

// Hands over to whoever can go on: to the launch, if nobody can.
UNCHECKED static void wait() {
  unsigned after = 0;
  if (current != &outside) {
    after = position[current->thread] + 1;
    if (schedule & 1) {
      unsigned warp = current->thread / WARP * WARP;
      for (unsigned i = 1; i < WARP; i++) {
        unsigned thread = warp + (current->thread + i) % WARP;
        if (thread < threads && fibers[thread].state == READY) return switch_to(fibers[thread]);
      }
    }
  }
  for (unsigned i = 0; i < threads; i++) {
    Fiber& f = fibers[order[(after + i) % threads]];
    if (f.state == READY) return switch_to(f);
  }
  switch_to(outside);
}

UNCHECKED static void run_thread() {
  entry(entry_arguments);
  current->state = RETURNED;
  wait();
}

// All threads of the block wait for each other, at one place of the source: a thread that has returned never comes.
UNCHECKED static void barrier(Place place) {
  current->state = AT_BARRIER;
  current->place = place;
  if (++arrived < threads) return wait();
  for (unsigned t = 0; t < threads; t++)
    if (!same(fibers[t].place, place)) return fail("threads of a block meet at different barriers");
  for (unsigned t = 0; t < threads; t++) fibers[t].state = READY;
  arrived = 0;
  checker::block_synchronised();
}

// The lanes that `mask` names wait for each other; the last to come runs the collective for them all.
UNCHECKED static void meet(unsigned mask, Collective collective, void* argument, Place place) {
  Fiber* warp = fibers + current->thread / WARP * WARP;
  unsigned size = threads < WARP ? threads : WARP;
  current->state = IN_COLLECTIVE;
  current->place = place;
  current->collective = collective;
  current->mask = mask;
  current->argument = argument;
  if (!(mask >> (current - warp) & 1)) return fail("a lane is in a collective whose mask does not name it");
  if (size < WARP && mask >> size) return fail("a collective's mask names lanes that the block does not have");
  for (unsigned i = 1; i < size; i++) {  // the next lane first: it is the likeliest to be missing
    const Fiber& f = warp[(current - warp + i) % size];
    if (mask >> (&f - warp) & 1 && (f.state != IN_COLLECTIVE || f.mask != mask)) return wait();
  }
  void* lanes[WARP] = {};
  for (unsigned l = 0; l < size; l++) {
    if (!(mask >> l & 1)) continue;
    if (warp[l].collective != collective) return fail("lanes of a warp meet in different collectives");
    lanes[l] = warp[l].argument;
  }
  collective(lanes);
  for (unsigned l = 0; l < size; l++)
    if (lanes[l]) warp[l].state = READY;
}

// ------------------------------------------------------------------------------------------------------------- blocks

static unsigned long long random_state;
UNCHECKED static unsigned long long random_below(unsigned long long n) {  // xorshift64*
  random_state ^= random_state >> 12;
  random_state ^= random_state << 25;
  random_state ^= random_state >> 27;
  return (random_state * 0x2545f4914f6cdd1dull >> 16) % n;
}

UNCHECKED static void order_threads() {
  for (unsigned t = 0; t < threads; t++) order[t] = schedule == 1 ? threads - 1 - t : t;
  for (unsigned t = threads; schedule > 1 && t > 1; t--) {
    unsigned other = unsigned(random_below(t)), thread = order[t - 1];
    order[t - 1] = order[other];
    order[other] = thread;
  }
  for (unsigned t = 0; t < threads; t++) position[order[t]] = t;
}

UNCHECKED static void run_block(unsigned long long block) {
  blockIdx = {unsigned(block % gridDim.x), unsigned(block / gridDim.x % gridDim.y),
              unsigned(block / gridDim.x / gridDim.y)};
  memset(dynamic_shared, 0xff, dynamic_shared_bytes);  // NaN: what is read must have been written
  memset(static_shared, 0xff, static_shared_bytes);
  order_threads();
  for (unsigned t = 0; t < threads; t++) {
    Fiber& f = fibers[t];
    f.state = READY;
    f.thread = t;
    f.copy_count = f.group = 0;
    f.index = {t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y};
    canary_of(t) = CANARY;
    prepare(f.context, stack_of(t), STACK_BYTES - t % 64 * 192, run_thread);  // not all in the same lines of the cache
  }
  arrived = 0;
  checker::block_begins();
  wait();
  for (unsigned t = 0; t < threads && !failed; t++)
    if (fibers[t].state != RETURNED) fail("deadlock");
  for (unsigned t = 0; t < threads && !failed; t++)
    if (canary_of(t) != CANARY) fail("a thread's local variables need more than its stack of 64 KiB");
}

// What a GPU would refuse. asked: how much dynamic shared memory the kernel has asked for.
UNCHECKED static const char* why_not(unsigned long shared, unsigned long asked) {
  unsigned long long size = (unsigned long long)blockDim.x * blockDim.y * blockDim.z;
  if (size == 0 || size > MAX_THREADS || blockDim.z > 64 || (size % WARP && size != 1))
    return "a block has 1 thread or a multiple of 32, at most 1024";
  if (gridDim.x > 0x7fffffff || gridDim.y > 0xffff || gridDim.z > 0xffff) return "the grid is too large";
  if (!find_static_shared()) return "the loader does not tell where thread-local memory is";
  if (shared + static_shared_bytes > MAX_SHARED) return "more than 227 KiB of shared memory";
  if (shared + static_shared_bytes > UNASKED && shared > asked)
    return "more than 48 KiB of shared memory, static and dynamic, for which the kernel has not asked";
  if (!dynamic_shared && !(dynamic_shared = (char*)aligned_alloc(256, MAX_SHARED))) return "no memory";
  return stacks || make_stacks() ? nullptr : "no memory for stacks";
}

// Runs the grid, its blocks one after another: 0, or 1 if emulator_message() has something to say.
UNCHECKED static int run_grid(void (*run)(void*), void* arguments, const unsigned* shape, unsigned long shared) {
  gridDim = {shape[0], shape[1], shape[2]};
  blockDim = {shape[3], shape[4], shape[5]};
  schedule = shape[6];
  message[0] = 0;
  failed = false;
  threads = 0;
  if (const char* why = why_not(shared, shape[7])) {
    append(message, "%s: grid (%u, %u, %u), block (%u, %u, %u)", why, gridDim.x, gridDim.y, gridDim.z, blockDim.x,
           blockDim.y, blockDim.z);
    append(message, ", %lu + %zu bytes of dynamic and static shared memory\n", shared, static_shared_bytes);
    return 1;
  }
  threads = blockDim.x * blockDim.y * blockDim.z;
  dynamic_shared_bytes = shared;
  entry = run;
  entry_arguments = arguments;
  random_state = 0x9e3779b97f4a7c15ull * (schedule + 1);
  checker::launch_begins();
  unsigned long long blocks = (unsigned long long)gridDim.x * gridDim.y * gridDim.z, first = 0, step = 1;
  if (schedule == 1) first = step = blocks - 1;  // ≡ -1 modulo blocks
  if (schedule > 1) {                            // a step without a common divisor visits each block once
    auto divisor = [](unsigned long long a, unsigned long long b) UNCHECKED {
      while (b) { unsigned long long rest = a % b; a = b; b = rest; }
      return a;
    };
    first = random_below(blocks);
    do step = 1 + random_below(blocks); while (divisor(step, blocks) != 1);
  }
  for (unsigned long long i = 0, block = first; i < blocks && !failed; i++, block = (block + step) % blocks)
    run_block(block);
  append(message, "%s", checker::findings());
  return message[0] != 0;
}

}  // namespace emulator

extern "C" const char* emulator_message() { return emulator::message; }
extern "C" unsigned long emulator_static_shared() {
  return emulator::find_static_shared() ? emulator::static_shared_bytes : 0;
}
