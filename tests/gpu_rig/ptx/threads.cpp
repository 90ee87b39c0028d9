// Runs the threads of a block: one after the other, or, where they meet at barriers and shuffles, as fibers that take
// turns. GPU_RIG_ORDER=reverse lets the last thread go first. x86-64 only.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <algorithm>
#include <vector>
#include "thread.h"

u64 launch_number = 0;
static FindGlobal owner = nullptr;
extern "C" void set_find_global(FindGlobal f) { owner = f; }

struct Group {  // the lanes of a warp that meet, by their mask
  u32 mask, arrived = 0, turn = 0, values[2][32];
};
struct Lane {  // what a thread has come to a product of matrices with
  const u8 *row;
  const u32 *a, *b;
};
struct Copy {
  u32 thread, group;
  u8 *to;
  const u8 *from;
};
struct Fiber {
  void *stack_pointer;
  bool ended;
};
struct Block {
  const KernelInfo *kernel;
  std::vector<Thread> threads;
  std::vector<Fiber> fibers;
  std::vector<std::vector<Group>> groups;  // of each warp
  std::vector<Lane> lanes;
  std::vector<Copy> copies;  // that are on their way
  void *scheduler;
  std::vector<u32> warp_turns;  // __syncwarps of each warp so far
  u32 current = 0, ended = 0, waiting = 0, turn = 0, site = 0;
  bool progress = false, failed = false;
  Failure *failure;
};

static const char *where(const Thread &t) {
  static char text[200];
  snprintf(text, sizeof text, "kernel %s, block (%u, %u, %u), thread (%u, %u, %u)", t.block->kernel->name, t.ctaid[0],
           t.ctaid[1], t.ctaid[2], t.tid[0], t.tid[1], t.tid[2]);
  return text;
}

void fail(const Thread &t, int code, const char *format, ...) {
  Failure failure{code, {}};
  const int n = snprintf(failure.text, sizeof failure.text, "%s: ", where(t));
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(failure.text + n, sizeof failure.text - n, format, arguments);
  va_end(arguments);
  throw failure;
}

// ------------------------------------------------------------------------------------------------------- memory

void find_global(const Thread &t, u64 address, u32 bytes, Found *found) {
  const char *why = "";
  if (owner && !(why = owner(address, bytes, &found->low, &found->high))) {
    found->launch = launch_number;
    return;
  }
  if (!t.block->kernel->is_constant(address, bytes))
    fail(t, ILLEGAL_ADDRESS, "global memory out of bounds: %u bytes at %#llx: %s", bytes, (unsigned long long)address,
         why);
}
void misaligned(const Thread &t, const char *space, u64 address, u32 bytes) {
  fail(t, MISALIGNED_ADDRESS, "misaligned access of %u bytes at %#llx of %s memory", bytes, (unsigned long long)address,
       space);
}
void outside_shared(const Thread &t, u64 address, u32 bytes) {
  fail(t, ILLEGAL_ADDRESS, "shared memory out of bounds: %u bytes at %llu of %u", bytes, (unsigned long long)address,
       t.shared_size);
}
void unwritten_shared(const Thread &t, u64 address, u32 bytes) {
  fail(t, LAUNCH_FAILED, "read of shared memory that nothing was written to: %u bytes at %llu", bytes,
       (unsigned long long)address);
}
void outside_local(const Thread &t, u32 bytes) {
  fail(t, ILLEGAL_ADDRESS, "local memory out of bounds: %u bytes", bytes);
}

void turns(const Thread &t, u32 *of_block, u32 *of_warp) {
  *of_block = t.block->turn, *of_warp = t.block->warp_turns[t.warp];
}

// ------------------------------------------------------------------------------------------------------- fibers

extern "C" void switch_fiber(void **from, void *to);
asm(R"(
.text
.globl switch_fiber
.hidden switch_fiber
.type switch_fiber,@function
switch_fiber:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp,(%rdi)
  mov %rsi,%rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
)");

static const size_t STACK = 256 << 10, MOST = 1024;
static Block *running = nullptr;  // one block at a time: the runtime has one lock around all of this

static void wait_for_others() { switch_fiber(&running->fibers[running->current].stack_pointer, running->scheduler); }

static void fiber_main() {
  Block &b = *running;
  const u32 i = b.current;
  try {
    b.kernel->body(b.threads[i]);
  } catch (const Failure &failure) {
    *b.failure = failure;
    b.failed = true;
  }
  b.fibers[i].ended = true;
  b.ended++;
  b.progress = true;
  wait_for_others();
  abort();  // a thread that has ended is not resumed
}

