"""Whose kernels are loaded: nobody's but ours and root's, whatever others do to the folders on the way to the cache."""

import grp
import os
import pwd
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

import pytest

from minigrad.backend.runners.toolchain import CompilerError, compiled
from minigrad.backend.runners.toolchain.cache import folder, intact, private

from .. import ROOT
from .kernel_cache import ANSWER, AS_NOBODY, FLAGS, SOURCE, WHICH, libraries, needs_root, run

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
    with pytest.raises(CompilerError, match=r"belongs to another user \(uid 12345\)"):
        folder()


@pytest.mark.parametrize("mode", [0o757, 0o777])
def test_a_parent_that_others_may_write_to_is_refused(cache, mode):
    """They could put a folder of their own in the cache's place after it was looked at."""
    cache.mkdir(mode=0o700)
    cache.parent.chmod(mode)
    with pytest.raises(CompilerError, match=f"{cache.parent} may be written to by others"):
        folder()
    cache.parent.chmod(mode | 0o1000)  # with the sticky bit, they cannot rename what is ours
    assert folder() == str(cache)


@needs_root
def test_a_parent_of_someone_else_is_refused(cache):
    cache.mkdir(mode=0o700)
    os.chown(cache.parent, NOBODY, -1)
    with pytest.raises(CompilerError, match=f"{cache.parent} belongs to another user"):
        folder()


@needs_root
def test_a_parent_of_a_group_is_refused_unless_nobody_else_is_in_it(cache):
    cache.mkdir(mode=0o700)
    cache.parent.chmod(0o775)
    os.chown(cache.parent, -1, NOBODY)
    with pytest.raises(CompilerError, match="may be written to by others"):
        folder()
    os.chown(cache.parent, -1, os.getgid())  # root's own group, as umask 002 makes it
    assert folder() == str(cache)


def test_the_users_own_group_is_private_only_without_others_in_it(cache, monkeypatch):
    cache.mkdir(mode=0o700)
    cache.parent.chmod(0o775)
    user = pwd.getpwuid(os.geteuid())
    os.chown(cache.parent, -1, user.pw_gid)
    for members, refused in (([], False), ([user.pw_name], False), ([user.pw_name, "mallory"], True)):
        group = grp.struct_group((user.pw_name, "x", user.pw_gid, members))
        monkeypatch.setattr(grp, "getgrgid", lambda gid, group=group: group)
        with pytest.raises(CompilerError, match="may be written to by others") if refused else nullcontext():
            folder()


@pytest.mark.needs("g++")
def test_the_folder_is_looked_at_each_time(cache):
    compiled(SOURCE, FLAGS, "answer")
    cache.parent.chmod(0o777)
    with pytest.raises(CompilerError, match="may be written to by others"):
        compiled(SOURCE, FLAGS, "answer")


def test_links_of_ours_are_followed_and_lead_to_one_path(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "a/up").symlink_to(tmp_path / "link/b/../..")
    assert private(tmp_path / "link/b/../../link/up/cache") == str(tmp_path / "cache")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(CompilerError, match="too many symbolic links"):
        private(tmp_path / "loop")


@needs_root
def test_a_link_of_someone_else_is_refused(cache):
    """In /tmp, say, to a folder of ours: it may lead elsewhere the next time."""
    (cache.parent / "ours").mkdir(mode=0o700)
    cache.symlink_to("ours")
    assert folder() == str(cache.parent / "ours")
    os.chown(cache, NOBODY, -1, follow_symlinks=False)
    with pytest.raises(CompilerError, match="belongs to another user"):
        folder()


