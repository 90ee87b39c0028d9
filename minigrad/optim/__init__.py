"""Optimizers with parameter groups; learning-rate schedules, PyTorch's and nanoGPT's."""

from typing import TYPE_CHECKING

from . import lr_scheduler
from .adam import Adam, AdamW
from .muon import Muon
from .optimizer import Optimizer, Optimizers
from .lr_scheduler import warmup_cosine, warmup_linear
from .sgd import SGD

__all__ = ["lr_scheduler", "Adam", "AdamW", "Muon", "Optimizer", "Optimizers", "warmup_cosine", "warmup_linear", "SGD"]
