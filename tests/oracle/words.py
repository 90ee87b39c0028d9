"""PyTorch's names of arguments: which of them do our functions of the same names refuse?

    python -m tests.oracle.words    prints the names that are refused, by word

A function written in Python says its words itself; of others, the schemas of its overloads do. Words that ask for what
minigrad has not (NOT_OURS) are left out."""

import collections
import inspect

import minigrad as mg
from minigrad.nn import functional as F

STARRED = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
NOT_OURS = {"out", "layout", "pin_memory", "names"}


def theirs(torch, function, name, method=False):
    """The words of torch's function, over all its overloads."""
    try:
        parameters = inspect.signature(function).parameters
        if "args" not in parameters:
            return {word for word, p in parameters.items() if word != "self" and p.kind not in STARRED}
    except (ValueError, TypeError):
        pass
    words = set()
    for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}"):
        given = {each.name: str(each.type) for each in schema.arguments}
        first, kind = next(iter(given.items()), ("", ""))
        of_scripts = first in ("a", "l", "n", "t", "list") or kind == "List[int]" or "reverse" in given
        if not of_scripts and not any(each.is_out for each in schema.arguments):
            words.update(given)
    return words - {"self"} if method else {"input" if word == "self" else word for word in words}


def takes(function, word):
    """Does our function take this word as a keyword?"""
    parameters = inspect.signature(function).parameters
    p = parameters.get(word)
    if "kwargs" in parameters:  # a method that writes what the function without _ makes
        return takes(getattr(mg.ops, function.__name__[:-1]), word)
    return "options" in parameters or (p is not None and p.kind not in STARRED)


def refused(torch):
    """({word: functions that refuse it}, how many words there are)."""
    found, n = collections.defaultdict(list), 0
    for ours, torchs in ((mg, torch), (F, torch.nn.functional), (mg.Tensor, torch.Tensor)):
        for name in dir(ours):
            function, original = getattr(ours, name, None), getattr(torchs, name, None)
            if not inspect.isfunction(function) or original is None or name.startswith("_"):
                continue
            for word in sorted(theirs(torch, original, name, ours is mg.Tensor) - NOT_OURS):
                n += 1
                if not takes(function, word):
                    found[word].append(f"{ours.__name__}.{name}".removeprefix("minigrad."))
    return dict(found), n


if __name__ == "__main__":
    import torch

    found, n = refused(torch)
    for word, functions in found.items():
        print(f"{word:20} {', '.join(functions)}")
    print(f"{sum(map(len, found.values()))} of {n} words are refused")
