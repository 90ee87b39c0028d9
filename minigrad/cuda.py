"""PyTorch's way of asking for a GPU, and how it multiplies: `device = "cuda" if mg.cuda.is_available() else "cpu"`."""

from . import backend
from .backend.launch.launcher import Launcher
from .random import manual_seed


def is_available() -> bool:
    """Can tensors be made with device="cuda" here? `minigrad doctor` says why not."""
    try:
        backend.get("cuda")
    except backend.DeviceError:
        return False
    return True


def device_count() -> int:
    """1 where there is a GPU, else 0: minigrad uses one."""
    return int(is_available())


def is_bf16_supported() -> bool:
    """False: there is no bfloat16 here."""
    return False


def synchronize() -> None:
    """Wait until the GPU has done all that was asked of it. Raises DeviceError where there is none."""
    backend.get("cuda").synchronize()


def set_float32_matmul_precision(precision: str) -> None:
    """How a GPU multiplies float32 in matrix products and attention: 'highest', as float32; or 'high' or 'medium', on
    tensor cores and two to three times as fast, what is rounded to TF32, of 10 bits after the point. Sums are float32
    all the same, and the CPU knows 'highest' only. ValueError for other words."""
    if precision not in ("highest", "high", "medium"):
        raise ValueError(f"set_float32_matmul_precision takes 'highest', 'high' or 'medium', not {precision!r}")
    Launcher.tf32 = precision != "highest"


def get_float32_matmul_precision() -> str:
    """'highest' or 'high'."""
    return "high" if Launcher.tf32 else "highest"


def manual_seed_all(seed: int) -> None:
    """manual_seed(seed): one generator serves all devices."""
    manual_seed(seed)
