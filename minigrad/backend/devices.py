"""The name of a device."""

from typing import Any


class device(str):
    """A device's name as `device=` takes it, 'cpu' or 'cuda': also of PyTorch's 'cuda:0', and device("cuda", 0).

    A str, so that x.device == "cpu". The device itself is checked at its first use. Raises ValueError for others."""

    __slots__ = ()

    def __new__(cls, type: Any, index: int | None = None) -> "device":
        kind, _, number = str(type).partition(":")
        given = number if index is None else str(index)
        if kind not in ("cpu", "cuda") or given not in ("", "0") or (number and index is not None):
            asked = str(type) if index is None else f"{type}:{index}"
            raise ValueError(f"unknown device {asked!r}; there are 'cpu' and 'cuda', which is one GPU")
        return super().__new__(cls, kind)

    @property
    def type(self) -> str:
        """'cpu' or 'cuda'."""
        return str(self)

    @property
    def index(self) -> int | None:  # type: ignore[override]
        """0 of the GPU, None of the CPU. (So it is not the method of str.)"""
        return 0 if self == "cuda" else None
