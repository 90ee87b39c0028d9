// The driver's part: modules of PTX, kernels that are translated and compiled when they are first needed, and launches.
#include "rig.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <iterator>
#include <unistd.h>
#include "thread.h"

static const unsigned SHARED = 48 << 10, SHARED_OPTED_IN = 227 << 10;
struct Module {
  std::string ptx;
};
struct Function {
  Module *module;
  std::string name;
  const KernelInfo *info = nullptr;
  int max_dynamic = -1;
};

static std::string setting(const char *name) {
  const char *value = getenv(name);
  if (!value) fprintf(stderr, "gpu rig: %s is not set; start Python by the rig's own `run`\n", name), abort();
  return value;
}

// The kernel as a shared library in GPU_RIG_KERNELS, named by its text; made under a name of one's own, then renamed.
static CUresult load(Function &f) {
  if (f.info) return CUDA_SUCCESS;
  static const std::string home = setting("GPU_RIG"), folder = setting("GPU_RIG_KERNELS");
  char hash[32];
  snprintf(hash, sizeof hash, "_%016zx", std::hash<std::string>()(f.module->ptx + '\0' + f.name));
  const std::string base = folder + "/" + f.name + hash, own = base + "." + std::to_string(getpid());
  if (access((base + ".so").c_str(), R_OK)) {
    FILE *file = fopen((own + ".ptx").c_str(), "w");
    if (!file) return (CUresult)refuse(CUDA_ERROR_OPERATING_SYSTEM, "cannot write to %s", folder.c_str());
    fwrite(f.module->ptx.data(), 1, f.module->ptx.size(), file);
    fclose(file);
    const std::string named = "'" + own + "'";  // a folder's name may have spaces
    const std::string translate = "cd '" + home + "' && env -u PYTHONPATH '" + setting("GPU_RIG_PYTHON") +
                                  "' -S -m ptx.translate " + named + ".ptx " + f.name + " " + named + ".cpp >&2 && ";
    const std::string compile =
        setting("GPU_RIG_CXX") + " -shared -Iptx " + named + ".cpp -L. -lgpurig -o " + named + ".so && ";
    const std::string command = translate + compile + "mv " + named + ".so '" + base + ".so'";
    const bool failed = system(command.c_str());
    unlink((own + ".cpp").c_str()), unlink((own + ".ptx").c_str());
    if (failed)
      return (CUresult)refuse(CUDA_ERROR_INVALID_PTX, "kernel %s cannot be translated: see stderr", f.name.c_str());
  }
  void *library = dlopen((base + ".so").c_str(), RTLD_NOW);
  f.info = library ? (const KernelInfo *)dlsym(library, "kernel_info") : nullptr;
  return f.info ? CUDA_SUCCESS : (CUresult)refuse(CUDA_ERROR_INVALID_IMAGE, "kernel %s: %s", f.name.c_str(), dlerror());
}

API CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  ENTER;
  if (!memcmp(image,
              "\x7f"
              "ELF",
              4))
    return (CUresult)refuse(CUDA_ERROR_NO_BINARY_FOR_GPU, "the rig runs PTX, not a GPU's machine code: compile to PTX");
  *module = (CUmodule) new Module{(const char *)image};
  return CUDA_SUCCESS;
}
API CUresult cuModuleLoad(CUmodule *module, const char *path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return (CUresult)refuse(CUDA_ERROR_FILE_NOT_FOUND, "there is no file %s", path);
  const std::string image((std::istreambuf_iterator<char>(file)), {});
  return cuModuleLoadData(module, image.c_str());
}
API CUresult cuModuleUnload(CUmodule) {
  ENTER;
  return CUDA_SUCCESS;
}  // queued launches may still need it
API CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  ENTER;
  Module *m = (Module *)module;
  if (m->ptx.find(".entry " + std::string(name) + "(") == std::string::npos)
    return (CUresult)refuse(CUDA_ERROR_NOT_FOUND, "no kernel %s in this module", name);
  *function = (CUfunction) new Function{m, name};
  return CUDA_SUCCESS;
}

