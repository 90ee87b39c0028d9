// Memory, on the device or page-locked on the host, and copies.
#include "rig.h"
#include <cstdlib>
#include <cstring>
#include <memory>
#include "thread.h"

static std::map<const char *, Allocation> allocations;

const Allocation *allocation_of(const void *at, size_t bytes) {
  auto next = allocations.upper_bound((const char *)at);
  if (next == allocations.begin()) return nullptr;
  --next;
  return (const char *)at + bytes <= next->first + next->second.bytes ? &next->second : nullptr;
}

static const char *find(u64 address, u32 bytes, u64 *low, u64 *high) {
  auto next = allocations.upper_bound((const char *)address);
  if (next == allocations.begin()) return "nothing is allocated there";
  --next;
  const Allocation &found = next->second;
  *low = (u64)next->first, *high = *low + found.bytes;
  if (address >= *high) return "it is behind the end of an allocation, or was freed";
  if (address + bytes > *high) return "it reaches over the end of its allocation";
  return nullptr;
}
static const bool found_by = (set_find_global(find), true);

static void *allocate(size_t bytes, size_t align, int fill, bool pinned) {
  void *at = aligned_alloc(align, (bytes / align + 1) * align);
  memset(at, fill, bytes);  // 0xff: NaN, or -1
  allocations[(char *)at] = {bytes, pinned};
  return at;
}

static cudaError_t release(void *at, bool pinned) {
  auto found = allocations.find((char *)at);
  if (found == allocations.end() || found->second.pinned != pinned)
    return refuse(cudaErrorInvalidValue, "free of %p, which is not the start of an allocation", at);
  run_all();  // a free waits
  allocations.erase(found);
  free(at);
  return cudaSuccess;
}

API cudaError_t cudaMalloc(void **at, size_t bytes) {
  ENTER;
  if (bytes > 16ull << 30) return refuse(cudaErrorMemoryAllocation, "out of memory: %zu bytes", bytes);
  *at = allocate(bytes, 512, 0xff, false);
  return cudaSuccess;
}
API cudaError_t cudaHostAlloc(void **at, size_t bytes, unsigned) {
  ENTER;
  *at = allocate(bytes, 4096, 0xee, true);
  return cudaSuccess;
}
API cudaError_t cudaFree(void *at) {
  ENTER;
  if (!at) return cudaSuccess;
  return release(at, false);
}
API cudaError_t cudaFreeHost(void *at) {
  ENTER;
  return release(at, true);
}
API cudaError_t cudaMemGetInfo(size_t *unused, size_t *total) {
  ENTER;
  *total = 8ull << 30, *unused = *total;
  for (auto &each : allocations)
    if (!each.second.pinned)
      *unused -= each.second.bytes < *unused ? each.second.bytes : *unused;
  return cudaSuccess;
}

API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *about, const void *at) {
  ENTER;
  memset(about, 0, sizeof *about);
  const Allocation *found = allocation_of(at, 1);
  about->type = !found ? cudaMemoryTypeUnregistered : found->pinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  about->device = found ? 0 : -2;
  about->devicePointer = found ? (void *)at : nullptr;
  about->hostPointer = found && !found->pinned ? nullptr : (void *)at;
  return cudaSuccess;
}

// ------------------------------------------------------------------------------------------------------- copies

static bool on_device(const void *at, size_t bytes) {
  const Allocation *found = allocation_of(at, bytes);
  return found && !found->pinned;
}
static bool pinned(const void *at, size_t bytes) {
  const Allocation *found = allocation_of(at, bytes);
  return found && found->pinned;
}

// When a copy is done, its memory still has to be there.
static void copy_now(void *to, const void *from, size_t bytes, bool to_device, bool from_device) {
  if ((to_device && !allocation_of(to, bytes)) || (from_device && !allocation_of(from, bytes)))
    return work_failed(cudaErrorIllegalAddress, "a copy of memory that was freed before the copy was done");
  memmove(to, from, bytes);
}

static cudaError_t copy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, Stream &s, bool async) {
  if (!bytes) return cudaSuccess;
  if (kind == cudaMemcpyDefault)
    kind = on_device(to, bytes)     ? on_device(from, bytes) ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice
           : on_device(from, bytes) ? cudaMemcpyDeviceToHost
                                    : cudaMemcpyHostToHost;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if ((to_device && !on_device(to, bytes)) || (from_device && !on_device(from, bytes)))
    return refuse(cudaErrorInvalidValue, "a copy of %zu bytes, which are not all in one allocation of a device", bytes);
  const bool pageable =
      (to_device && !from_device && !pinned(from, bytes)) || (from_device && !to_device && !pinned(to, bytes));
  const bool waits = !async || (pageable && from_device);
  counted(to_device ? from_device ? "copies within devices" : "uploads" : waits ? "downloads" : "queued downloads");
  if (s.capture && pageable)  // not in the documentation, so on the safe side: it would need the host at every replay
    return invalidate(*s.capture, 900,
                      "a copy from or to memory that is not page-locked, in a stream that is captured");
  if (!async && s.capture) return refuse_wait(s);
  if (pageable && to_device) {  // the source may change as soon as the call returns
    auto kept = std::make_shared<std::vector<char>>((const char *)from, (const char *)from + bytes);
    if (auto error = enqueue(s, [=] { copy_now(to, kept->data(), bytes, true, false); })) return error;
  } else if (auto error = enqueue(s, [=] { copy_now(to, from, bytes, to_device, from_device); }))
    return error;
  if (!waits) return cudaSuccess;
  run_until({&s, s.queued});
  return waited();
}

API cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  ENTER;
  return copy(to, from, bytes, kind, stream_of(stream), true);
}
API cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  ENTER;
  return copy(to, from, bytes, kind, stream_of(nullptr), false);
}
API cudaError_t cudaMemcpyPeerAsync(void *to, int, const void *from, int, size_t bytes, cudaStream_t stream) {
  ENTER;
  return copy(to, from, bytes, cudaMemcpyDeviceToDevice, stream_of(stream), true);
}
API cudaError_t cudaMemcpyPeer(void *to, int, const void *from, int, size_t bytes) {
  ENTER;
  return copy(to, from, bytes, cudaMemcpyDeviceToDevice, stream_of(nullptr), false);
}
API cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream) {
  ENTER;
  if (bytes && !on_device(at, bytes)) return refuse(cudaErrorInvalidValue, "memset outside an allocation of a device");
  return enqueue(stream_of(stream), [=] {
    if (bytes && !on_device(at, bytes))
      work_failed(cudaErrorIllegalAddress, "memset of memory that was freed before");
    else
      memset(at, value, bytes);
  });
}
API cudaError_t cudaMemset(void *at, int value, size_t bytes) { return cudaMemsetAsync(at, value, bytes, nullptr); }
