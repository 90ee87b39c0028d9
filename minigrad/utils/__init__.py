"""The names of torch.utils: `data` has datasets and loaders."""

from typing import TYPE_CHECKING

from . import data
from ..base.missing import module_getattr

__all__ = ["data"]

if not TYPE_CHECKING:  # to mypy a module with __getattr__ would have every name
    data.__getattr__ = module_getattr(data.__name__)
