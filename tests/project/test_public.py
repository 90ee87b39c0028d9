"""Public names have a docstring, and types that are true."""

import importlib
import inspect
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import minigrad as mg
from minigrad.nn import functional as F

from .. import ROOT
from ..types import public

PACKAGES = ["", "nn", "optim", "gradcheck", "study", "training", "viz", "autograd", "random"]


@pytest.mark.parametrize("name", PACKAGES)
def test_all(name):
    """`__all__` has names that exist, each once; that of a package has all names that it imports from its modules."""
    module = importlib.import_module(f"minigrad.{name}".rstrip("."))
    assert len(set(module.__all__)) == len(module.__all__)
    assert all(hasattr(module, key) for key in module.__all__)
    if module.__file__.endswith("__init__.py"):
        mine = {k: v for k, v in vars(module).items() if not inspect.ismodule(v)}
        own = {k for k, v in mine.items() if str(getattr(v, "__module__", "")).startswith(module.__name__ + ".")}
        assert {key for key in own if not key.startswith("_")} <= set(module.__all__)


def test_every_public_name_has_a_docstring():
    """A method may inherit its docstring. Methods such as __len__ mean what they mean in Python, and need none."""
    documented = {each.name: vars(each.object)["__doc__"] for each in public.public() if inspect.isclass(each.object)}
    for each in public.public():
        if inspect.isfunction(each.object) or isinstance(each.object, property):
            documented[each.name] = inspect.getdoc(each.object)
    assert len(documented) > 400
    assert [name for name, doc in documented.items() if not doc and not name.endswith("__")] == []


def test_every_public_function_has_types():
    untyped = []
    for name, function in public.functions():
        signature = inspect.signature(function)
        typed = [p.annotation is not p.empty for p in signature.parameters.values() if p.name not in ("self", "cls")]
        # To type checkers, one annotation is enough for an __init__ to return None.
        returns = signature.return_annotation is not signature.empty or (function.__name__ == "__init__" and any(typed))
        if not (all(typed) and returns):
            untyped.append(name)
    assert untyped == []


def test_tab_completion_offers_what_is_public():
    """Tab completion also offers packages that are imported at their first use."""
    lines = [
        "import sys, minigrad as mg",
        "later = ('study', 'gradcheck', 'viz', 'nn', 'optim', 'utils', 'replay', 'training')",
        "assert not any(f'minigrad.{name}' in sys.modules for name in later)",
        "assert {'study', 'gradcheck', 'viz', *mg.__all__} <= {*dir(mg)}",
        "assert mg.capture is mg.capture and mg.load and mg.save and mg.nn.Linear and mg.cuda.is_available",
        "assert not {'backend', 'TYPE_CHECKING', 'locks'} & {*dir(mg)}",
        "assert mg.study.flow and mg.gradcheck.gradcheck and mg.viz.graph",
        "assert not hasattr(mg, 'studies')",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, cwd=ROOT)


def test_a_star_import_leaves_pythons_types_alone():
    names: dict = {}
    exec("from minigrad import *", names)
    assert not {"bool", "float", "int", "long", "double"} & names.keys() and names["float32"] == mg.float == mg.float32
    assert {"float", "long"} <= {*dir(mg)}


def test_docstrings_of_a_method_and_its_function_agree():
    for name in ("sum", "softmax", "exp", "reshape", "max"):
        assert inspect.getdoc(getattr(mg.Tensor, name)) == inspect.getdoc(getattr(mg.ops, name))


# ------------------------------------------------------------------------------------------- are the signatures true?


