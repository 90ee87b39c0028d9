// What the files of this folder share: the one device's memory, streams of queued work, captures, and errors.
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>
#undef cudaGetDeviceProperties
#undef cudaStreamGetCaptureInfo
#undef cudaEventElapsedTime

#define API extern "C" __attribute__((visibility("default")))
#define ENTER                                              \
  std::lock_guard<std::recursive_mutex> guard(everything); \
  counted(__func__)

extern std::recursive_mutex everything;  // one call at a time
void counted(const char *function);

// ---- errors
// A call that is refused says why: cudaGetErrorString and cuGetErrorString give that text until the next refusal.
cudaError_t refuse(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
void work_failed(int code, const char *text);  // kept for the next call that waits; drops all queued work
cudaError_t waited();                          // what a call that has waited answers: that failure, once

extern thread_local bool has_context;  // has this thread called the runtime, which gives it one?

// ---- memory
struct Allocation {
  size_t bytes;
  bool pinned;
};
const Allocation *allocation_of(const void *, size_t bytes);  // that all of these bytes lie in, or null

// ---- streams
struct Stream;
struct Mark {
  Stream *stream;
  unsigned long long number;
};  // a stream, and how much of its work
struct Work {
  std::function<void()> run;
  std::vector<Mark> after;
};

struct Capture {
  std::vector<std::function<void()>> nodes;
  bool invalid = false;
};

struct Stream {
  bool legacy = false, blocking = true;
  std::deque<Work> work;
  unsigned long long queued = 0, done = 0;
  Capture *capture = nullptr;
};

Stream &stream_of(cudaStream_t);
cudaError_t enqueue(Stream &, std::function<void()>, std::vector<Mark> after = {});
void run_until(const Mark &);
void run_all();
void drop_all();
bool any_pending(const Stream &);

// ---- capture.cpp
cudaError_t refuse_wait(Stream &);  // waiting for a stream, or asking it anything, while it is captured
cudaError_t refuse_wait_device();
cudaError_t invalidate(Capture &, int code, const char *why);
