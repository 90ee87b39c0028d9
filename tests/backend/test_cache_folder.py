"""Where the cache of kernels is, and whose: nobody's but ours and root's."""

import os
import tempfile
from pathlib import Path

import pytest

from minigrad.backend.runners.toolchain import CompilerError
from minigrad.backend.runners.toolchain.cache import folder

from .kernel_cache import ANSWER, AS_NOBODY, WHICH, libraries, needs_root, run

NOBODY = 65534


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_a_cache_that_others_may_write_to_is_refused(cache, mode):
    cache.mkdir()
    cache.chmod(mode)
    with pytest.raises(CompilerError, match="may be written to by others"):
        folder()


@needs_root
def test_a_cache_of_someone_else_is_refused(cache):
    cache.mkdir(mode=0o700)
    os.chown(cache, 12345, -1)
    with pytest.raises(CompilerError, match="belongs to another user"):
        folder()


@pytest.fixture
def public():
    """A folder like /tmp in which all may write; its way is open to all, unlike that to tmp_path."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        os.chmod(made, 0o777)
        yield Path(made)


def test_where_the_folder_is(monkeypatch, tmp_path):
    for name in ("MINIGRAD_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folder() == str(tmp_path / ".cache/minigrad")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says XDG
    assert folder() == str(tmp_path / ".cache/minigrad")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert folder() == str(tmp_path / "xdg/minigrad")
    monkeypatch.setenv("MINIGRAD_CACHE", "~/own")
    assert folder() == str(tmp_path / "own")


@pytest.mark.needs("g++")
@pytest.mark.parametrize("home", ["/dev/null", "/proc", "/nonexistent"])
def test_with_a_home_that_cannot_be_written_to_numpy_computes(home):
    if home == "/nonexistent" and os.geteuid() == 0:
        home = "/proc/nonexistent"  # root could make the other
    printed, logged = run(WHICH, HOME=home, MINIGRAD_CACHE="", XDG_CACHE_HOME="")
    assert printed == "numpy 20000.0"
    assert len(logged.splitlines()) == 1 and logged.endswith("computing with NumPy instead"), logged
    assert f"the cache folder {home}/.cache/minigrad" in logged


@pytest.mark.needs("g++")
@needs_root
@pytest.mark.slow
def test_a_folder_that_can_only_be_read(public):
    """What is there is used; what is not there cannot be made, and NumPy computes."""
    os.chmod(public, 0o755)
    printed, logged = run(AS_NOBODY + WHICH, MINIGRAD_CACHE=public)
    assert printed == "numpy 20000.0"
    assert "cannot be used: Permission denied; computing with NumPy instead" in logged.splitlines()[-1]
    assert run(ANSWER, MINIGRAD_CACHE=public)[0] == "42"
    for path in libraries(public):
        path.chmod(0o644)
    assert run(AS_NOBODY + ANSWER, MINIGRAD_CACHE=public) == ("42", "")


def test_an_absolute_path_does_not_need_a_working_directory(cache, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert folder() == str(cache)
