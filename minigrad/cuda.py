"""Is there a GPU, and how does it multiply? `device = "cuda" if mg.cuda.is_available() else "cpu"`, as in PyTorch."""

from . import backend
from .backend.launch.launcher import Launcher


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
    """Precision of float32 matrix products and attention on a GPU. 'highest': float32. 'high' or 'medium': factors are
    rounded to TF32 (10 fraction bits) for tensor cores, two to three times as fast; sums stay float32. The CPU always
    uses 'highest'. Raises ValueError for other words."""
    if precision not in ("highest", "high", "medium"):
        raise ValueError(f"set_float32_matmul_precision takes 'highest', 'high' or 'medium', not {precision!r}")
    Launcher.tf32 = precision != "highest"


def get_float32_matmul_precision() -> str:
    """'highest' or 'high'."""
    return "high" if Launcher.tf32 else "highest"
