"""Optimizers with parameter groups; learning-rate schedules, PyTorch's and nanoGPT's.

Contents
    Adam            Steps in proportion to the mean of the gradients over the root of the mean of their squares
    AdamW           Adam, but weight decay is apart from the gradient
    Optimizer       Base class of optimizers
    warmup_cosine   The learning rate at a step, counted from 0: linear up to lr over `warmup` steps, then half a …
    SGD             Stochastic gradient descent, with momentum
    lr_scheduler    Learning rates that follow a schedule, under PyTorch's names: `scheduler.step()` after each …
"""

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
