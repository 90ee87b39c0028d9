"""Optimizers with parameter groups, and the learning-rate schedule of nanoGPT."""

from .adam import Adam, AdamW
from .optimizer import Optimizer
from .schedule import warmup_cosine
from .sgd import SGD

__all__ = ["Adam", "AdamW", "Optimizer", "warmup_cosine", "SGD"]
