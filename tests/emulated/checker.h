// Every access of a kernel, checked. It is compiled with -fsanitize=thread but without that flag's library: the
// compiler then calls a __tsan_ function of this file before each load and store. Found are
//
//   out of bounds   neither an array that was passed, nor shared memory, nor the thread's own: the launch ends there
//   unwritten       shared memory that is read before the block has written it
//   races           two accesses of an element, one at least a write, not both atomic, with nothing that orders them:
//                   no __syncthreads between threads of a block, no __syncwarp between lanes of a warp. Blocks are
//                   never ordered. What counts is the order that is sure: a race shows in any schedule.
#pragma once

namespace checker {

using emulator::append;

enum Kind : unsigned char { NONE, PLAIN, ATOMIC };

struct Access {
  unsigned block;       // its number, from 0
  unsigned interval;    // barriers of the block that had passed, counted over the launch
  unsigned warp_syncs;  // and __syncwarps of its warp
  unsigned short thread;
  Kind kind;
};

struct Element {  // what may yet conflict with a later access
  Access written;
  Access read, read_before;    // by two threads of the latest block that read it
  Access read_by_other_block;
  bool initialised;
};

struct Range {
  char *start, *end;
  size_t grain;        // bytes in an element
  Element* elements;
  int argument;        // the kernel's, -1 for what it has by other ways
  const char* name;
  bool shared;
};

constexpr int MAX_RANGES = 4096, MAX_FINDINGS = 8;
static Range ranges[MAX_RANGES];
static int range_count, argument_count;
static unsigned block, interval, warp_syncs[emulator::MAX_THREADS / emulator::WARP];
static char *constants, *constants_end;  // what the module cannot write: tables, its code
static char text[4096];
static struct { const char* what; void* where; } found[MAX_FINDINGS];
static int finding_count;

UNCHECKED static void add(char* start, size_t bytes, size_t grain, int argument, const char* name, bool shared) {
  if (!bytes || range_count == MAX_RANGES) return;
  auto elements = (Element*)calloc(bytes / grain + 1, sizeof(Element));
  if (!elements) abort();
  ranges[range_count++] = {start, start + bytes, grain, elements, argument, name, shared};
}

UNCHECKED static void drop_from(int count) {
  for (int i = count; i < range_count; i++) free(ranges[i].elements);
  range_count = count;
}

UNCHECKED static int find_constants(dl_phdr_info* library, size_t, void* code) {
  char *start = nullptr, *end = nullptr;
  bool ours = false;
  for (int i = 0; i < library->dlpi_phnum; i++) {
    const auto& segment = library->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || segment.p_flags & PF_W) continue;
    char* from = (char*)library->dlpi_addr + segment.p_vaddr;
    char* to = from + segment.p_memsz;
    ours |= code >= from && code < to;
    if (!start || from < start) start = from;
    if (to > end) end = to;
  }
  if (ours) constants = start, constants_end = end;
  return ours;
}

UNCHECKED static void launch_begins() {
  if (!constants) dl_iterate_phdr(find_constants, (void*)find_constants);
  finding_count = 0;
  text[0] = 0;
  block = interval = 0;
}

UNCHECKED static void block_begins() {
  block++;
  interval++;
  memset(warp_syncs, 0, sizeof warp_syncs);
  drop_from(argument_count);  // what the block before did to shared memory
  add(emulator::dynamic_shared, emulator::dynamic_shared_bytes, 1, -1, "dynamic shared memory", true);
}

// What SHARED stands for after the declaration of a shared array, where Python puts it: its bounds are known then.
UNCHECKED static void declare_shared(void* start, size_t bytes, const char* name) {
  for (int i = argument_count; i < range_count; i++)
    if (ranges[i].start == start) return;
  add((char*)start, bytes, 1, -1, name, true);
}
#define SHARED(array) checker::declare_shared(&array, sizeof(array), #array)

UNCHECKED static void block_synchronised() { interval++; }
UNCHECKED static void warp_synchronised(unsigned warp) { warp_syncs[warp]++; }
UNCHECKED static const char* findings() { return text; }

// One line: what, where, who, and the address of the code, which Python turns into a line of the source.
UNCHECKED static void report(const char* what, const Range* range, char* address, void* where, const Access* other) {
  for (int i = 0; i < finding_count; i++)
    if (found[i].what == what && found[i].where == where) return;
  if (finding_count == MAX_FINDINGS) return;
  found[finding_count++] = {what, where};
  append(text, "%s: ", what);
  if (!range) {
    append(text, "address %p", (void*)address);
  } else {
    long offset = address - range->start, grain = (long)range->grain;
    long element = (offset < 0 ? offset - grain + 1 : offset) / grain;
    if (range->argument < 0) append(text, "%s, byte %ld", range->name, offset);
    else append(text, "argument %d, element %ld", range->argument, element);
  }
  append(text, ", by thread %u", emulator::current->thread);
  if (other) append(text, " and thread %u%s", other->thread, other->block == block ? "" : " of another block");
  append(text, ", in block (%u, %u, %u)", blockIdx.x, blockIdx.y, blockIdx.z);
  append(text, ", at <%lx>\n", (unsigned long)((char*)where - 1 - constants));  // - 1: in the call, not after it
}

