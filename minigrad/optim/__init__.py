"""Optimizers with parameter groups; learning-rate schedules, PyTorch's and nanoGPT's."""

from typing import TYPE_CHECKING

from . import lr_scheduler
from .adam import Adam, AdamW
from .optimizer import Optimizer
from .schedule import warmup_cosine
from .sgd import SGD

__all__ = ["lr_scheduler", "Adam", "AdamW", "Optimizer", "warmup_cosine", "SGD"]
