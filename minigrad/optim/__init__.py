"""Optimizers with parameter groups; learning-rate schedules, PyTorch's and nanoGPT's."""

from typing import TYPE_CHECKING

from . import lr_scheduler
from .adam import Adam, AdamW
from .muon import Muon
from .optimizer import Optimizer, Optimizers
from .lr_scheduler import warmup_cosine, warmup_linear
from .sgd import SGD
from ..base.missing import attributes

__all__ = ["lr_scheduler", "Adam", "AdamW", "Muon", "Optimizer", "Optimizers", "warmup_cosine", "warmup_linear", "SGD"]

if not TYPE_CHECKING:  # to mypy a module with __getattr__ would have every name
    __getattr__, lr_scheduler.__getattr__ = attributes(__name__), attributes(lr_scheduler.__name__)
