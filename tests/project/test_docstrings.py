"""Docstrings are true: ops keep shape and dtype if they say so, and the errors that they name exist."""

import ast
import builtins
import inspect
import re
import tokenize

import pytest

import minigrad as mg
from minigrad import gradcheck
from minigrad.training import checkpoint

from .. import ROOT
from ..types import public
from .test_public import ARGUMENTS, FUNCTIONS, arguments

PROMISES = {  # words of a docstring, and the dtype of the result that they promise, of x's shape; None: x's
    r"[Oo]f x's shape and (float )?dtype": None,
    r"bool, of x's shape": mg.bool_,
    r"int64, of x's shape": mg.int64,
}


@pytest.mark.parametrize("words", PROMISES)
def test_ops_keep_shape_and_dtype_where_they_say_so(words):
    functions = {name: f for name, f in FUNCTIONS.items() if re.search(words, " ".join(inspect.getdoc(f).split()))}
    assert functions
    for name, function in functions.items():
        for dtype in (mg.float16, mg.float32, mg.float64):
            x, *more = ARGUMENTS.get(name) or arguments(inspect.signature(function))
            y = function(x.to(dtype), *(v.to(dtype) if v is x else v for v in more))
            assert (y.shape, y.dtype) == (x.shape, PROMISES[words] or dtype), name


# ------------------------------------------------------------------------------------------------------------- errors

ERROR = re.compile(r"\b[A-Z]\w*Error\b")
KNOWN = vars(builtins) | {
    kind.__name__: kind
    for kind in (
        mg.autograd.AnomalyError, mg.CaptureError, mg.DeviceError, mg.GraphError, checkpoint.CheckpointError,
        gradcheck.GradcheckError, mg.base.errors.CommandError,
        mg.base.errors.TextError,
    )
}  # fmt: skip


def claims():
    """Yield (public object, names of errors in its docstring)."""
    for each in public.public():
        own = vars(each.object).get("__doc__") if inspect.isclass(each.object) else inspect.getdoc(each.object)
        if own and not (inspect.isclass(each.object) and issubclass(each.object, BaseException)):
            yield each, set(ERROR.findall(own))


def test_docstrings_name_errors_that_exist():
    named = set().union(*(errors for _, errors in claims()))
    assert len(named) > 15 and named <= KNOWN.keys()


def test_comments_beside_code_and_docstrings_have_nouns_of_their_own():
    """None begins with a word such as "of", which would need the name to its left to be understood."""
    found = []
    for path in sorted((ROOT / "minigrad").rglob("*.py")):
        with tokenize.open(path) as file:
            beside = [t for t in tokenize.generate_tokens(file.readline) if t.type == tokenize.COMMENT]
        beside = [t.string.strip("# ") for t in beside if t.line[: t.start[1]].strip()]
        nodes = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef | ast.ClassDef)]
        found += [
            (path.name, text)
            for text in beside
            if re.match(r"(of|that|which|as|in|by|with|and|or|what|whose|those|its|likewise)\b", text)
        ]
        found += [(path.name, n.name) for n in nodes if re.match(r"(Of|As|By|That)\b", ast.get_docstring(n) or "")]
    assert not found
