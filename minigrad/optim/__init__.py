"""Optimizers with parameter groups; learning rates that follow a schedule.

optimizer.py has the base class, and shows how to write an optimizer. sgd.py, adam.py and muon.py have options and
formulas. Each formula is a primitive that changes all parameters at once; backend/numpy/optim.py has them in NumPy.
lr_scheduler.py has schedules in PyTorch's form, schedule.py has rates as functions of the step. Muon is for the
matrices within a model:

    inside, rest = model.muon_groups(weight_decay=0.1)  # of an nn.GPT
    optimizer = Optimizers(Muon(inside, lr=0.02), AdamW(rest, lr=6e-3))  # steps and is saved as one
"""

from typing import TYPE_CHECKING

from . import lr_scheduler
from .adam import Adam, AdamW
from .muon import Muon
from .optimizer import Optimizer, Optimizers
from .schedule import warmup_cosine, warmup_linear
from .sgd import SGD
from ..base.missing import module_getattr

__all__ = [
    "Adam", "AdamW", "Muon", "Optimizer", "Optimizers", "SGD", "lr_scheduler", "warmup_cosine", "warmup_linear",
]  # fmt: skip

if not TYPE_CHECKING:  # to mypy a module with __getattr__ would have every name
    __getattr__ = module_getattr(__name__)
