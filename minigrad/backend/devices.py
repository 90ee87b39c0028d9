"""The name of a device."""

from typing import Any


class device(str):
    """The name of a device, 'cpu' or 'cuda'. device("cuda:0") and device("cuda", 0), which PyTorch has, give 'cuda'.

    It is a str, so that x.device == "cpu". Whether the device can be used is checked at its first use. Raises
    ValueError for another name."""

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
        """0 for the GPU, None for the CPU. (It takes the place of str.index.)"""
        return 0 if self == "cuda" else None
