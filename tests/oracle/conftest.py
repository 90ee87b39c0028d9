"""PyTorch for the tests that compare with it. It is imported only when one runs: a collection must not take seconds."""

import sys

import pytest


@pytest.fixture(autouse=True)
def torch_seed():
    """Each test draws the same numbers, whatever ran before."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(scope="session")
def torch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.set_num_threads(1)  # its threads would spin while ours want the cores
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # the one that has second derivatives
        yield torch
