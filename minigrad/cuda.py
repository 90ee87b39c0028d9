"""PyTorch's way of asking for a GPU: `device = "cuda" if mg.cuda.is_available() else "cpu"`."""

from . import backend
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


def manual_seed_all(seed: int) -> None:
    """manual_seed(seed): one generator serves all devices."""
    manual_seed(seed)
