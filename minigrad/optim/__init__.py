"""Optimizers with parameter groups; learning-rate schedules, PyTorch's and nanoGPT's."""

from typing import TYPE_CHECKING

from . import lr_scheduler
from .adam import Adam, AdamW
from .optimizer import Optimizer
from .schedule import warmup_cosine
from .sgd import SGD
from ..base.missing import explaining, listing

__all__ = ["lr_scheduler", "Adam", "AdamW", "Optimizer", "warmup_cosine", "SGD"]

if not TYPE_CHECKING:  # to mypy a module with __getattr__ would have every name
    __getattr__, __dir__ = explaining(__name__), listing(__name__)
