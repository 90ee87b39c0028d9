// What a translated kernel sees of the thread it runs as, and how it reaches memory and the other threads of its block.
// A kernel is compiled against this and instructions.h alone; threads.cpp, which runs blocks, is compiled once.
#pragma once
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
typedef _Float16 f16;
typedef float f32;
typedef double f64;
typedef bool pred;

struct Block;

struct Thread {
  u32 tid[3], ntid[3], ctaid[3], nctaid[3];
  u32 index, lane, warp;  // within the block, within the warp, and which warp
  const u8 *parameters;
  u8 *shared, *written;  // shared memory, and for each of its bytes whether it has been written
  u32 shared_size;
  bool carry;  // CC.CF of the instructions with .cc
  u32 group;   // of cp.async: the one that is not committed yet
  Block *block;
};

// What the translator knows of a kernel. Every compiled kernel exports one, by the name `kernel_info`.
struct KernelInfo {
  const char *name;
  void (*body)(Thread &);
  bool (*is_constant)(u64 address, u32 bytes);  // in one of the module's own .global or .const variables
  u32 parameters, parameter_bytes, static_shared, max_threads;
  const u32 *sizes, *offsets;  // of each parameter
  bool meets;                  // has barriers or warp collectives, so its threads must take turns
};

// Error codes of CUDA, of those that a running kernel can cause.
enum { ILLEGAL_ADDRESS = 700, LAUNCH_TIMEOUT = 702, MISALIGNED_ADDRESS = 716, LAUNCH_FAILED = 719 };

struct Failure {
  int code;
  char text[400];
};

extern "C" {
// Runs a grid, block by block. Answers whether all went well; if not, `failure` says what did not.
bool run_kernel(const KernelInfo *, const u32 grid[3], const u32 block[3], u32 dynamic_shared, const u8 *parameters,
                Failure *failure);
// Who owns global memory: answers whether [address, address + bytes) is the kernel's to use, and if so, the bounds of
// the allocation; if not, why.
typedef const char *(*FindGlobal)(u64 address, u32 bytes, u64 *low, u64 *high);
void set_find_global(FindGlobal);
}

[[noreturn]] void fail(const Thread &, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
void barrier(Thread &, u32 site);  // site: which barrier of the kernel's text it is
void warp_barrier(Thread &, u32 mask);
enum Shuffle { UP, DOWN, BUTTERFLY, INDEX };
u32 shuffle(Thread &, Shuffle, u32 value, u32 b, u32 c, u32 mask, bool *in_range);
u32 ballot(Thread &, bool vote, u32 mask);
void load_matrices(Thread &, const u8 *row, bool transposed, u32 *r);  // ldmatrix.x4
void begin_copy(Thread &, u8 *to, const u8 *from);  // cp.async of 16 bytes, or of zeros
void wait_for_copies(Thread &, u32 latest);         // until only so many groups are on their way
struct bf16 {
  u16 bits;
};
// mma: f16 or bf16 with a k of 16, or f32, of which it reads what TF32 keeps, with a k of 8
template <typename E> void multiply_matrices(Thread &, const u32 *a, const u32 *b, const u32 *c, u32 *d);

// ------------------------------------------------------------------------------------------------------- memory
// The last allocation that an instruction found is kept beside it, so that most accesses are checked by a subtraction.
extern u64 launch_number;
struct Found {
  u64 low, high, launch;
};
void find_global(const Thread &, u64 address, u32 bytes, Found *);
[[noreturn]] void misaligned(const Thread &, const char *space, u64 address, u32 bytes);
[[noreturn]] void outside_shared(const Thread &, u64 address, u32 bytes);
[[noreturn]] void unwritten_shared(const Thread &, u64 address, u32 bytes);
[[noreturn]] void outside_local(const Thread &, u32 bytes);

enum Use { LOAD, STORE, ATOMIC };
// For races.cpp to compare with the accesses before. turns: how many barriers of the block, and of the warp, have passed.
extern bool racing;
void compare(const Thread &, bool shared, Use, u64 address, u32 bytes);
void turns(const Thread &, u32 *of_block, u32 *of_warp);

static __attribute__((noinline, unused)) u8 *global_memory(const Thread &t, u64 address, u32 bytes, Use use,
                                                           Found *found) {
  if (address % bytes) misaligned(t, "global", address, bytes);
  if (racing) compare(t, false, use, address, bytes);
  if (found->launch != launch_number || address < found->low || address + bytes > found->high)
    find_global(t, address, bytes, found);
  return (u8 *)address;
}

static __attribute__((noinline, unused)) u8 *shared_memory(const Thread &t, u64 address, u32 bytes, Use use) {
  if (address % bytes) misaligned(t, "shared", address, bytes);
  if (address + bytes > t.shared_size || address + bytes < address) outside_shared(t, address, bytes);
  if (racing) compare(t, true, use, address, bytes);
  if (use == STORE)
    memset(t.written + address, 1, bytes);
  else
    for (u32 i = 0; i < bytes; i++)
      if (!t.written[address + i]) unwritten_shared(t, address, bytes);
  return t.shared + address;
}

static inline u8 *local_memory(const Thread &t, u64 address, u32 bytes, const u8 *frame, u64 size) {
  if (address % bytes) misaligned(t, "local", address, bytes);
  if (address < (u64)frame || address + bytes > (u64)frame + size) outside_local(t, bytes);
  return (u8 *)address;
}

// A generic address is of global memory unless it lies in this block's shared memory or this thread's local frame.
static inline u8 *generic_memory(const Thread &t, u64 address, u32 bytes, const u8 *frame, u64 size, Use use,
                                 Found *found) {
  if (address - (u64)t.shared < t.shared_size) return shared_memory(t, address - (u64)t.shared, bytes, use);
  if (address - (u64)frame < size) return local_memory(t, address, bytes, frame, size);
  return global_memory(t, address, bytes, use, found);
}
