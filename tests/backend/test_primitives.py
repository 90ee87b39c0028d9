"""Every backend has every primitive, under one name and with the same arguments; and the reading of the kernel
sources."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import minigrad as mg
from minigrad import backend
from minigrad.backend import kernels, launch, reference
from minigrad.backend.kernels import Struct, constant, entry_points, find_kernels
from minigrad.backend.launch import KernelBackend
from minigrad.backend.launch.launcher import Launcher
from minigrad.backend.launch.rules import MANY
from minigrad.backend.launch.source import TABLE
from minigrad.backend.numpy import NAMES

FOLDER = Path(backend.__file__).parent


def test_both_backends_have_every_primitive_and_no_other():
    public = {
        name for name in dir(KernelBackend) if not name.startswith("_") and callable(getattr(KernelBackend, name))
    }
    assert public >= set(NAMES) and public - set(NAMES) - set(dir(Launcher)) <= {"copy_to", "move"}


@pytest.mark.parametrize("name", NAMES)
def test_arguments_are_called_the_same(name):
    """For primitives that are Python functions. (NumPy's own functions have other names for their arguments.)"""
    defined, launched = (inspect.getattr_static(cls, name) for cls in (type(reference), KernelBackend))
    if inspect.isfunction(defined) and name not in TABLE:
        assert [*inspect.signature(launched).parameters] == [*inspect.signature(defined).parameters]


def test_a_rule_is_followed():
    from minigrad.backend.runners.native.native import Native

    on = Native.__new__(Native)  # without a compiler
    on.any_size, on.large = False, set()
    few, many, half = np.ones(3, "f4"), np.ones(99, "f4"), np.ones(99, "f2")
    assert (
        on.choose_kernel((50, 0), (many, 1))
        and on.choose_kernel((50, 0), (few, many))
        and on.choose_kernel((50, 0), ([(few, 2), (many, 3)],))
    )
    for args in ((few,), (half,), (many, half), ([few],), ([many, half],), (np.arange(99),)):
        assert not on.choose_kernel((50, 0), args)
    for args in ((few,), (few[:0],), (1, few), ([few],), ((3, 4), np.dtype("f4")), (few, np.arange(99))):
        assert on.choose_kernel((0, 0), args)
    for args in ((half,), (few, half), (np.arange(99),), ((3, 4), np.dtype("f2")), (few * 1j,), (3,)):
        assert not on.choose_kernel((0, 0), args)
    assert not on.large and on.choose_kernel((50, 0), (np.ones(MANY, "f4"), few.astype("f8")))
    assert on.large == {np.dtype("f4")}


def test_a_family_has_the_same_name_on_every_floor():
    """And each kernel file, such as kernels/softmax.cu or kernels/attention_forward.cu, belongs to one of the
    families."""
    families = {name: {path.stem for path in (FOLDER / name).glob("*.py")} for name in ("numpy", "launch")}
    helpers = {"__init__", "precision", "launcher", "rules", "source"}
    assert families["numpy"] - helpers == families["launch"] - helpers
    of_kernels = (families["launch"] - helpers) | {"captured"}  # which a captured step launches
    for path in find_kernels().glob("*.cu"):
        assert any(path.stem == f or path.stem.startswith(f"{f}_") for f in of_kernels), path


def test_every_entry_point_is_launched():
    text = "".join(path.read_text() for path in [*FOLDER.glob("*/*.py"), *(FOLDER.parent / "replay").glob("*.py")])
    ways = [re.compile(way) for way in (r"\w+_(each|rows|columns)", r"to_\w+_kernel")]  # their names are put together
    for path in find_kernels().glob("*.cu"):
        for entry in entry_points(path.read_text()):
            assert f'"{entry}"' in text or any(way.fullmatch(entry) for way in ways), (path.name, entry)


# ---------------------------------------------------------------------------------- what is read in the sources


def test_structs_are_read_from_the_sources(tmp_path, monkeypatch):
    monkeypatch.setattr(kernels, "text", lambda name: (tmp_path / name).read_text())
    (tmp_path / "a.cuh").write_text(
        "struct Other { int x; };\nstruct Two {\n  const T* p;  // long long q;\n  T *r, *s;\n"
        "  long long n, at[2], grid[2][3];\n  double x;\n};\nstruct Bad {\n  int n;\n};\nconstexpr int A = 3, B = 44;\n"
        "#define C 5\n"
    )
    two = Struct("a.cuh", "Two")
    assert two.counts == dict(p=1, r=1, s=1, n=1, at=2, grid=6, x=1)
    fields = dict(p=1, r=2, s=3, n=-4, at=(5, 6), grid=range(6), x=0.5)
    whole = np.array([1, 2, 3, -4, 5, 6, 0, 1, 2, 3, 4, 5]).tobytes() + np.array([0.5]).tobytes()
    assert two(**fields) == whole
    with pytest.raises(KeyError, match="at"):
        two(p=1, r=2, s=3, n=4)
    with pytest.raises(TypeError, match="struct Two has no field q"):
        two(**fields, q=1)
    with pytest.raises(ValueError, match=r"declares no struct Three"):
        Struct("a.cuh", "Three")
    with pytest.raises(ValueError, match=r"fields other than pointers"):
        Struct("a.cuh", "Bad")
    assert [constant("a.cuh", name) for name in "ABC"] == [3, 44, 5]
    with pytest.raises(ValueError, match="defines no number D"):
        constant("a.cuh", "D")


def test_the_formulas_are_the_tables():
    assert TABLE["abs"].ints == "a < 0 ? -a : a" and TABLE["abs"].c == "fabs(a)" and TABLE["abs"].arity == 1
    assert TABLE["clamp"].arity == TABLE["where"].arity == 3 and TABLE["logical_or"].c == "a != 0 || b != 0"
    assert TABLE["eq"].wide and TABLE["eq"].bools and not TABLE["isnan"].wide and TABLE["one"].arity == 1
    others = {*dir(Launcher), "gelu", "gelu_backward", "cast"}
    assert set(TABLE) >= {name for name in NAMES if hasattr(launch.Elementwise, name)} - others


def test_numpys_part_of_native_is_silent(device):
    """Warnings are errors in this suite. NumPy would give one in each of these lines."""
    inf = np.array([np.inf, -np.inf], np.float32)
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    x[[1, 1]].backward(mg.tensor(inf))
    x.gather(0, mg.tensor([1, 1])).backward(mg.tensor(inf))
    half = mg.tensor(np.ones(3, np.float16))
    for y in (mg.tensor([1.0]).pad((1, 1), value=1e300), half + 1e6, half.masked_fill(half > 0, -1e9)):
        assert y.isinf().any()


X = np.random.default_rng(0).standard_normal((40, 20, 30)).astype(np.float32)
ALONG = {  # primitives, along a dim or several
    **{name: (lambda on, x, d, name=name: getattr(on, name)(x, (d,), False)) for name in ("sum", "max", "any", "all")},
    "min of two": lambda on, x, d: on.min(x, (1, d), True),
    **{name: (lambda on, x, d, name=name: getattr(on, name)(x, d, False)) for name in ("argmax", "argsort", "cumsum")},
    **{name: (lambda on, x, d, name=name: getattr(on, name)(x, d)) for name in ("softmax", "logsumexp")},
    "softmax_backward": lambda on, x, d: on.softmax_backward(x, x, d),
    "cat": lambda on, x, d: on.cat([x, x], d),
    "gather": lambda on, x, d: on.gather(x, d, on.argsort(x, 0, False) % 20),
    "scatter_add": lambda on, x, d: on.scatter_add(X.shape, d, on.argsort(x, 0, False) % 20, x),
}


@pytest.mark.parametrize("name", ALONG)
def test_dims_are_numpys(device, name):
    """A negative dim counts from the end, and a dim that does not exist raises, also in an op of the user's."""
    on, take = device, ALONG[name]
    x = on.from_numpy(X)
    for d in (-1, -2, -3, 0, 1, 2) if name != "min of two" else (-1, 0):
        found = on.to_numpy(take(on, x, d))
        np.testing.assert_allclose(found, take(reference, X, d), rtol=1e-4, atol=1e-5)
    for d in (3, -4, 5):
        with pytest.raises(IndexError):
            take(on, x, d)


def test_an_op_of_ones_own_may_use_numpy_in_silence(device):
    class Ln(mg.Op):
        def forward(self, x):
            return self.backend.from_numpy(np.log(self.backend.to_numpy(x)))

    assert Ln.apply(mg.tensor([0.0])).item() == -np.inf
