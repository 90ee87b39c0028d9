"""Which primitives are kernels on the CPU, and which NumPy computes. Each one of this package says so, and
runners/native follows. A GPU runs all of them as kernels.

A primitive gives the same bits at every size, and whether it is recorded or not (see replay/): a recorded one always is
a kernel. So NumPy may take its place only where the two are equal to the last bit, and lie in memory alike, which
decides in what order a later sum is taken. What NumPy may compute is compact, therefore. Only what kernels make
of floats that are not compact, such as transposed ones, lies in memory as they do.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from ...base.recording import thread

MANY = 1 << 11  # elements; with fewer, NumPy is usually done before a kernel has been called

Launch = TypeVar("Launch", bound=Callable[..., Any])


class Rule(NamedTuple):
    """When a primitive runs as a kernel natively: if one of the arguments has `from_size` elements, or is not compact.

    In any case, all arrays of floats among them must be float32 or float64: other dtypes are left to NumPy."""

    from_size: int = MANY
    never: str = ""  # why NumPy does it, whatever the arguments are; empty if it may run as a kernel
    silent: bool = False  # NumPy cannot warn of NaN and Inf here, since it computes nothing
    always: bool = False  # take the method of launch/ in any case: it launches nothing
    same: bool = False  # NumPy's computes nothing at all, so it serves in a recorded step too


def natively(from_size: int = MANY, **rule: Any) -> Callable[[Launch], Launch]:
    """The rule of a primitive."""

    def say(launch: Launch) -> Launch:
        launch.natively = Rule(from_size, **rule)  # type: ignore[attr-defined]
        return launch

    return say


def followed(name: str, primitive: Callable[..., Any]) -> Callable[..., Any]:
    """A primitive that a captured step records."""

    @functools.wraps(primitive)
    def function(self: Any, *args: Any, **kwargs: Any) -> Any:
        if thread.recorder is None:
            return primitive(self, *args, **kwargs)
        return thread.recorder.primitive(name, primitive, self, args, kwargs)

    return function


KERNEL = natively(0)  # NumPy rounds in another way, or sums in another order, or is far slower
EXACT = natively()  # NumPy gives the same bits, and is faster for few elements
VIEW = natively(never="it computes nothing", silent=True, same=True)
COPY = natively(never="NumPy copies as fast", silent=True)
NUMPYS = natively(never="NumPy gives the same bits, as fast")
