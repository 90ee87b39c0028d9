"""Where PyTorch has torch.utils: `data` holds datasets and loaders."""

from typing import TYPE_CHECKING

from . import data

__all__ = ["data"]
