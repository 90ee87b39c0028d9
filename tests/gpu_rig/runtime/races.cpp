// Finds races, while gpu_rig_races is on, or GPU_RIG_RACES=1: two accesses of a byte, one at least a write, not both
// atomic, that nothing orders: no barrier of the block between its threads, no __syncwarp between lanes of a warp. Blocks
// are never ordered. What counts is the order that is sure: a race shows in whatever order the threads run.
#include "rig.h"
#include <cstdlib>
#include <unordered_map>
#include "thread.h"

struct Access {
  u64 launch = 0, block;
  u32 thread, warp, of_block, of_warp;  // the barriers that had passed
  Use use;
};
struct Byte {  // what may yet conflict with a later access
  Access written, read, read_before, read_elsewhere;  // by two threads of the latest block to read it, and by another
};
static const char *const NAMES[] = {"read", "write", "atomic write"};
bool racing = getenv("GPU_RIG_RACES") && *getenv("GPU_RIG_RACES") == '1';
static std::unordered_map<u64, Byte> bytes_of[2];  // of global and of shared memory

static bool ordered(const Access &before, const Access &now, bool shared) {
  if (before.launch != now.launch || (before.use == LOAD && now.use == LOAD)) return true;
  if (before.use == ATOMIC && now.use == ATOMIC) return true;
  if (before.block != now.block) return shared;
  return before.thread == now.thread || before.of_block < now.of_block ||
         (before.warp == now.warp && before.of_warp < now.of_warp);
}

void compare(const Thread &t, bool shared, Use use, u64 address, u32 bytes) {
  static u64 launch = 0;
  if (launch != launch_number) launch = launch_number, bytes_of[0].clear(), bytes_of[1].clear();
  Access now{launch, t.ctaid[0] + u64(t.nctaid[0]) * (t.ctaid[1] + u64(t.nctaid[1]) * t.ctaid[2]), t.index, t.warp};
  now.use = use;
  turns(t, &now.of_block, &now.of_warp);
  for (u64 at = address; at < address + bytes; at++) {
    Byte &x = bytes_of[shared][at];
    for (const Access *before : {&x.written, &x.read, &x.read_before, &x.read_elsewhere})
      if (!ordered(*before, now, shared))
        fail(t, LAUNCH_FAILED, "race: %s after %s of %s memory at %#llx, by thread %u of block %llu", NAMES[use],
             NAMES[before->use], shared ? "shared" : "global", (unsigned long long)at, before->thread,
             (unsigned long long)before->block);
    if (use != LOAD) {
      x.written = now;
    } else if (x.read.launch == launch && x.read.block != now.block) {
      x.read_elsewhere = x.read, x.read = now, x.read_before = Access{};
    } else {
      if (x.read.thread != now.thread) x.read_before = x.read;
      x.read = now;
    }
  }
}

API void gpu_rig_races(bool on) {
  ENTER;
  racing = on;
}
