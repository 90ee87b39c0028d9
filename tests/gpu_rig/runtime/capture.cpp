// Stream capture and graphs: what is captured, what is refused meanwhile, and with which code.
#include "rig.h"
#include <algorithm>

typedef std::vector<std::function<void()>> Nodes;
static std::vector<Capture *> active;
static thread_local std::vector<Capture *> begun_here;

cudaError_t invalidate(Capture &capture, int code, const char *why) {
  capture.invalid = true;
  return refuse(code, "%s", why);
}
cudaError_t refuse_wait(Stream &s) {
  return s.capture ? invalidate(*s.capture, 900, "a wait for a stream that is being captured") : cudaSuccess;
}
cudaError_t refuse_wait_device() {
  cudaError_t error = cudaSuccess;
  for (Capture *capture : active)
    error = invalidate(*capture, 900, "a wait for a device, one of whose streams is being captured");
  return error;
}
cudaError_t refuse_unsafe(const char *function) {
  cudaError_t error = cudaSuccess;
  for (Capture *capture : active) {
    const bool here = std::count(begun_here.begin(), begun_here.end(), capture);
    if (capture->mode == cudaStreamCaptureModeGlobal || (capture->mode == cudaStreamCaptureModeThreadLocal && here)) {
      capture->invalid = true;
      error = refuse(900, "%s while a stream is captured, in a mode that is not relaxed", function);
    }
  }
  return error;
}
cudaError_t refuse_legacy() {
  for (Capture *capture : active)
    if (capture->origin->blocking)
      return invalidate(*capture, 906, "use of the legacy stream while a stream that waits for it is being captured");
  return cudaSuccess;
}

API cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  ENTER;
  Stream &s = stream_of(stream);
  if (s.legacy) return refuse(900, "the legacy stream cannot be captured");
  if (s.capture) return refuse(cudaErrorIllegalState, "this stream is being captured already");
  s.capture = new Capture{&s, mode, {}, {}};
  active.push_back(s.capture);
  begun_here.push_back(s.capture);
  return cudaSuccess;
}
API cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  ENTER;
  Stream &s = stream_of(stream);
  *graph = nullptr;
  if (!s.capture) return refuse(cudaErrorIllegalState, "this stream is not being captured");
  Capture *capture = s.capture;
  if (capture->origin != &s) return invalidate(*capture, 903, "a capture is ended by the stream that it began with");
  bool unjoined = false;
  for (auto &other : capture->joined) other.first->capture = nullptr, unjoined |= other.second;
  s.capture = nullptr;
  active.erase(std::remove(active.begin(), active.end(), capture), active.end());
  begun_here.erase(std::remove(begun_here.begin(), begun_here.end(), capture), begun_here.end());
  if (capture->invalid) return refuse(901, "the capture was invalidated by what was refused during it");
  if (unjoined) return refuse(904, "a stream has work in this capture that the first stream has not waited for");
  *graph = (cudaGraph_t) new Nodes(std::move(capture->nodes));
  return cudaSuccess;  // a Capture is never deleted: events point to it
}
API cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
  ENTER;
  const Stream &s = stream_of(stream);
  if (s.legacy)
    if (auto error = refuse_legacy()) return error;
  *status = !s.capture           ? cudaStreamCaptureStatusNone
            : s.capture->invalid ? cudaStreamCaptureStatusInvalidated
                                 : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

API cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long) {
  ENTER;
  *executable = (cudaGraphExec_t) new Nodes(*(Nodes *)graph);
  return cudaSuccess;
}
API cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  ENTER;
  return cudaSuccess;
}
API cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  ENTER;
  Stream &s = stream_of(stream);
  for (auto &node : *(Nodes *)executable)
    if (auto error = enqueue(s, node)) return error;
  return cudaSuccess;
}
API cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  ENTER;
  delete (Nodes *)graph;
  return cudaSuccess;
}
API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  ENTER;
  delete (Nodes *)executable;
  return cudaSuccess;
}
