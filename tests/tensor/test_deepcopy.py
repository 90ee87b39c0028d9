"""copy.deepcopy of tensors: values, gradients, and tensors that occur twice."""

import copy

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn


def test_the_gradient_is_copied_and_hooks_are_not():
    x, seen = mg.ones(2, requires_grad=True), []
    x.register_hook(seen.append)
    (3 * x).sum().backward()
    y = copy.deepcopy(x)
    assert y.grad.tolist() == [3, 3] and y.grad is not x.grad and y.requires_grad and y.is_leaf
    y.grad.zero_()
    y.sum().backward()
    assert x.grad.tolist() == [3, 3] and y.grad.tolist() == [1, 1] and len(seen) == 1
    assert copy.deepcopy(mg.ones(2, requires_grad=True)).grad is None


def test_a_subclass_keeps_its_attributes():
    class Named(nn.Parameter):
        pass

    p = Named(mg.ones(2))
    p.like = [p]
    q = copy.deepcopy(p)
    assert type(q) is Named and q.like[0] is q


@pytest.mark.gpu
def test_on_a_gpu_it_stays_there():
    made = copy.deepcopy(mg.tensor(np.arange(4.0), device="cuda"))
    assert made.device == "cuda" and made.cpu().tolist() == [0, 1, 2, 3]
