// Stream capture and graphs: what is captured, what is refused meanwhile, and with which code. A captured stream is one
// that does not block, in relaxed mode, and no other stream takes part.
#include "rig.h"
#include <algorithm>
#include <memory>

typedef std::vector<std::function<void()>> Nodes;
static std::vector<Capture *> active;

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

API cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  ENTER;
  Stream &s = stream_of(stream);
  if (s.legacy || s.blocking || mode != cudaStreamCaptureModeRelaxed)
    return refuse(801, "the rig captures streams that do not block, in relaxed mode");
  if (s.capture) return refuse(cudaErrorIllegalState, "this stream is being captured already");
  active.push_back(s.capture = new Capture);
  return cudaSuccess;
}
API cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  ENTER;
  Stream &s = stream_of(stream);
  *graph = nullptr;
  if (!s.capture) return refuse(cudaErrorIllegalState, "this stream is not being captured");
  Capture *capture = s.capture;
  s.capture = nullptr;
  active.erase(std::remove(active.begin(), active.end(), capture), active.end());
  std::unique_ptr<Capture> over(capture);
  if (capture->invalid) return refuse(901, "the capture was invalidated by what was refused during it");
  *graph = (cudaGraph_t) new Nodes(std::move(capture->nodes));
  return cudaSuccess;
}
API cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
  ENTER;
  const Stream &s = stream_of(stream);
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
