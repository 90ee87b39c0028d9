// Counts what warps ask of memory, while gpu_rig_count is on: the 32-byte sectors of global memory that an access
// touches, and the cycles that the 32 banks of shared memory need for it. Each beside the least that would do.
//
// The threads of a block run one after the other. So those of a warp are brought together afterwards: the n-th time that
// a lane comes to an access of the kernel's text belongs to the n-th time that the other lanes do.
#include "rig.h"
#include <algorithm>
#include <cstdio>
#include <cstring>
#include "thread.h"

struct Access {
  u32 site, bytes;
  bool shared, store;
  u64 address;
};
struct Count {
  u64 accesses, bytes, cost, least, worst;  // worst: the most that one access cost
};
struct Counts {
  Count of[2][2] = {};  // [shared][store]
};
bool counting = false;
static std::map<u32, std::vector<Access>> noted;   // by each thread of the block
static std::map<std::string, Counts> all_counted;  // of each kernel

void note(const Thread &t, u32 site, bool shared, bool store, u64 address, u32 bytes) {
  noted[t.index].push_back({site, bytes, shared, store, address});
}

static u64 distinct(std::vector<u64> &x) {
  std::sort(x.begin(), x.end());
  return std::unique(x.begin(), x.end()) - x.begin();
}

// Sectors of 32 bytes.
static void count_global(Count &c, const std::vector<const Access *> &lanes) {
  std::vector<u64> sectors, numbers;
  for (auto *lane : lanes) sectors.push_back(lane->address / 32), numbers.push_back(lane->address);
  const u64 cost = distinct(sectors);
  c.cost += cost, c.worst = std::max(c.worst, cost);
  c.least += (distinct(numbers) * lanes[0]->bytes + 31) / 32;
}

// Cycles. In one cycle each bank gives one word of 4 bytes, to all lanes that want it. A warp's accesses of 8 bytes are
// done by halves, of 16 by quarters.
static void count_shared(Count &c, const std::vector<const Access *> &lanes, const std::vector<u32> &numbers) {
  const u32 at_once = 32 / std::max(1u, lanes[0]->bytes / 4);
  u64 cost = 0;
  for (u32 first = 0; first < 32; first += at_once) {
    std::vector<u64> banks[32];
    u64 cycles = 0;
    for (size_t i = 0; i < lanes.size(); i++)
      if (numbers[i] / at_once == first / at_once)
        for (u64 word = lanes[i]->address / 4; word * 4 < lanes[i]->address + lanes[i]->bytes; word++)
          banks[word % 32].push_back(word);
    for (auto &words : banks) cycles = std::max(cycles, distinct(words));
    cost += cycles, c.least += cycles > 0;
  }
  c.cost += cost, c.worst = std::max(c.worst, cost);
}

void count_block(const char *kernel) {
  auto &counted = all_counted[kernel].of;
  const u32 threads = noted.empty() ? 0 : noted.rbegin()->first + 1;
  for (u32 first = 0; first < threads; first += 32) {
    std::map<std::pair<u32, u32>, std::vector<std::pair<u32, const Access *>>> together;  // by site and which time
    for (u32 lane = 0; lane < 32; lane++) {
      std::map<u32, u32> times;
      for (const Access &each : noted[first + lane])
        together[{each.site * 2 + each.shared, times[each.site]++}].push_back({lane, &each});
    }
    for (auto &[key, pairs] : together) {
      std::vector<const Access *> lanes;
      std::vector<u32> numbers;
      for (auto &[lane, access] : pairs) numbers.push_back(lane), lanes.push_back(access);
      const Access &one = *lanes[0];
      Count &c = counted[one.shared][one.store];
      c.accesses++, c.bytes += lanes.size() * one.bytes;
      one.shared ? count_shared(c, lanes, numbers) : count_global(c, lanes);
    }
  }
  noted.clear();
}

API void gpu_rig_count(bool on) {
  ENTER;
  counting = on;
  if (on) all_counted.clear();
}

// A line for each kernel and kind of access: kernel, shared or global, load or store, and the numbers of Count.
API const char *gpu_rig_counted() {
  ENTER;
  static std::string text;
  text.clear();
  for (auto &[kernel, counted] : all_counted)
    for (int shared = 0; shared < 2; shared++)
      for (int store = 0; store < 2; store++) {
        const Count &c = counted.of[shared][store];
        char line[300];
        snprintf(line, sizeof line, "%s %s %s %llu %llu %llu %llu %llu\n", kernel.c_str(), shared ? "shared" : "global",
                 store ? "store" : "load", (unsigned long long)c.accesses, (unsigned long long)c.bytes,
                 (unsigned long long)c.cost, (unsigned long long)c.least, (unsigned long long)c.worst);
        text += line;
      }
  return text.c_str();
}