static void start_fibers(Block &b) {
  static char *stacks = nullptr;
  if (!stacks) {
    stacks = (char *)mmap(0, STACK * MOST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (size_t i = 0; i < MOST; i++) mprotect(stacks + i * STACK, 4096, PROT_NONE);  // an overflow is a fault
  }
  for (size_t i = 0; i < b.fibers.size(); i++) {
    void **top = (void **)(stacks + STACK * (i + 1) - 64);
    *--top = nullptr;  // where fiber_main would return to; the stack is aligned as after a call
    *--top = (void *)fiber_main;
    for (int saved = 0; saved < 6; saved++) *--top = nullptr;
    b.fibers[i] = {top, false};
  }
}

static void stuck(Block &b) {  // nobody can go on
  u32 first = 0;
  while (b.fibers[first].ended) first++;
  snprintf(b.failure->text, sizeof b.failure->text,
           "%s: deadlock: of %zu threads, %u wait at a barrier, %u have ended, and the others wait for lanes of their "
           "warp that never come",
           where(b.threads[first]), b.fibers.size(), b.waiting, b.ended);
  b.failure->code = LAUNCH_TIMEOUT;
  b.failed = true;
}

static void take_turns(Block &b) {
  static const char *order = getenv("GPU_RIG_ORDER");
  const bool reverse = order && !strcmp(order, "reverse");
  const u32 n = b.fibers.size();
  running = &b;
  start_fibers(b);
  while (b.ended < n && !b.failed) {
    b.progress = false;
    for (u32 i = 0; i < n && !b.failed; i++) {
      b.current = reverse ? n - 1 - i : i;
      if (!b.fibers[b.current].ended) switch_fiber(&b.scheduler, b.fibers[b.current].stack_pointer);
    }
    if (!b.progress && !b.failed) stuck(b);
  }
}

// ------------------------------------------------------------------------------------------------------- meeting

void barrier(Thread &t, u32 site) {  // every thread of the block has to come, and to the same barrier of the text
  Block &b = *t.block;
  if (b.waiting && b.site != site) fail(t, LAUNCH_FAILED, "divergent barrier: other threads wait at another one");
  b.site = site;
  const u32 turn = b.turn;
  if (++b.waiting == b.threads.size())
    b.waiting = 0, b.turn++, b.progress = true;
  else
    while (b.turn == turn) wait_for_others();
}

static Group &meet(Thread &t, u32 mask, u32 value, bool orders = false) {  // returns when all lanes of the mask have come
  if (!(mask >> t.lane & 1)) fail(t, LAUNCH_FAILED, "lane %u is not in its own mask %#x", t.lane, mask);
  auto &groups = t.block->groups[t.warp];
  u32 at = 0;
  while (at < groups.size() && groups[at].mask != mask) at++;
  for (const Group &other : groups)
    if (other.arrived && other.mask != mask && (other.mask & mask))
      fail(t, LAUNCH_FAILED, "mask %#x, while lanes of it wait with mask %#x", mask, other.mask);
  if (at == groups.size()) groups.push_back(Group{mask});
  const u32 turn = groups[at].turn;
  groups[at].values[turn & 1][t.lane] = value;
  if (++groups[at].arrived == (u32)__builtin_popcount(mask))
    groups[at].arrived = 0, groups[at].turn++, t.block->progress = true, t.block->warp_turns[t.warp] += orders;
  else
    while (groups[at].turn == turn) wait_for_others();
  return groups[at];
}

void warp_barrier(Thread &t, u32 mask) { meet(t, mask, 0, true); }

// A lane can be at most one meeting ahead of another of its mask, so two sets of values are enough.
static u32 turn_of(Thread &t, u32 mask) {
  for (const Group &group : t.block->groups[t.warp])
    if (group.mask == mask) return group.turn & 1;
  return 0;
}

u32 shuffle(Thread &t, Shuffle kind, u32 value, u32 b, u32 c, u32 mask, bool *in_range) {
  const u32 segment = c >> 8 & 31, clamp = c & 31, turn = turn_of(t, mask);
  const int first = t.lane & segment, limit = first | (clamp & ~segment), by = b & 31, lane = t.lane;
  int from = kind == UP          ? lane - by
             : kind == DOWN      ? lane + by
             : kind == BUTTERFLY ? lane ^ by
                                 : first | (by & ~segment);
  *in_range = kind == UP ? from >= limit : from <= limit;
  if (!*in_range) from = lane;
  Group &group = meet(t, mask, value);
  if (!(mask >> from & 1)) fail(t, LAUNCH_FAILED, "shuffle from lane %d, which is outside the mask %#x", from, mask);
  return group.values[turn][from];
}

u32 ballot(Thread &t, bool vote, u32 mask) {
  const u32 turn = turn_of(t, mask);
  Group &group = meet(t, mask, vote);
  u32 votes = 0;
  for (u32 lane = 0; lane < 32; lane++)
    if (mask >> lane & 1) votes |= group.values[turn][lane] << lane;
  return votes;
}

// ------------------------------------------------------------------------------------------------------- matrices

static const Lane *all_lanes(Thread &t, Lane lane) {  // what each lane of the warp has brought
  Lane *lanes = &t.block->lanes[t.index - t.lane];
  lanes[t.lane] = lane;
  meet(t, ~0u, 0);
  return lanes;
}
static void go_on(Thread &t) { meet(t, ~0u, 0); }  // once all lanes have what they came for

void load_matrices(Thread &t, const u8 *row, bool transposed, u32 *r) {
  const Lane *lanes = all_lanes(t, {row});
  for (u32 i = 0; i < 8; i++) {  // the (i % 2)-th of the two that lane 4g + t gets of matrix i / 2
    const u32 g = t.lane / 4, at = t.lane % 4 * 2 + i % 2, from = transposed ? at : g, column = transposed ? g : at;
    memcpy((u8 *)r + 2 * i, lanes[i / 2 * 8 + from].row + 2 * column, 2);
  }
  go_on(t);
}

void begin_copy(Thread &t, u8 *to, const u8 *from) { t.block->copies.push_back({t.index, t.group, to, from}); }

void wait_for_copies(Thread &t, u32 latest) {
  auto &copies = t.block->copies;
  auto arrives = [&](const Copy &c) {
    if (c.thread != t.index || c.group + latest >= t.group) return false;
    if (c.from) memcpy(c.to, c.from, 16);
    else memset(c.to, 0, 16);
    return true;
  };
  copies.erase(std::remove_if(copies.begin(), copies.end(), arrives), copies.end());
}

static f32 number(u32 bits, u32 i, f16) {
  f16 x;
  memcpy(&x, (u8 *)&bits + 2 * i, 2);
  return x;
}
static f32 number(u32 bits, u32 i, bf16) {
  f32 x;
  bits = bits >> 16 * i << 16;
  memcpy(&x, &bits, 4);
  return x;
}
static f32 number(u32 bits, u32, f32) {
  f32 x;
  bits &= ~0x1fffu;
  memcpy(&x, &bits, 4);
  return x;
}

template <typename E>
void multiply_matrices(Thread &t, const u32 *a, const u32 *b, const u32 *c, u32 *d) {
  constexpr u32 EACH = 4 / sizeof(E), HALF = 4 * EACH;  // elements in 4 bytes; half of k
  const Lane *lanes = all_lanes(t, {nullptr, a, b});
  for (u32 i = 0; i < 4; i++) {
    const u32 row = t.lane / 4, column = t.lane % 4 * 2 + i % 2, below = i / 2;
    f32 start, end;
    memcpy(&start, c + i, 4);
    f64 sum = start;
    for (u32 k = 0; k < 2 * HALF; k++) {
      const u32 other = k / HALF, of = k % HALF / EACH, e = k % EACH;
      sum += (f64)number(lanes[4 * row + of].a[below + 2 * other], e, E()) * number(lanes[4 * column + of].b[other], e, E());
    }
    end = sum;
    memcpy(d + i, &end, 4);
  }
  go_on(t);
}
template void multiply_matrices<f16>(Thread &, const u32 *, const u32 *, const u32 *, u32 *);
template void multiply_matrices<bf16>(Thread &, const u32 *, const u32 *, const u32 *, u32 *);
template void multiply_matrices<f32>(Thread &, const u32 *, const u32 *, const u32 *, u32 *);

// ------------------------------------------------------------------------------------------------------- a grid

static void start_threads(Block &b, const u32 *grid, const u32 *shape, const u32 *at, const u8 *parameters, u8 *shared,
                          u8 *written, u32 shared_size) {
  for (u32 i = 0; i < b.threads.size(); i++) {
    Thread &t = b.threads[i];
    t = Thread{};
    t.tid[0] = i % shape[0], t.tid[1] = i / shape[0] % shape[1], t.tid[2] = i / shape[0] / shape[1];
    for (int k = 0; k < 3; k++) t.ntid[k] = shape[k], t.nctaid[k] = grid[k], t.ctaid[k] = at[k];
    t.index = i, t.lane = i % 32, t.warp = i / 32, t.parameters = parameters, t.block = &b;
    t.shared = shared, t.written = written, t.shared_size = shared_size;
  }
}

static void run_block(Block &b) {
  if (b.kernel->meets) return take_turns(b);
  try {
    for (Thread &t : b.threads) b.kernel->body(t);
  } catch (const Failure &failure) {
    *b.failure = failure;
    b.failed = true;
  }
}

extern "C" bool run_kernel(const KernelInfo *kernel, const u32 grid[3], const u32 shape[3], u32 dynamic_shared,
                           const u8 *parameters, Failure *failure) {
  const u32 n = shape[0] * shape[1] * shape[2], shared_size = kernel->static_shared + dynamic_shared;
  const size_t room = (shared_size + 2047) / 1024 * 1024;
  u8 *shared = (u8 *)aligned_alloc(1024, room), *written = (u8 *)malloc(room);
  bool well = true;
  launch_number++;
  const u64 blocks = (u64)grid[0] * grid[1] * grid[2];
  for (u64 i = 0; well && i < blocks; i++) {
    Block b;
    b.kernel = kernel, b.failure = failure;
    b.threads.resize(n), b.fibers.resize(n), b.groups.resize((n + 31) / 32), b.lanes.resize(n), b.warp_turns.resize((n + 31) / 32);
    const u32 at[3] = {u32(i % grid[0]), u32(i / grid[0] % grid[1]), u32(i / grid[0] / grid[1])};
    memset(shared, 0xff, room), memset(written, 0, room);
    start_threads(b, grid, shape, at, parameters, shared, written, shared_size);
    run_block(b);
    well = !b.failed;
  }
  free(shared), free(written);
  return well;
}
