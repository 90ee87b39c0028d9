"""What NVRTC makes for a GPU: with denormals, kept on disk, and made again where what is kept is of no use."""

import errno
import importlib.util
import os
import types

import pytest

from minigrad.backend.runners import nvrtc
from minigrad.backend.runners.toolchain import CompilerError

from .kernel_cache import end, start

needs_cupy = pytest.mark.skipif(
    importlib.util.find_spec("cupy") is None, reason="no GPU's compiler: CuPy is not installed"
)
SOURCE = 'extern "C" __global__ void k(float* x) { x[0] = -x[0] * 2.5f + x[1] / x[2]; }'


class Counted(nvrtc.Nvrtc):
    """For which a source, compiled, stays what it is. It counts what it compiles."""

    build = "one"

    def __init__(self, target="sm_90", headers=None):
        self.target, self.headers, self.count = target, headers, 0

    def compiled(self, code, label, *options):
        self.count += 1
        return code.encode(), ""


@pytest.fixture
def source(monkeypatch):
    """What kernels/any.cu would be; it can be changed."""
    found = types.SimpleNamespace(text="one")
    monkeypatch.setattr(nvrtc, "text", lambda file, *of: found.text)
    nvrtc._complain.cache_clear()
    return found


# ---------------------------------------------------------------------------------------------------------- denormals


@needs_cupy
@pytest.mark.parametrize("target", ["compute_80", "sm_80"])
def test_denormals_are_not_flushed_to_zero(target):
    import cupy

    made, _ = nvrtc.Nvrtc(cupy, target).compiled(SOURCE, "denormals")
    assert made[:4] == b"\x7fELF" if target == "sm_80" else b".entry k(" in made
    if target == "compute_80":
        assert b"neg.f32" in made or b"fma.rn.f32" in made
        assert b"ftz" not in made


@needs_cupy
def test_what_does_not_compile_is_said():
    import cupy

    with pytest.raises(CompilerError, match=r"(?s)NVRTC cannot compile bad:\n.*identifier .y. is undefined"):
        nvrtc.Nvrtc(cupy, "sm_90").compiled("int x = y;", "bad")


@needs_cupy
def test_its_build_is_named():
    """By more than the version: machine code of another build is another."""
    import cupy

    version = "{}.{}".format(*cupy.cuda.nvrtc.getVersion())
    assert f"release {version}, V{version}." in nvrtc.Nvrtc(cupy, "sm_90").build


@pytest.mark.parametrize(
    "capability, ptx, found",
    [("90", "0", "sm_90"), ("86", None, "compute_80"), ("120", None, "compute_90"), ("90", "1", "compute_90")],
)
def test_machine_code_for_the_gpu_or_ptx(monkeypatch, capability, ptx, found):
    if ptx is not None:
        monkeypatch.setenv("CUPY_COMPILE_WITH_PTX", ptx)
    else:
        monkeypatch.delenv("CUPY_COMPILE_WITH_PTX", raising=False)
    known = types.SimpleNamespace(getSupportedArchs=lambda: (75, 80, 90))
    assert nvrtc.target(types.SimpleNamespace(cuda=types.SimpleNamespace(nvrtc=known)), capability) == found


# ---------------------------------------------------------------------------------------------------------- the cache


def test_compiles_once(cache, source):
    one, two = Counted(), Counted()
    assert [on.binary("any", "float32") for on in (one, one, two)] == [b"one"] * 3
    assert (one.count, two.count) == (1, 0)
    (kept,) = cache.glob("*.cubin")
    assert kept.name.startswith("any-float32-sm_90-") and kept.stat().st_mode & 0o777 == 0o600
    assert list(cache.iterdir()) == [kept]  # nothing half made


def test_another_source_target_or_compiler_is_compiled(cache, source, monkeypatch):
    Counted().binary("any", "float32")
    for change in (
        lambda: setattr(source, "text", "two"),
        lambda: monkeypatch.setattr(nvrtc, "OPTIONS", ("-std=c++20",)),
        lambda: monkeypatch.setattr(Counted, "build", "another"),
    ):
        change()
        on = Counted()
        assert on.binary("any", "float32") == source.text.encode() and on.count == 1
    for on in (Counted("sm_80"), Counted(headers=("/include", 1, 1))):
        on.binary("any", "float32")
        assert on.count == 1
    assert len(list(cache.glob("*.cubin"))) == 6


@pytest.mark.parametrize("damage", [b"", b"one", b"\xff" * 35])
def test_damaged_files_are_made_again(cache, source, damage, caplog):
    Counted().binary("any", "float32")
    (kept,) = cache.glob("*.cubin")
    kept.write_bytes(damage)
    for count in (1, 0):
        on = Counted()
        assert on.binary("any", "float32") == b"one" and on.count == count
    assert caplog.text.count("is damaged; compiling it again") == 1


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("step", ["os.open", "os.fsync", "os.replace"])
def test_without_room_or_right_nothing_is_kept(cache, source, monkeypatch, caplog, step, error):
    def fails(*args, **options):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(step, fails)
    on = Counted()
    assert [on.binary("any", "float32") for _ in range(2)] == [b"one"] * 2 and on.count == 2
    assert caplog.text.count(f"compiled GPU kernels cannot be kept: {os.strerror(error)}") == 1  # once for all
    assert not list(cache.iterdir())


def test_a_folder_that_others_can_write_to_is_not_used(cache, source, caplog):
    cache.mkdir(exist_ok=True)
    cache.chmod(0o777)
    assert Counted().binary("any", "float32") == b"one"
    assert "cannot be kept: the cache folder" in caplog.text and not list(cache.iterdir())


@pytest.mark.slow
def test_processes_that_compile_at_once(cache):
    code = (
        "from minigrad.backend.runners import nvrtc\nfrom tests.backend.test_nvrtc_binaries import Counted\n"
        "nvrtc.text = lambda file, *of: file * 50_000\n"
        "on = Counted()\n"
        "print(all(on.binary(f'f{i}', 'float32') == b'f%d' % i * 50_000 for i in range(30)))"
    )
    processes = [start(code, MINIGRAD_CACHE=cache) for _ in range(3)]
    assert [end(process) for process in processes] == [("True", "")] * 3
    assert len(list(cache.iterdir())) == 30
