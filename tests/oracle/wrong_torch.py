"""Wrong gradients of PyTorch in a module that a snippet can import."""

import torch


class Third(torch.autograd.Function):
    """y = 2x, with 3 dy for its gradient."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, dy):
        return 3 * dy


class WrongForOne(torch.autograd.Function):
    """y = 2x, whose gradient is wrong for a single row."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, dy):
        return (3 if len(dy) == 1 else 2) * dy


def scaled(x, w, *, by):
    return Third.apply(x) * w * by


def wrong_for_one(x):
    return WrongForOne.apply(x)
