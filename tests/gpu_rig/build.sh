#!/usr/bin/env bash
# Builds the rig: bash tests/gpu_rig/build.sh FOLDER. Does again only what has changed. Needs python3 with venv and g++;
# all else comes from PyPI. FOLDER/run then runs a command on the rig: FOLDER/run -m pytest -m gpu
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd); home=$(mkdir -p "$1" && cd "$1" && pwd)
venv=$home/venv; python=$venv/bin/python; cupy=14.2.0
CXX=${CXX:-g++}
kernel_flags="-O1 -w -std=c++17 -ffp-contract=off -mfma -fwrapv -fno-strict-aliasing -fPIC"

# 0. One build at a time in this folder.
exec 9>"$home/lock"; flock 9

# 1. A venv of its own, since one file of CuPy is replaced in it.
stamp=$(sha256sum <"$here/requirements.txt" | cut -c1-16)
if [ ! -e "$home/venv-$stamp" ]; then
  rm -rf "$home"/venv*
  "${PYTHON:-python3}" -m venv "$venv"
  "$python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt"
  touch "$home/venv-$stamp"
fi
site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
headers=$(find "$site/nvidia" -name cuda_runtime_api.h -printf '%h\n' | head -1)

# 2. libgpurig: the functions of the CUDA runtime and of its driver that CuPy calls.
stamp=$(cat "$here"/runtime/* "$here"/ptx/*.{h,cpp} "$here/build.sh" | sha256sum | cut -c1-16)
if [ ! -e "$home/library-$stamp" ]; then
  rm -f "$home"/library-*
  for part in "$here"/runtime/*.cpp "$here/ptx/threads.cpp"; do
    "$CXX" -c -O1 -Wall -std=c++17 -fPIC -fvisibility=default -I"$headers" -I"$here/ptx" "$part" -o "$home/$(basename "$part").o"
  done
  "$CXX" -shared "$home"/*.cpp.o -o "$home/libgpurig.so.new" -Wl,-soname,libgpurig.so -ldl
  mv "$home/libgpurig.so.new" "$home/libgpurig.so"  # a process that has the old one keeps it
  rm "$home"/*.cpp.o
  ln -sfn libgpurig.so "$home/libcuda.so.1"
  touch "$home/library-$stamp"
fi

# 3. CuPy's wheel has CUDA's runtime inside one file, linked statically. That file is made anew from CuPy's own source,
#    unchanged, and linked with libgpurig.
runtime=$(ls "$site"/cupy_backends/cuda/api/runtime.cpython-*.so)
if [ ! -e "$home/venv/relinked" ]; then
  cd "$home"
  if [ ! -d "cupy-$cupy" ]; then
    CUPY_INSTALL_USE_STUB=1 "$python" -m pip download --quiet --disable-pip-version-check --no-deps \
      --no-build-isolation --no-binary :all: "cupy==$cupy" -d .
    tar xf "cupy-$cupy.tar.gz"
  fi
  cd "cupy-$cupy"
  "$python" - <<'PYTHON'
from Cython.Build import cythonize
from setuptools import Extension

name = "cupy_backends.cuda.api.runtime"
cythonize(
    [Extension(name, [name.replace(".", "/") + ".pyx"], language="c++")],
    language_level=3,
    compiler_directives={"embedsignature": True, "binding": False, "c_api_binop_methods": True,
                         "warn.deprecated.IF": False},
    compile_time_env={"CUPY_CUDA_VERSION": 13000, "CUPY_HIP_VERSION": 0, "CUPY_CYTHON_VERSION": "3.2.4",
                      "CUPY_USE_CUDA_PYTHON": False, "CUPY_CUFFT_STATIC": False},
)
PYTHON
  "$CXX" -O0 -w -std=c++17 -fPIC -shared -I"$headers" -I. -Icupy_backends -Icupy/_core/include \
    -I"$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')" \
    -I"$("$python" -c 'import numpy; print(numpy.get_include())')" \
    cupy_backends/cuda/api/runtime.cpp -L"$home" -lgpurig -Wl,-rpath,"$home" -o "$runtime.new"
  mv "$runtime.new" "$runtime"
  touch "$home/venv/relinked"
fi

# 4. The translator, the header of translated kernels, compiled beforehand, and the folder that these kernels lie in.
stamp=$({ cat "$here"/ptx/*.*; echo "$kernel_flags"; } | sha256sum | cut -c1-16)
if [ ! -e "$home/kernels-$stamp" ]; then
  rm -rf "$home"/kernels-* "$home/ptx"
  cp -r "$here/ptx" "$home/ptx"
  "$CXX" $kernel_flags -x c++-header "$home/ptx/instructions.h" -o "$home/ptx/instructions.h.gch"
  mkdir "$home/kernels-$stamp"
fi

cat >"$home/run" <<RUN
#!/usr/bin/env bash
# Python on the rig.
export GPU_RIG="$home" GPU_RIG_KERNELS="$home/kernels-$stamp" GPU_RIG_PYTHON="$python"
export GPU_RIG_CXX="$CXX $kernel_flags"
export LD_LIBRARY_PATH="$home\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}" CUPY_CACHE_DIR="$home/cupy" CUPY_COMPILE_WITH_PTX=1
exec "$python" "\$@"
RUN
chmod +x "$home/run"
echo "the rig is ready: $home/run -m pytest -m gpu"
