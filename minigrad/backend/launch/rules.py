"""When a kernel is faster than NumPy on the CPU. Each primitive of this package says so, and runners/native follows.

A GPU and the emulator run all of them as kernels.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

MANY = 1 << 11  # elements; with fewer, NumPy is usually done before a kernel has been called

Launch = TypeVar("Launch", bound=Callable[..., Any])


class Rule(NamedTuple):
    """When a primitive runs as a kernel natively: if one of the arguments has `from_size` elements, and `when` says so.

    In any case, all arrays of floats among them must be float32 or float64: other dtypes are left to NumPy."""

    from_size: int = MANY
    when: Callable[..., bool] | None = None  # of the arguments; None: always
    never: str = ""  # why NumPy does it, whatever the arguments are; empty if it may run as a kernel
    silent: bool = False  # NumPy cannot warn of NaN and Inf here, since it computes nothing
    always: bool = False  # take the method of launch/ in any case: it launches nothing, but tells about kernels


def natively(from_size: int = MANY, **rule: Any) -> Callable[[Launch], Launch]:
    """The rule of a primitive."""

    def say(launch: Launch) -> Launch:
        launch.natively = Rule(from_size, **rule)  # type: ignore[attr-defined]
        return launch

    return say


VIEW = natively(never="a view", silent=True)
COPY = natively(never="NumPy copies as fast", silent=True)
NUMPYS = natively(never="NumPy does it")
