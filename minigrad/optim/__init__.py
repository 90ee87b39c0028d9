"""Optimizers with parameter groups; learning-rate schedules, PyTorch's and nanoGPT's."""

from typing import TYPE_CHECKING

from . import lr_scheduler
from .adam import Adam, AdamW
from .muon import Muon
from .optimizer import Optimizer
from .schedule import warmup_cosine
from .sgd import SGD

__all__ = ["lr_scheduler", "Adam", "AdamW", "Muon", "Optimizer", "warmup_cosine", "SGD"]
