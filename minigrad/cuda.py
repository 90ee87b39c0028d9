"""Is there a GPU, and how does it multiply? `device = "cuda" if mg.cuda.is_available() else "cpu"`, as in PyTorch."""

from . import backend
from .backend.launch.launcher import PRECISIONS, Launcher
from .random import manual_seed

manual_seed_all = manual_seed  # one stream of random numbers serves all devices


def is_available() -> bool:
    """Can tensors be made with device="cuda" here? `minigrad doctor` says why not."""
    try:
        backend.get("cuda")
    except backend.DeviceError:
        return False
    return True


def device_count() -> int:
    """1 if there is a GPU, else 0: minigrad uses a single one."""
    return int(is_available())


def synchronize() -> None:
    """Wait until the GPU has finished all work. Raises DeviceError if there is none."""
    backend.get("cuda").synchronize()


def set_float32_matmul_precision(precision: str) -> None:
    """Precision of float32 matrix products and attention on a GPU. 'highest': float32. For tensor cores, 'high' rounds
    factors to TF32 (10 fraction bits) and 'medium' to bfloat16 (7): both have float32's range, and arrays and sums stay
    float32. The CPU always uses 'highest'. Raises ValueError for other words."""
    if precision not in PRECISIONS:
        raise ValueError(f"set_float32_matmul_precision takes 'highest', 'high' or 'medium', not {precision!r}")
    Launcher.precision = precision


def get_float32_matmul_precision() -> str:
    """'highest', 'high' or 'medium'."""
    return Launcher.precision
