// The device, versions, error texts, and counts of calls.
#include "rig.h"
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

std::recursive_mutex everything;
static std::map<std::string, long> calls;

thread_local bool has_context = false;
static const std::set<std::string> without_context = {
    "cudaDeviceGetAttribute",  "cudaDriverGetVersion", "cudaGetDevice",         "cudaGetDeviceCount",
    "cudaGetDeviceProperties", "cudaGetLastError",     "cudaPeekAtLastError", "cudaRuntimeGetVersion"};

void counted(const char *function) {
  calls[function]++;
  if (!has_context) has_context = !strncmp(function, "cuda", 4) && !without_context.count(function);
}
API long gpu_rig_calls(const char *function) { return calls.count(function) ? calls[function] : 0; }

static int number(const char *name, int otherwise) { return getenv(name) ? atoi(getenv(name)) : otherwise; }

// ------------------------------------------------------------------------------------------------------- errors

static int text_code = 0;
static std::string text;
static int failed_code = 0;
static std::string failed_text;

cudaError_t refuse(int code, const char *format, ...) {
  char buffer[600];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  text_code = code, text = buffer;
  return (cudaError_t)code;
}

void work_failed(int code, const char *why) {
  fprintf(stderr, "gpu rig: %s\n", why);
  if (!failed_code) failed_code = code, failed_text = why;
  drop_all();
}

cudaError_t waited() {
  if (!failed_code) return cudaSuccess;
  const int code = failed_code;
  failed_code = 0;
  return refuse(code, "%s", failed_text.c_str());
}

static const std::map<int, const char *> NAMES = {{1, "InvalidValue"},
                                                  {2, "MemoryAllocation"},
                                                  {100, "NoDevice"},
                                                  {101, "InvalidDevice"},
                                                  {201, "DeviceUninitialized"},
                                                  {209, "NoKernelImageForDevice"}, {218, "InvalidPtx"},
                                                  {400, "InvalidResourceHandle"},
                                                  {401, "IllegalState"},
                                                  {500, "SymbolNotFound"},
                                                  {600, "NotReady"},
                                                  {700, "IllegalAddress"},
                                                  {701, "LaunchOutOfResources"},
                                                  {702, "LaunchTimeout"},
                                                  {716, "MisalignedAddress"},
                                                  {719, "LaunchFailure"},
                                                  {801, "NotSupported"},
                                                  {900, "StreamCaptureUnsupported"},
                                                  {901, "StreamCaptureInvalidated"},
                                                  {905, "StreamCaptureIsolation"}};

static const char *name_of(int code) {
  static std::map<int, std::string> made;
  auto found = NAMES.find(code);
  return (made[code] = std::string("cudaError") + (found == NAMES.end() ? "Unknown" : found->second)).c_str();
}
static const char *text_of(int code) { return code == text_code ? text.c_str() : name_of(code); }

API const char *cudaGetErrorName(cudaError_t code) { return name_of(code); }
API const char *cudaGetErrorString(cudaError_t code) { return text_of(code); }
API cudaError_t cudaGetLastError() { return cudaSuccess; }
API cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
API CUresult cuGetErrorName(CUresult code, const char **out) {
  *out = name_of(code);
  return CUDA_SUCCESS;
}
API CUresult cuGetErrorString(CUresult code, const char **out) {
  *out = text_of(code);
  return CUDA_SUCCESS;
}

// ------------------------------------------------------------------------------------------------------- devices

API cudaError_t cudaDriverGetVersion(int *version) {
  *version = 13000;
  return cudaSuccess;
}
API cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = 13000;
  return cudaSuccess;
}
API CUresult cuDriverGetVersion(int *version) {
  *version = 13000;
  return CUDA_SUCCESS;
}
API CUresult cuInit(unsigned) { return CUDA_SUCCESS; }

API cudaError_t cudaGetDeviceCount(int *count) {
  ENTER;
  *count = 1;
  return cudaSuccess;
}
API cudaError_t cudaGetDevice(int *device) {
  ENTER;
  *device = 0;
  return cudaSuccess;
}
API cudaError_t cudaSetDevice(int device) {
  ENTER;
  return device ? refuse(cudaErrorInvalidDevice, "no device %d", device) : cudaSuccess;
}
API CUresult cuCtxGetCurrent(CUcontext *context) {
  *context = (CUcontext)1;
  return CUDA_SUCCESS;
}
API CUresult cuCtxGetDevice(CUdevice *device) {
  *device = 0;
  return CUDA_SUCCESS;
}
API CUresult cuCtxSetCurrent(CUcontext context) {
  has_context = context;
  return CUDA_SUCCESS;
}

API cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device) {
  ENTER;
  if (device) return refuse(cudaErrorInvalidDevice, "no device %d", device);
  switch ((int)attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMultiProcessorCount: *value = number("GPU_RIG_PROCESSORS", 2); break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 227 << 10; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = 228 << 10; break;
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: *value = 1024; break;
    case cudaDevAttrMaxBlockDimZ: *value = 64; break;
    case cudaDevAttrMaxGridDimX: *value = 0x7fffffff; break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: *value = 65535; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = 65536; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrUnifiedAddressing: *value = 1; break;
    case 95:
    case 96: return refuse(cudaErrorInvalidValue, "no such attribute: %d", (int)attribute);
    default: *value = 0;
  }
  return cudaSuccess;
}

API cudaError_t cudaGetDeviceProperties(cudaDeviceProp *about, int) {
  ENTER;
  memset(about, 0, sizeof *about);
  strcpy(about->name, "the rig: PTX on a CPU");
  about->major = 9, about->multiProcessorCount = number("GPU_RIG_PROCESSORS", 2), about->warpSize = 32;
  about->totalGlobalMem = 8ull << 30, about->sharedMemPerBlock = 48 << 10, about->sharedMemPerBlockOptin = 227 << 10;
  return cudaSuccess;
}
API cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int device) {
  ENTER;
  snprintf(id, size, "0000:%02x:00.0", device);
  return cudaSuccess;
}
API cudaError_t cudaDeviceCanAccessPeer(int *can, int, int) {
  ENTER;
  *can = 0;
  return cudaSuccess;
}
