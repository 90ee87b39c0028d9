"""Queries and settings of the GPU, with PyTorch's names: `device = "cuda" if mg.cuda.is_available() else "cpu"`."""

from . import backend
from .backend.launch.launcher import PRECISIONS, Launcher
from .random import manual_seed

manual_seed_all = manual_seed  # one stream of random numbers serves all devices


def is_available() -> bool:
    """True if tensors can be made with device="cuda". If not, `minigrad doctor` says why."""
    try:
        backend.get("cuda")
    except backend.DeviceError:
        return False
    return True


def device_count() -> int:
    """Return 1 if there is a GPU, else 0: minigrad uses a single one."""
    return int(is_available())


def synchronize() -> None:
    """Wait until the GPU has finished all work. Raises DeviceError if there is none."""
    backend.cuda().synchronize()


def set_float32_matmul_precision(precision: str) -> None:
    """Set the precision of float32 matrix products and attention on a GPU.

    'highest' multiplies in float32. 'high' and 'medium' use tensor cores: factors are rounded to TF32 (10 fraction
    bits) or to bfloat16 (7 bits), which have float32's range; arrays and sums stay float32. The CPU always uses
    'highest'. Raises ValueError for other words."""
    if precision not in PRECISIONS:
        raise ValueError(f"set_float32_matmul_precision takes 'highest', 'high' or 'medium', not {precision!r}")
    Launcher.precision = precision


def get_float32_matmul_precision() -> str:
    """Return 'highest', 'high' or 'medium'."""
    return Launcher.precision
