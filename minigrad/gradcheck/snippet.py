"""The Python that repeats a check."""

import re
from functools import partial
from types import MethodType

from ..tensor import Tensor
from .adapters import framework_of
from .adapters.foreign import Adapted
from .call import Expecting, Keywords, label_of, op_of, plain, unpacked
from .subject import host, mapped

LITERAL = 256  # an array of at most this many elements is written out


def snippet(fn, inputs, kwargs, options, **functions):
    """Python that repeats a check. Large inputs, Modules and `functions` (vjp=, expected_vjp=) are left as names to
    fill in."""
    framework = framework_of(fn, (inputs, kwargs), functions["vjp"])
    inputs = unpacked(inputs, framework)
    source, missing = [], []
    called = _function(fn, framework, source, missing)
    literals = [_literal(x, f"inputs_{i}", framework) for i, x in enumerate(inputs)]
    keywords = {key: _literal(x, key, framework) for key, x in (kwargs or {}).items()}
    missing = [text for text in [*literals, *keywords.values()] if _is_name(text)] + missing
    missing += [name for name, function in functions.items() if function is not None]
    if len(inputs) == 1 and unpacked(inputs, framework) is not inputs:
        literals = [f"({', '.join(literals)},)"]
    arguments = [called, *literals, *(f"{key}={value!r}" for key, value in options.items() if value is not None)]
    if keywords:
        arguments.append(f"kwargs={{{', '.join(f'{key!r}: {text}' for key, text in keywords.items())}}}")
    arguments += [f"{name}={name}" for name, function in functions.items() if function is not None]
    lines = [framework.imports if framework else "import minigrad as mg", "from minigrad.gradcheck import gradcheck"]
    values = " ".join([*literals, *keywords.values()])
    lines += ["from math import inf, nan"] if re.search(r"\b(inf|nan)\b", values) else []
    lines += source
    lines += [f"# and, as in the failing call: {', '.join(missing)}"] if missing else []
    return "\n".join([*lines, f"gradcheck({', '.join(arguments)})"])


def snippet_of_prepared(fn, inputs, options):
    """The same for a function and inputs as `prepared` returns them: Tensors become the framework's arrays again."""
    expected_vjp = vjp = kwargs = None
    if isinstance(fn, Expecting):
        fn, expected_vjp = fn.whole, fn.expected_vjp
    if isinstance(fn, Adapted):
        framework, fn = fn.framework, fn.__wrapped__
        inputs, vjp = mapped(tuple(inputs), lambda x: framework.constant(host(x))), getattr(framework, "vjp", None)
    if inputs and isinstance(inputs[-1], Keywords):
        *inputs, kwargs = inputs
    return snippet(fn, tuple(inputs), kwargs, options, vjp=vjp, expected_vjp=expected_vjp)


def _function(fn, framework, source, missing):
    """fn as Python. Adds the lines that import it to `source`, or what it is to `missing`."""
    bound = fn if isinstance(fn, partial) and (fn.args or fn.keywords) else None
    fn = op_of(fn) or plain(fn)
    fn = framework.source(fn) if framework else fn
    name = getattr(fn, "__qualname__", "<unnamed>")
    module = getattr(fn, "__module__", None) or "__main__"
    public = framework and framework.public(fn)
    if public:
        called = public
    elif "<" in name or " " in name or module == "__main__" or _is_of_an_object(fn):
        called = "fn"
        missing.append(f"fn = {label_of(fn)}")
    else:
        source.append(f"from {module} import {name.split('.')[0]}")
        called = name + (".apply" if bound and isinstance(fn, type) else "")
    if bound:
        source.append("from functools import partial")
        values = [_literal(x, f"bound_{i}", framework) for i, x in enumerate(bound.args)]
        keywords = {key: _literal(x, key, framework) for key, x in bound.keywords.items()}
        missing += [text for text in [*values, *keywords.values()] if _is_name(text)]
        called = f"partial({', '.join([called, *values, *(f'{key}={text}' for key, text in keywords.items())])})"
    return called


def _is_of_an_object(fn):
    """Is it a method, of something that cannot be written down?"""
    return isinstance(fn, MethodType) and not isinstance(fn.__self__, type)


def _is_name(text):
    """Is a literal none, but a name to fill in?"""
    return text.isidentifier() and text not in ("None", "True", "False")


def _literal(x, name, framework):
    """An input as Python, or `name` if it is too large or cannot be written."""
    if isinstance(x, Tensor):
        dtype = "bool_" if x.dtype.kind == "b" else x.dtype.name
        if not x.numel():
            return f"mg.zeros({x.shape}, dtype=mg.{dtype})"
        return f"mg.tensor({host(x).tolist()!r}, dtype=mg.{dtype})" if x.numel() <= LITERAL else name
    if framework and isinstance(x, framework.kinds):
        return framework.literal(x, LITERAL) or name
    if type(x) in (list, tuple):
        parts = [_literal(value, name, framework) for value in x]
        return name if name in parts else f"[{', '.join(parts)}]" if type(x) is list else f"({', '.join(parts)},)"
    return repr(x) if isinstance(x, (int, float, str, type(None))) else name
