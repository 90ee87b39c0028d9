"""A graph has no reference cycles, may be of any depth, and its memory falls while backward walks it."""

import contextlib
import gc
import threading
import tracemalloc
import weakref
from pathlib import Path

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.nn import functional as F


@contextlib.contextmanager
def unreachable():
    """Yield a list. After the block it holds the types of the objects that only the garbage collector could free."""
    found = []
    gc.collect()
    enabled, flags = gc.isenabled(), gc.get_debug()
    gc.disable()
    gc.freeze()  # what was there before need not be looked through again
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        count = gc.collect()
        found.extend(type(x).__name__ for x in gc.garbage)
        assert count == len(found)
    finally:
        gc.set_debug(flags)
        gc.garbage.clear()
        gc.unfreeze()
        if enabled:
            gc.enable()


def resident():
    """Return the bytes of memory of this process, or 0 where there is no /proc."""
    path = Path("/proc/self/statm")
    return int(path.read_text().split()[1]) * 4096 if path.exists() else 0


class Small(nn.Module):
    def __init__(self):
        self.wte = nn.Embedding(7, 8)
        self.norm = nn.LayerNorm(8)
        self.attn = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 7))

    def forward(self, idx):
        x = self.wte(idx)
        x = x + self.attn(self.norm(x), is_causal=True)[0]
        return self.mlp(x)


def test_the_detector_detects():
    with unreachable() as found:
        x = mg.ones(2)
        holder = [x]
        holder.append(holder)
        del x, holder
    assert "list" in found


def test_hundreds_of_training_steps_leave_nothing_behind(thorough):
    model = Small()
    optimizer = mg.optim.AdamW(model.parameters())
    idx, targets = mg.randint(0, 7, (2, 5)), mg.randint(0, 7, (10,))

    def step():
        loss = F.cross_entropy(model(idx).reshape(10, 7), targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    for _ in range(100):
        step()
    with unreachable() as found:
        before = resident()
        for _ in range(1000 if thorough else 200):
            step()
        grown = resident() - before
    assert found == []
    assert grown < 4 << 20  # 200 leaked graphs of this model would be over 10 MB


def hooked():
    model = Small()
    handles = [model.attn.register_forward_hook(lambda module, args, y: None)]
    handles.append(model.mlp.register_forward_hook(lambda module, args, y: y * 1))
    y = model(mg.randint(0, 7, (2, 5)))
    y.register_hook(lambda g: g * 2)
    y.retain_grad()
    return model, y, handles


def second_order(model, y):
    parameters = list(model.parameters())
    gradients = mg.grad((y**2).sum(), parameters, create_graph=True)
    sum((g * g).sum() for g in gradients).backward()
    model.zero_grad()


def grad_with_graph(model, y):
    (y**2).sum().backward(create_graph=True)
    for p in model.parameters():
        p.grad = None
    y.grad = None


def weights_only(model, y):
    mg.grad((y**2).sum(), list(model.attn.parameters()), create_graph=True)


def first_layer(model, y):
    layer = nn.Linear(3, 3)
    (layer(mg.ones(2, 3)) ** 2).sum().backward(create_graph=True)
    layer.zero_grad()


def raising(model, y):
    def fail(g):
        raise KeyError("hook")

    y.register_hook(fail)
    with contextlib.suppress(KeyError):
        y.sum().backward()


def anomaly(model, y):
    with np.errstate(all="ignore"), mg.autograd.detect_anomaly(), contextlib.suppress(mg.autograd.AnomalyError):
        (y * 0.0).log()


@pytest.mark.parametrize(
    "use",
    [
        lambda model, y: None,
        lambda model, y: y.sum().backward(),
        second_order,
        grad_with_graph,
        weights_only,
        first_layer,
        raising,
        anomaly,
    ],
    ids=["dropped", "backward", "second order", "create_graph", "weights only", "first layer", "raising", "anomaly"],
)
def test_hooks_and_second_derivatives_leave_nothing_behind(use):
    mg.manual_seed(0)
    with unreachable() as found:
        model, y, handles = hooked()
        use(model, y)
        del model, y, handles
    assert found == []


def test_generating_leaves_nothing_behind():
    model = nn.GPT(nn.GPTConfig(vocab_size=5, block_size=4, n_layer=1, n_head=1, n_embd=4))
    with unreachable() as found:
        model.generate(mg.zeros(1, 1, dtype=mg.int64), 5, top_k=3)
    assert found == []


def test_a_graph_is_freed_with_its_last_tensor():
    gc.disable()
    try:
        x = mg.ones(3, requires_grad=True)
        y = (x * 2).exp()
        op, array = weakref.ref(y.op), weakref.ref(y.array)
        z = y.sum()
        del y
        assert op() is not None and array() is not None  # z needs them
        del z
        assert op() is None and array() is None
    finally:
        gc.enable()


# ---------------------------------------------------------------------------------------- the depth of a graph


@pytest.mark.parametrize("how", ["backward", "dropped", "grad"])
def test_a_long_chain_of_ops(how, thorough):
    depth = 100_000 if thorough else 20_000  # Python itself ends at 1,000 calls, a stack at some 10,000

    def run():  # in a thread, whose stack is small
        x = mg.ones(1, requires_grad=True)
        y = x
        for _ in range(depth):
            y = -y
        if how == "backward":
            y.backward()
            results.append(x.grad.item())
        elif how == "grad":
            results.append(mg.grad(y, x, retain_graph=True)[0].item())
        else:
            results.append(1.0)

    results = []
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert results == [1.0]


@pytest.mark.slow
def test_a_deep_second_derivative():
    x = mg.tensor(0.5, dtype=mg.float64, requires_grad=True)
    y = x
    for _ in range(5000):
        y = y * 1.0 + 0.0
    (g,) = mg.grad(y * y, x, create_graph=True)
    g.backward()
    assert x.grad.item() == 2.0


# ------------------------------------------------------------------------- memory falls while backward walks


def test_memory_falls_during_backward():
    n, size = 40, 50_000
    x = mg.full((size,), 0.1, requires_grad=True)
    x.tanh().sum().backward()  # loads kernels, whose memory is not meant
    x.grad, middle = None, []
    tracemalloc.start()
    try:
        y = x
        for i in range(n):
            y = y.tanh()
            if i == n // 2:
                y.register_hook(lambda g: middle.append(tracemalloc.get_traced_memory()[0]))
        y = y.sum()
        forward = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        y.backward()
        end, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    array = 4 * size
    assert n * array <= forward < (n + 2) * array
    assert peak < forward + 6 * array
    assert middle[0] < (n / 2 + 6) * array
    assert end < 4 * array  # x.grad, and what y itself holds
