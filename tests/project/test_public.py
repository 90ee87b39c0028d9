"""What is public has a docstring and types, and the files that are written from the sources are current."""

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import minigrad as mg

from .. import ROOT
from ..types import public, stubs
from ..types.annotate import lacking

PACKAGES = [
    "",
    "nn",
    "nn.functional",
    "optim",
    "gradcheck",
    "study",
    "training",
    "viz",
    "distributed",
    "autograd",
    "random",
]
CURRENT = "what the sources say has changed: python -m tests.types"


@pytest.mark.parametrize("name", PACKAGES)
def test_all(name):
    """`__all__` names what there is, once, and a package's everything that it imports from below it."""
    module = importlib.import_module(f"minigrad.{name}".rstrip("."))
    assert len(set(module.__all__)) == len(module.__all__)
    assert all(hasattr(module, key) for key in module.__all__)
    if module.__file__.endswith("__init__.py") and name != "viz":
        own = {
            k for k, v in vars(module).items() if str(getattr(v, "__module__", "")).startswith(module.__name__ + ".")
        }
        assert {key for key in own if not key.startswith("_")} <= set(module.__all__)


def test_every_public_name_has_a_docstring():
    """Methods may have that of a base class. Those with a __name__ mean what they mean in Python."""
    documented = {each.name: vars(each.object)["__doc__"] for each in public.public() if inspect.isclass(each.object)}
    for each in public.public():
        if inspect.isfunction(each.object) or isinstance(each.object, property):
            documented[each.name] = inspect.getdoc(each.object)
    assert len(documented) > 400
    assert [name for name, doc in documented.items() if not doc and not name.endswith("__")] == []


def test_every_public_function_has_types():
    """Those of ops by the stub, all others where they are written."""
    assert [name for name, *_ in lacking()] == [], "python -m tests.types fills in what it knows"


def test_files_written_from_the_sources_are_current():
    assert stubs.STUB.read_text() == stubs.stub(), CURRENT
    assert not stubs.left


def test_tab_completion_offers_what_is_public():
    """And packages that `import minigrad` leaves alone are there when they are first used."""
    lines = [
        "import sys, minigrad as mg",
        "later = ('study', 'gradcheck', 'viz', 'distributed', 'nn', 'optim', 'utils', 'replay', 'training')",
        "assert not any(f'minigrad.{name}' in sys.modules for name in later)",
        "assert {'study', 'gradcheck', 'viz', 'distributed', *mg.__all__} <= {*dir(mg)}",
        "assert mg.capture is mg.capture and mg.load and mg.save and mg.nn.Linear and mg.cuda.is_available",
        "assert not {'backend', 'launched', 'TYPE_CHECKING', 'locks'} & {*dir(mg)}",
        "assert mg.study.flow and mg.gradcheck.gradcheck and mg.viz.graph and mg.distributed.world",
        "assert not hasattr(mg, 'studies')",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, cwd=ROOT)


def test_docstrings_of_a_method_and_its_function_agree():
    for name in ("sum", "softmax", "exp", "reshape", "max"):
        assert inspect.getdoc(getattr(mg.Tensor, name)) == inspect.getdoc(getattr(mg.ops, name))


# ------------------------------------------------------------------------------------------- are the signatures true?


X = mg.randn(2, 3, dtype=mg.float64)
COUNT, ONES = mg.tensor([0, 2, 1]), mg.zeros(2, 3, dtype=mg.int64)
GIVEN = {
    "Tensor": X,
    "Tensor | Array": X,
    "Operand": X,
    "Sequence[Tensor]": [X, X],
    "int": 1,
    "Dims": 0,
    "Size": (3, 2),
}
ARGUMENTS = {  # where the types alone do not tell what fits together
    "matmul": (X, X.T),
    "gather": (X, 1, ONES),
    "take_along_dim": (X, ONES, 1),
    "scatter": (X, 1, ONES, X),
    "scatter_add": (X, 1, ONES, X),
    "index_add": (X, 1, COUNT, X),
    "index_copy": (X, 1, COUNT, X),
    "index_fill": (X, 1, COUNT, 0.0),
    "take": (X, COUNT),
    "masked_select": (X, X > 0),
    "bincount": (COUNT,),
    "select": (X, 1, 2),
    "unflatten": (X, 1, (3, 1)),
    "movedim": (X, 0, 1),
    "roll": (X, 1, 0),
    "broadcast_to": (X, (2, 2, 3)),
    "repeat_interleave": (X, 2),
    "meshgrid": (X[0], X[1]),
    "mm": (X, X.T),
    "mv": (X, X[0]),
    "dot": (X[0], X[1]),
    "outer": (X[0], X[1]),
    "bmm": (X[None], X.T[None]),
    "addmm": (X[:, :2], X, X.T),
    "glu": (X, 0),
    "prelu": (X, X[0, :1]),
    "nll_loss": (X, mg.tensor([0, 1])),
    "binary_cross_entropy": (X.sigmoid(), X.sigmoid()),
    "index_select": (X, 1, mg.tensor([0, 2])),
    "embedding": (mg.tensor([0, 1]), X),
    "linear": (X, X),
    "einsum": ("ij,kj->ik", X, X),
    "where": (X > 0, X, 0.0),
    "masked_fill": (X, X > 0, 0.0),
    "clamp": (X, 0.0),
    "permute": (X, 1, 0),
    "transpose": (X, 0, 1),
    "flip": (X, 1),
    "expand": (X, 2, 2, 3),
    "split": (X, [1, 1]),
    "pad": (X, (1, 1)),
    "merge_heads": (mg.randn(1, 2, 3, 4),),
    "layer_norm": (X, 3),
    "rms_norm": (X, 3),
    "cross_entropy": (X, mg.tensor([0, 1])),
    "scaled_dot_product_attention": (X, X, X),
    "getitem": (X, (0, ...)),
    "parsed_index": (X, [0, 1]),
}
CALLS = {
    "max": [(X,), (X, 1)],
    "min": [(X,), (X, 1)],
    "split_heads": [(mg.randn(1, 2, 4), 2), (mg.randn(1, 2, 4), 1, 1)],
}
KINDS = {"Tensor": mg.Tensor, "ValuesIndices": mg.ops.ValuesIndices, "bool": bool, "int": int, "float": float}


@pytest.mark.parametrize("name", [name for name, f in vars(mg.ops).items() if inspect.isfunction(f)])
def test_a_function_of_ops_returns_what_the_stub_says(name):
    function = getattr(mg.ops, name)
    said = stubs.signatures(name, function)
    calls = CALLS.get(name) or [ARGUMENTS.get(name) or arguments(name, function)]
    for signature, given in zip(said, calls):
        kind = signature.rpartition(" -> ")[2]
        found = function(*given)
        if kind.startswith("tuple["):
            assert type(found) is tuple
            found, kind = found[0], kind[6:].partition(",")[0]
        assert kind == "Any" or type(found) is KINDS[kind], (signature, found)


def arguments(name, function):
    """Values of the types of the arguments that a function needs."""
    parameters = inspect.signature(function).parameters.values()
    needed = [p for p in parameters if p.default is p.empty]
    return [GIVEN[stubs.kind_of(name, p, [p.name for p in parameters])] for p in needed]


def test_a_stub_travels_with_its_package():
    """The type checker of somebody who installs minigrad finds py.typed and the stubs beside the sources."""
    package = Path(mg.__file__).parent
    assert (package / "py.typed").exists() and {p.name for p in package.rglob("*.pyi")} == {
        "__init__.pyi",
        "signatures.pyi",
    }
