"""Forward and backward of a small GPT, captured as a CUDA graph and replayed on new data: equal to eager, bit for bit.

What minigrad uploads and downloads within a step (tables, checks of indices) cannot be captured. So a first step keeps
what goes up and down, and while the second is captured the same comes from there.
"""

import numpy as np
import pytest

import minigrad as mg
from minigrad import backend, nn

pytestmark = [pytest.mark.rig, pytest.mark.gpu]
CONFIG = dict(vocab_size=11, block_size=8, n_layer=1, n_head=2, n_embd=16)


class Kept:
    """A method of the backend, whose results are kept in a first step and given again in a second."""

    def __init__(self, method):
        self.method, self.kept, self.given = method, [], None

    def __call__(self, x):
        if self.given is not None:
            return next(self.given)
        self.kept.append(self.method(x))
        return self.kept[-1]


def tokens(seed):
    return np.random.default_rng(seed).integers(0, 11, (2, 8))


def test_a_captured_step_is_the_eager_one(monkeypatch):
    import cupy

    on = backend.get("cuda")
    stream, pool = cupy.cuda.Stream(non_blocking=True), cupy.cuda.MemoryPool()
    with stream:
        model = nn.GPT(nn.GPTConfig(**CONFIG)).to("cuda")
        parameters = list(model.parameters())
        x, y = (mg.tensor(tokens(0), device="cuda") for _ in range(2))

        def step():
            for p in parameters:
                p.grad = None
            loss = model(x, y)[1]
            loss.backward()
            return loss

        step()
        with monkeypatch.context() as patch:
            up, down = Kept(on.from_numpy), Kept(on.to_numpy)
            patch.setattr(on, "from_numpy", up)
            patch.setattr(on, "to_numpy", down)
            step()
            up.given, down.given = iter(up.kept), iter(down.kept)
            with cupy.cuda.using_allocator(pool.malloc):
                stream.begin_capture()
                loss = step()
                graph = stream.end_capture()
        gradients = [p.grad.array for p in parameters]

        for seed in (1, 2):
            on.copy_to(x.array, on.from_numpy(tokens(seed)))
            on.copy_to(y.array, on.from_numpy(tokens(seed + 10)))
            graph.launch(stream)
            replayed = [on.to_numpy(array) for array in (loss.array, *gradients)]
            eager = [on.to_numpy(array) for array in (step().array, *(p.grad.array for p in parameters))]
            for got, expected in zip(replayed, eager):
                np.testing.assert_array_equal(got, expected)
