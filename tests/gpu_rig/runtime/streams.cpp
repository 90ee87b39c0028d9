// Streams, whose work is done as late as CUDA allows: when something waits for it. So what was not waited for is seen
// not to be there. Events are places in streams.
#include "rig.h"
#include <cstdint>

static const size_t MOST = 20000;      // pieces of work that a stream keeps, before it does the oldest
static std::vector<Stream *> streams;  // never deleted: marks point to them

struct Event {
  Mark mark{nullptr, 0};
};

static Stream &legacy() {
  static Stream *s = nullptr;
  if (!s) {
    streams.push_back(s = new Stream);
    s->legacy = true;
  }
  return *s;
}

Stream &stream_of(cudaStream_t handle) { return (uintptr_t)handle <= 2 ? legacy() : *(Stream *)handle; }

cudaError_t enqueue(Stream &s, std::function<void()> run, std::vector<Mark> after) {
  if (s.capture) {
    if (s.capture->invalid) return refuse(901, "the capture was invalidated before");
    s.capture->nodes.push_back(std::move(run));
    return cudaSuccess;
  }
  if (s.legacy) {  // it waits for all blocking streams, and they wait for it
    for (Stream *other : streams)
      if (other->blocking && !other->legacy && other->done < other->queued)
        after.push_back({other, other->queued});
  } else if (s.blocking)
    after.push_back({&legacy(), legacy().queued});
  s.work.push_back({std::move(run), std::move(after)});
  s.queued++;
  if (s.work.size() > MOST) run_until({&s, s.done + 1});
  return cudaSuccess;
}

void run_until(const Mark &mark) {
  Stream &s = *mark.stream;
  while (s.done < mark.number && !s.work.empty()) {
    Work work = std::move(s.work.front());
    s.work.pop_front();
    for (const Mark &before : work.after) run_until(before);
    if (s.done < s.queued) s.done++;  // drop_all may have come between
    work.run();
  }
}
void run_all() {
  for (size_t i = 0; i < streams.size(); i++) run_until({streams[i], streams[i]->queued});
}
void drop_all() {
  for (Stream *s : streams) s->work.clear(), s->done = s->queued;
}
bool any_pending(const Stream &s) { return s.done < s.queued; }

API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
  ENTER;
  Stream *s = new Stream;
  s->blocking = !(flags & cudaStreamNonBlocking);
  streams.push_back(s);
  *out = (cudaStream_t)s;
  return cudaSuccess;
}
API cudaError_t cudaStreamCreate(cudaStream_t *out) { return cudaStreamCreateWithFlags(out, 0); }
API cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int) {
  return cudaStreamCreateWithFlags(out, flags);
}
API cudaError_t cudaStreamDestroy(cudaStream_t) {
  ENTER;
  return cudaSuccess;
}  // its work is still done
API cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned *flags) {
  ENTER;
  *flags = stream_of(stream).blocking ? 0 : cudaStreamNonBlocking;
  return cudaSuccess;
}
API cudaError_t cudaStreamGetPriority(cudaStream_t, int *priority) {
  ENTER;
  *priority = 0;
  return cudaSuccess;
}

API cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  ENTER;
  Stream &s = stream_of(stream);
  if (auto error = refuse_wait(s)) return error;
  if (s.legacy)
    if (auto error = enqueue(s, [] {})) return error;  // so that it waits for the blocking streams
  run_until({&s, s.queued});
  return waited();
}
API cudaError_t cudaDeviceSynchronize() {
  ENTER;
  if (auto error = refuse_wait_device()) return error;
  run_all();
  return waited();
}
API cudaError_t cudaStreamQuery(cudaStream_t stream) {
  ENTER;
  Stream &s = stream_of(stream);
  if (auto error = refuse_wait(s)) return error;
  if (!any_pending(s)) return waited();
  run_until({&s, s.done + 1});  // whoever asks again and again gets there
  return cudaErrorNotReady;
}

API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned) {
  ENTER;
  *out = (cudaEvent_t) new Event;
  return cudaSuccess;
}
API cudaError_t cudaEventCreate(cudaEvent_t *out) { return cudaEventCreateWithFlags(out, 0); }
API cudaError_t cudaEventDestroy(cudaEvent_t event) {
  ENTER;
  delete (Event *)event;
  return cudaSuccess;
}
API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  ENTER;
  Event &e = *(Event *)event;
  Stream &s = stream_of(stream);
  if (s.capture) return invalidate(*s.capture, 801, "the rig has no events in a captured stream");
  if (auto error = enqueue(s, [] {})) return error;
  e.mark = {&s, s.queued};
  return cudaSuccess;
}
API cudaError_t cudaEventQuery(cudaEvent_t event) {
  ENTER;
  const Event &e = *(Event *)event;
  if (!e.mark.stream || e.mark.stream->done >= e.mark.number) return cudaSuccess;
  run_until({e.mark.stream, e.mark.stream->done + 1});
  return cudaErrorNotReady;
}
API cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ENTER;
  const Event &e = *(Event *)event;
  if (e.mark.stream) run_until(e.mark);
  return waited();
}
static cudaError_t elapsed(float *ms) {
  *ms = 0;
  return cudaSuccess;
}  // the rig has no clock
API cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t, cudaEvent_t) {
  ENTER;
  return elapsed(ms);
}
API cudaError_t cudaEventElapsedTime_v2(float *ms, cudaEvent_t, cudaEvent_t) {
  ENTER;
  return elapsed(ms);
}

API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  ENTER;
  Stream &s = stream_of(stream);
  const Event &e = *(Event *)event;
  if (s.capture)
    return invalidate(*s.capture, 905, "a captured stream waits for an event from outside of the capture");
  return e.mark.stream ? enqueue(s, [] {}, {e.mark}) : cudaSuccess;
}