@pytest.fixture
def public():
    """A folder like /tmp in which all may write; its way is open to all, unlike that to tmp_path."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        os.chmod(made, 0o777)
        yield Path(made)


SWAP = """
import ctypes, os
from minigrad.backend.runners.toolchain import compiled
compiled({source!r}, {flags!r}, "answer")
input()  # the folder is swapped meanwhile
print(ctypes.CDLL(str(compiled({source!r}, {flags!r}, "answer"))).answer())
"""


@pytest.mark.slow
@pytest.mark.needs("g++")
@needs_root
def test_a_folder_swapped_under_our_feet_runs_nothing(public):
    """The attack: an attacker owns a folder above the cache, and puts a folder with his own library in its place."""
    os.chmod(public, 0o1777)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MINIGRAD_CACHE": str(public / "in/cache")}
    command = [sys.executable, "-c", SWAP.format(source=SOURCE, flags=FLAGS)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    (public / "in").mkdir()
    victim = subprocess.Popen(command, env=env, text=True, **pipes)
    while not (public / "in/cache").is_dir() or not libraries(public / "in/cache"):
        assert victim.poll() is None, victim.communicate()
    os.chown(public / "in", NOBODY, -1)
    attack = f"""
import os, pathlib
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
os.chdir({str(public / "in")!r})
os.rename("cache", "away"); os.mkdir("cache")
pathlib.Path("cache", {libraries(public / "in/cache")[0].name!r}).write_bytes(b"the attacker's")
"""
    subprocess.run([sys.executable, "-c", attack], check=True)
    _, said = victim.communicate("\n", timeout=60)
    assert victim.returncode and "CompilerError" in said.splitlines()[-1], said
    assert "belongs to another user" in said


@pytest.mark.needs("g++")
@needs_root
def test_a_file_of_someone_else_in_the_cache_is_replaced(cache):
    path = compiled(SOURCE, FLAGS, "answer")
    os.chown(path, NOBODY, -1)
    printed, logged = run(ANSWER)
    assert printed == "42" and "is damaged; compiling it again" in logged and path.stat().st_uid == 0


@needs_root
def test_a_process_with_borrowed_rights_loads_nothing(tmp_path):
    code = f"{AS_NOBODY.replace('setuid', 'seteuid').replace('os.setgid', 'os.setegid')}{WHICH}"
    printed, logged = run(code, MINIGRAD_CACHE=tmp_path / "cache")
    assert printed == "numpy 20000.0"
    assert logged == (
        f"minigrad: no native kernels: no kernels for a process of user 0 with the rights of user {NOBODY}; "
        "computing with NumPy instead"
    )


@pytest.mark.slow
@pytest.mark.needs("g++")
@pytest.mark.parametrize("umask", [0, 0o277, 0o777])
def test_modes_do_not_depend_on_the_umask(cache, umask):
    name = cache / "deep/er"
    assert run(f"import os; os.umask({umask})\n{ANSWER}", MINIGRAD_CACHE=name)[0] == "42"
    assert {p.stat().st_mode & 0o777 for p in (cache, cache / "deep", name)} == {0o700}
    assert {p.stat().st_mode & 0o777 for p in libraries(name)} == {0o600}


@pytest.mark.slow
@pytest.mark.needs("g++")
@pytest.mark.parametrize("named", [".", "cache", "./a/../cache"])
def test_a_relative_path_is_made_absolute(tmp_path, named):
    """dlopen looks for a name without a slash in other places."""
    (tmp_path / "a").mkdir()
    tmp_path.chmod(0o700)
    code = f"import os; os.chdir({str(tmp_path)!r}){ANSWER}"
    assert run(code, MINIGRAD_CACHE=named)[0] == "42"
    assert len(list(tmp_path.rglob("*.so"))) == 1


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
        home = "/proc/self/nonexistent"  # root could make the other
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
    assert "cannot be written to: Permission denied; computing with NumPy instead" in logged.splitlines()[-1]
    assert run(ANSWER, MINIGRAD_CACHE=public)[0] == "42"
    for path in libraries(public):
        path.chmod(0o644)
    assert run(AS_NOBODY + ANSWER, MINIGRAD_CACHE=public) == ("42", "")


def test_an_absolute_path_does_not_need_a_working_directory(cache, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert folder() == str(cache)


@pytest.mark.needs("g++")
@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_library_that_others_may_write_to_is_made_again(cache, mode):
    path = compiled(SOURCE, FLAGS, "answer")
    path.chmod(mode)
    assert intact(path) is False
    assert compiled(SOURCE, FLAGS, "answer") == path and path.stat().st_mode & 0o777 == 0o600 and intact(path)
