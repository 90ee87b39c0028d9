"""minigrad imports, and finds its kernels, from a wheel, an editable install and a bare checkout."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from .. import ROOT


def build(target, source, out):
    """Run the build backend as pip does, but offline: the one file that it writes to `out`."""
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", target, "-d", out], cwd=source, check=True)
    (built,) = out.iterdir()
    return built


def unpack(wheel, out):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(out)
    return out


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from the sdist, which proves that the sdist lacks nothing."""
    sdist = build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))
    sources = tmp_path_factory.mktemp("sources")
    subprocess.run(["tar", "-xf", sdist, "-C", sources], check=True)
    (root,) = sources.iterdir()
    return build("wheel", root, tmp_path_factory.mktemp("wheel"))


@pytest.mark.slow
def test_wheel_contents(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (entry_points,) = (archive.read(name).decode() for name in names if name.endswith("entry_points.txt"))
    tops = {name.split("/")[0].split("-")[0] for name in names}
    assert tops == {"minigrad"}  # above all, no top-level `kernels`
    assert re.findall(r"\[(\w+)\]\n(.*)\n", entry_points) == [("console_scripts", "minigrad = minigrad.__main__:run")]
    assert not [name for name in names if "examples" in name]
    files = {f"minigrad/kernels/{path.name}" for path in (ROOT / "kernels").glob("*.cu*")} | {"minigrad/py.typed"}
    files |= {f"minigrad/weekend/{path.name}" for path in (ROOT / "examples/weekend").glob("*.py")}
    files |= {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "minigrad").rglob("*")
        if path.suffix in {".py", ".pyi", ".h", ".cpp", ".html", ".css", ".js", ".txt"}
    }
    assert files <= names


def locate(site, cwd):
    """Where a new interpreter that has `site` for its site-packages, and not the ROOT, finds minigrad and the
    kernels: their folders.

    `site` and what its .pth files name come first: this environment may have another checkout installed."""
    code = (
        "import site, sys; others = [p for p in sys.path if p != sys.argv[1]]; sys.path[:] = others;"
        "site.addsitedir(sys.argv[2]); sys.path[:] = [p for p in sys.path if p not in others] + others;"
        "import minigrad, minigrad.backend.kernels as k; print(minigrad.__file__, k.find_kernels(), sep='\\n')"
    )
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-c", code, ROOT, site]
    package, kernels = subprocess.check_output(command, cwd=cwd, env=env, text=True).splitlines()
    return Path(package).parent, Path(kernels)


@pytest.mark.slow
def test_wheel_finds_the_kernels(wheel, tmp_path):
    site = unpack(wheel, tmp_path / "site")
    assert locate(site, tmp_path) == (site / "minigrad", site / "minigrad/kernels")


@pytest.mark.slow
def test_editable_install_finds_the_kernels(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    site = unpack(build("wheel:editable", ROOT, out), tmp_path / "site")
    assert not (site / "minigrad").exists()  # a copy of anything here would go stale
    assert locate(site, tmp_path) == (ROOT / "minigrad", ROOT / "kernels")


def test_checkout_finds_the_kernels(tmp_path):
    assert locate(ROOT, tmp_path) == (ROOT / "minigrad", ROOT / "kernels")


def test_an_empty_folder_is_not_taken_for_the_kernels(tmp_path, monkeypatch):
    from minigrad.backend import kernels

    package = tmp_path / "minigrad"
    (package / "kernels").mkdir(parents=True)
    (tmp_path / "kernels").mkdir()
    monkeypatch.setattr(kernels, "PACKAGE", package)
    with pytest.raises(FileNotFoundError, match="CUDA sources are in neither"):
        kernels.find_kernels()
    (tmp_path / "kernels" / "common.cuh").touch()
    assert kernels.find_kernels() == tmp_path / "kernels"


def test_the_tests_that_ci_names_are_there():
    """.ci/bare passes files to pytest, in braces of the shell, or without their folder and ending."""
    script = (ROOT / ".ci" / "bare").read_text(encoding="utf-8")
    braces = " ".join(re.findall(r"tests/\S*\{\S+\.py", script))
    named = subprocess.check_output(["bash", "-c", f"echo {braces}"], text=True).split()
    named += [f"tests/{name}.py" for row in re.findall(r"\]='(\w+/.*)'", script) for name in row.split()]
    assert len(named) > 20 and not [name for name in named if not (ROOT / name).exists()]