UNCHECKED static bool conflict(const Access& before, const Access& now) {
  if (before.kind == NONE || (before.kind == ATOMIC && now.kind == ATOMIC)) return false;
  if (before.block != now.block) return true;
  if (before.interval != now.interval || before.thread == now.thread) return false;
  bool one_warp = before.thread / emulator::WARP == now.thread / emulator::WARP;
  return !(one_warp && before.warp_syncs < now.warp_syncs);
}

UNCHECKED static void remember_read(Element& e, const Access& now) {
  if (e.read.kind && e.read.block != now.block) {
    e.read_by_other_block = e.read;
    e.read_before = {};
  } else if (e.read.kind && e.read.thread != now.thread) {
    e.read_before = e.read;
  }
  e.read = now;
}

UNCHECKED static void check_element(Range& range, char* address, bool write, const Access& now, void* where) {
  Element& e = range.elements[(address - range.start) / range.grain];
  if (!write && range.shared && !e.initialised) report("unwritten", &range, address, where, nullptr);
  if (conflict(e.written, now))
    report(write ? "race: write after write" : "race: read after write", &range, address, where, &e.written);
  const Access* reads[] = {&e.read, &e.read_before, &e.read_by_other_block};
  for (int i = 0; i < 3 && write; i++)
    if (conflict(*reads[i], now)) report("race: write after read", &range, address, where, reads[i]);
  if (write) e.written = now;
  else remember_read(e, now);
  e.initialised = true;
}

UNCHECKED static void access(void* pointer, size_t bytes, bool write, Kind kind, void* where) {
  using namespace emulator;
  char* p = (char*)pointer;
  if (current == &outside || !bytes) return;
  if (p >= stacks && p < stacks + MAX_THREADS * STACK_BYTES) return;
  if (!write && ((p >= constants && p < constants_end) || (p >= (char*)&indices && p < (char*)(&indices + 1)))) return;
  Range* range = nullptr;
  for (int i = 0; i < range_count && !range; i++)
    if (p >= ranges[i].start && p + bytes <= ranges[i].end) range = &ranges[i];
  if (!range) {
    long nearest = 4096;  // bytes beside an array that tell which was meant
    for (int i = 0; i < range_count; i++) {
      long distance = p < ranges[i].start ? ranges[i].start - p : p - ranges[i].end;
      if (distance < nearest) nearest = distance, range = &ranges[i];
    }
    report(write ? "write out of bounds" : "read out of bounds", range, p, where, nullptr);
    failed = true;
    return switch_to(outside);
  }
  unsigned thread = current->thread;
  Access now = {block, interval, warp_syncs[thread / WARP], (unsigned short)thread, kind};
  for (size_t i = 0; i < bytes; i += range->grain) check_element(*range, p + i, write, now, where);
}

UNCHECKED static void write(void* pointer, size_t bytes, void* where) { access(pointer, bytes, true, PLAIN, where); }
UNCHECKED static void read(const void* pointer, size_t bytes, void* where) {
  access((void*)pointer, bytes, false, PLAIN, where);
}

UNCHECKED static void atomic(void* pointer, size_t bytes, void* where) {
  access(pointer, bytes, false, ATOMIC, where);
  access(pointer, bytes, true, ATOMIC, where);
}

}  // namespace checker

// What a launch may touch besides shared memory, told before it.
extern "C" UNCHECKED void emulator_forget_arrays() {
  checker::argument_count = 0;
  checker::drop_from(0);
}
extern "C" UNCHECKED void emulator_add_array(void* start, unsigned long bytes, unsigned long grain, int argument) {
  checker::add((char*)start, bytes, grain, argument, "an array", false);
  checker::argument_count = checker::range_count;
}

// ------------------------------------------------------------------------------------------- what the compiler calls

#define CALLED extern "C" UNCHECKED __attribute__((visibility("hidden"))) void
#define OF_BYTES(N) \
  CALLED __tsan_read##N(void* p) { checker::access(p, N, false, checker::PLAIN, CALLER); } \
  CALLED __tsan_write##N(void* p) { checker::access(p, N, true, checker::PLAIN, CALLER); } \
  CALLED __tsan_unaligned_read##N(void* p) { checker::access(p, N, false, checker::PLAIN, CALLER); } \
  CALLED __tsan_unaligned_write##N(void* p) { checker::access(p, N, true, checker::PLAIN, CALLER); } \
  CALLED __tsan_volatile_read##N(void* p) { checker::access(p, N, false, checker::PLAIN, CALLER); } \
  CALLED __tsan_volatile_write##N(void* p) { checker::access(p, N, true, checker::PLAIN, CALLER); }
OF_BYTES(1) OF_BYTES(2) OF_BYTES(4) OF_BYTES(8) OF_BYTES(16)
CALLED __tsan_read_range(void* p, unsigned long n) { checker::access(p, n, false, checker::PLAIN, CALLER); }
CALLED __tsan_write_range(void* p, unsigned long n) { checker::access(p, n, true, checker::PLAIN, CALLER); }
CALLED __tsan_init() {}
CALLED __tsan_func_entry(void*) {}
CALLED __tsan_func_exit() {}
