// What a fiber stands on: how one waits and another goes on, its stack, and the shared memory of its block.
#pragma once
#include <cstddef>
#include <link.h>
#include <sys/mman.h>

#if defined(__x86_64__) && !defined(EMULATOR_UCONTEXT)
#define EMULATOR_ASSEMBLY 1
#else
#include <ucontext.h>  // five times slower, and to be had on any Linux
#endif

// The checker sees every access of a kernel, by calls that the compiler puts there. The emulator's own are not meant.
#define UNCHECKED __attribute__((no_sanitize("thread"), noinline))

#define CALLER __builtin_return_address(0)  // of such a function: a place in the kernel's code

// The shared arrays of a module: nothing else in it is thread_local, so together they are its thread-local segment, as
// the one thread that runs a launch has it. (A section of their own would do, but g++ ignores those in templates.)
#define __shared__ static thread_local

namespace emulator {

// ---------------------------------------------------------------------------------------------------------- switching

#if EMULATOR_ASSEMBLY
typedef void* Context;  // where its stack ends, on top of what a function must preserve
extern "C" __attribute__((visibility("hidden"))) void emulator_switch(Context* from, Context to);
asm(R"(.text
.type emulator_switch, @function
emulator_switch:
  push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp
  ret
)");
UNCHECKED static void prepare(Context& context, char* stack, size_t bytes, void (*run)()) {
  void** top = (void**)(stack + bytes);
  *--top = nullptr;     // run's return address: it never returns
  *--top = (void*)run;  // where the switch returns to
  for (int preserved = 0; preserved < 6; preserved++) *--top = nullptr;
  context = top;
}
UNCHECKED static void switch_context(Context& from, Context& to) { emulator_switch(&from, to); }
#else
typedef ucontext_t Context;
UNCHECKED static void prepare(Context& context, char* stack, size_t bytes, void (*run)()) {
  getcontext(&context);
  context.uc_stack.ss_sp = stack;
  context.uc_stack.ss_size = bytes;
  context.uc_link = nullptr;
  makecontext(&context, run, 0);
}
UNCHECKED static void switch_context(Context& from, Context& to) { swapcontext(&from, &to); }
#endif

// ------------------------------------------------------------------------------------------------------------- memory

constexpr unsigned MAX_THREADS = 1024;
constexpr size_t STACK_BYTES = 64 << 10;
constexpr unsigned long long CANARY = 0xfeedc0ffee15dead;
static char *stacks, *static_shared;
static size_t static_shared_bytes;

UNCHECKED static char* stack_of(unsigned thread) { return stacks + thread * STACK_BYTES; }

// They are reused. A canary at the end of each shows an overflow: guard pages would, with all modules of a process, be
// more mappings than a system allows.
UNCHECKED static unsigned long long& canary_of(unsigned thread) { return *(unsigned long long*)stack_of(thread); }

UNCHECKED static bool make_stacks() {
  size_t bytes = MAX_THREADS * STACK_BYTES;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  stacks = (char*)memory;
  return true;
}

// The calling thread's copy of the thread-local segment: at the same distance from `marker` in every thread.
UNCHECKED static bool find_static_shared() {
  static thread_local char marker;
  static long distance;
  marker = 0;  // whereupon the segment is there
  if (!static_shared_bytes) {
    auto is_ours = [](dl_phdr_info* library, size_t, void* address) UNCHECKED {
      for (int i = 0; i < library->dlpi_phnum; i++) {
        const auto& segment = library->dlpi_phdr[i];
        char* start = (char*)library->dlpi_tls_data;
        if (segment.p_type != PT_TLS || (char*)address < start || (char*)address >= start + segment.p_memsz) continue;
        distance = (char*)address - start;
        static_shared_bytes = segment.p_memsz;
        return 1;
      }
      return 0;
    };
    if (!dl_iterate_phdr(is_ours, &marker)) return false;
  }
  static_shared = &marker - distance;
  return true;
}

}  // namespace emulator