X = mg.randn(2, 3, dtype=mg.float64)
COUNT, ONES = mg.tensor([0, 2, 1]), mg.zeros(2, 3, dtype=mg.int64)
GIVEN = {  # by the types of arguments
    "T": X,
    "Value | Number | Array": X,
    "Sequence[T]": [X, X],
    "int": 1,
    "float": 0.5,
    "int | Sequence[int] | None": 0,
    "int | Sequence[int]": (3, 2),
}
ARGUMENTS = {  # where the types alone do not tell what fits together
    "matmul": (X, X.T),
    "gather": (X, 1, ONES),
    "scatter": (X, 1, ONES, X),
    "scatter_add": (X, 1, ONES, X),
    "repeat_interleave": (X, 2, 1),
    "nll_loss": (X, mg.tensor([0, 1])),
    "embedding": (mg.tensor([0, 1]), X),
    "linear": (X, X),
    "einsum": ("ij,kj->ik", X, X),
    "where": (X > 0, X, 0.0),
    "masked_fill": (X, X > 0, 0.0),
    "clamp": (X, 0.0),
    "clip": (X, 0.0),
    "mm": (X, X.T),
    "permute": (X, 1, 0),
    "transpose": (X, 0, 1),
    "flip": (X, 1),
    "expand": (X, 2, 2, 3),
    "split": (X, [1, 1]),
    "pad": (X, (1, 1)),
    "bmm": (mg.randn(2, 3, 4), mg.randn(2, 4, 5)),
    "outer": (mg.randn(2), mg.randn(3)),
    "roll": (X, 1),
    "index_select": (X, 0, mg.tensor([1])),
    "searchsorted": (X, X),
    "bitwise_and": (ONES, 1),
    "bitwise_or": (ONES, 1),
    "bitwise_xor": (ONES, 1),
    "bitwise_not": (ONES,),
    "mv": (X, X[0]),
    "dot": (X[0], X[1]),
    "meshgrid": (mg.randn(2), mg.randn(3)),
    "index_add": (X, 0, mg.tensor([1]), X[:1]),
    "index_fill": (X, 0, mg.tensor([1]), 2.0),
    "merge_heads": (mg.randn(1, 2, 3, 4),),
    "layer_norm": (X, 3),
    "rms_norm": (X, 3),
    "cross_entropy": (X, mg.tensor([0, 1])),
    "scaled_dot_product_attention": (X, X, X),
    "getitem": (X, (0, ...)),
    "parsed_index": (X, [0, 1]),
}
CALLS = {"max": [(X,)], "min": [(X,)], "split_heads": [(mg.randn(1, 2, 4), 2), (mg.randn(1, 2, 4), 1, 1)]}
KINDS = {
    "T": mg.Tensor,
    "Union[T, ValuesIndices[T]]": mg.Tensor,
    "ValuesIndices[T]": mg.ops.reduce.ValuesIndices,
    "bool": bool,
}
FUNCTIONS = {name: f for home in (mg.ops.public, F) for name, f in vars(home).items() if f is not F.one_hot}
FUNCTIONS = {name: f for name, f in FUNCTIONS.items() if inspect.isfunction(f) and name[0] != "_"}


def words(annotation):
    """Return an annotation as it was written."""
    shown = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(minigrad|numpy|typing|collections|abc)\.(\w+\.)*", "", shown).replace("~", "")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_ops_returns_what_its_signature_says(name):
    function = inspect.unwrap(FUNCTIONS[name])
    signatures = [inspect.signature(f) for f in typing.get_overloads(function)] or [inspect.signature(function)]
    calls = CALLS.get(name) or [ARGUMENTS.get(name) or arguments(signatures[0])]
    for signature, given in zip(signatures, calls):
        kind = words(signature.return_annotation)
        found = function(*given)
        if kind.startswith("tuple["):
            assert type(found) is tuple
            found, kind = found[0], kind[6:].partition(",")[0]
        assert kind == "Any" or type(found) is KINDS[kind], (signature, found)


def arguments(signature):
    """Return values for the required arguments of a function, by their types."""
    needed = [p for p in signature.parameters.values() if p.default is p.empty]
    return [GIVEN[words(p.annotation)] for p in needed]


def test_types_travel_with_the_package():
    """An installed minigrad has py.typed, so that type checkers read the types in its sources."""
    assert (Path(mg.__file__).parent / "py.typed").exists()