// CuPy links what it compiles to PTX. Here PTX stays what it is.
static std::string linked;
API CUresult cuLinkCreate_v2(unsigned, CUjit_option *, void **, CUlinkState *state) {
  ENTER;
  *state = (CUlinkState)1;
  return CUDA_SUCCESS;
}
API CUresult cuLinkAddData_v2(CUlinkState, CUjitInputType, void *data, size_t size, const char *, unsigned,
                              CUjit_option *, void **) {
  ENTER;
  linked.assign((char *)data, size);
  return CUDA_SUCCESS;
}
API CUresult cuLinkComplete(CUlinkState, void **data, size_t *size) {
  ENTER;
  *data = (void *)linked.data(), *size = linked.size();
  return CUDA_SUCCESS;
}
API CUresult cuLinkDestroy(CUlinkState) {
  ENTER;
  return CUDA_SUCCESS;
}

// ------------------------------------------------------------------------------------------------------ launches

static CUresult no_context(const Function &f) {
  return (CUresult)refuse(CUDA_ERROR_INVALID_CONTEXT,
                          "kernel %s: this thread has no context, which the runtime gives and the driver does not",
                          f.name.c_str());
}

API CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  ENTER;
  Function &f = *(Function *)function;
  if (!has_context) return no_context(f);
  if (auto error = load(f)) return error;
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_SUCCESS;  // preferences
  if (value < 0 || value + f.info->static_shared > SHARED_OPTED_IN)
    return (CUresult)refuse(CUDA_ERROR_INVALID_VALUE,
                            "kernel %s: %d bytes of dynamic and %u of static shared memory are more than %u",
                            f.name.c_str(), value, f.info->static_shared, SHARED_OPTED_IN);
  f.max_dynamic = value;
  return CUDA_SUCCESS;
}
API CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
  ENTER;
  Function &f = *(Function *)function;
  if (auto error = load(f)) return error;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = f.max_dynamic < 0 ? SHARED - f.info->static_shared : f.max_dynamic;
      break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = f.info->static_shared; break;
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = f.info->max_threads; break;
    default: *value = 0;
  }
  return CUDA_SUCCESS;
}

static CUresult impossible(const Function &f, const char *what, unsigned long long asked, unsigned most) {
  return (CUresult)refuse(CUDA_ERROR_INVALID_VALUE, "kernel %s cannot be launched: %s is %llu, of at most %u",
                          f.name.c_str(), what, asked, most);
}

static CUresult check(const Function &f, const unsigned grid[3], const unsigned block[3], unsigned shared) {
  const char *names[] = {"grid.x", "grid.y", "grid.z", "block.x", "block.y", "block.z"};
  const unsigned most_blocks[] = {0x7fffffff, 65535, 65535}, most_threads[] = {1024, 1024, 64};
  for (int i = 0; i < 3; i++) {
    if (!grid[i] || grid[i] > most_blocks[i]) return impossible(f, names[i], grid[i], most_blocks[i]);
    if (!block[i] || block[i] > most_threads[i]) return impossible(f, names[3 + i], block[i], most_threads[i]);
  }
  const unsigned threads = block[0] * block[1] * block[2];
  if (threads > 1024) return impossible(f, "the number of threads", threads, 1024);
  if (threads > f.info->max_threads)
    return impossible(f, "the number of threads, by __launch_bounds__,", threads, f.info->max_threads);
  const unsigned most = f.max_dynamic < 0                                ? SHARED
                        : f.max_dynamic + f.info->static_shared > SHARED ? f.max_dynamic + f.info->static_shared
                                                                         : SHARED;
  if ((unsigned long long)shared + f.info->static_shared > most)
    return impossible(f, "static and dynamic shared memory together", shared + f.info->static_shared, most);
  return CUDA_SUCCESS;
}

API CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                            unsigned bz, unsigned shared, CUstream stream, void **arguments, void **) {
  ENTER;
  if (!function) return (CUresult)refuse(CUDA_ERROR_INVALID_HANDLE, "a launch of no kernel");
  Function &f = *(Function *)function;
  if (!has_context) return no_context(f);
  if (auto error = load(f)) return error;
  const std::vector<unsigned> shape = {gx, gy, gz, bx, by, bz};
  if (auto error = check(f, &shape[0], &shape[3], shared)) return error;
  const KernelInfo *info = f.info;
  std::vector<u8> parameters(info->parameter_bytes + 16);
  for (unsigned i = 0; i < info->parameters; i++) memcpy(&parameters[info->offsets[i]], arguments[i], info->sizes[i]);
  Stream &s = stream_of((cudaStream_t)stream);
  return (CUresult)enqueue(s, [=] {
    Failure failure;
    if (!run_kernel(info, &shape[0], &shape[3], shared, parameters.data(), &failure))
      work_failed(failure.code, failure.text);
  });
}
