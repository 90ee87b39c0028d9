"""A whole training step captured as a CUDA graph: what the host does for one, that its bits are those of eager steps,
and what a wrong index does."""

import gc

import numpy as np
import pytest

import minigrad as mg
from minigrad import backend, nn, optim
from minigrad.backend.runners import gpu
from minigrad.nn import functional as F
from minigrad.replay.cuda_graph import SLOTS

from .host_work import per_step, trainer

pytestmark = [pytest.mark.rig, pytest.mark.gpu]
OF_THE_CPU = mg.ones(3)
CONFIG = dict(vocab_size=11, block_size=8, n_layer=2, n_head=2, n_embd=16, dropout=0.2, clip=0.5)


def state(model, optimizer):
    moments = [s[name] for s in optimizer.state.values() for name in ("m", "v")]
    return [x.detach().numpy() for x in (*model.parameters(), *moments)]


def test_twenty_steps_are_the_eager_ones():
    """With dropout, clipping and a schedule, and without a wait in between."""
    results = []
    for captured in (True, False):
        take, *trained = trainer(captured, **CONFIG)
        losses = [take(i) for i in range(20)]
        results.append([x.detach().numpy() for pair in losses for x in pair] + state(*trained))
    for got, expected in zip(*results, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_a_captured_step_is_one_graph_launch():
    """One launch, of the graph; no wait; and of uploads the two that the caller asks for: x and y."""
    take, *_ = trainer(captured=True, **CONFIG)
    assert per_step(take, steps=10) == {"launches": 0, "graphs": 1, "waits": 0, "uploads": 2}


def test_an_eager_step_launches_and_waits_only_for_item():
    take, *_ = trainer(captured=False, **CONFIG)
    eager = per_step(take, steps=1)
    assert eager["launches"] > 50 and eager["waits"] == 0 and eager["uploads"] > 2 and eager["graphs"] == 0
    assert per_step(lambda i: take(i)[0].item(), steps=1)["waits"] >= 1


def test_the_host_may_be_many_calls_ahead():
    """Each call's numbers are its own, however many calls wait to be run."""
    f = mg.capture(lambda x: F.dropout(x, 0.5))
    x = mg.ones(100, device="cuda")
    mg.manual_seed(3)
    captured = [f(x) for _ in range(2 * SLOTS + 3)]
    mg.manual_seed(3)
    for y in captured:
        np.testing.assert_array_equal(y.numpy(), F.dropout(x, 0.5).numpy())


def test_two_streams_take_turns():
    import cupy

    total = mg.zeros(3, device="cuda")
    backend.get("cuda").synchronize()

    def add(x):
        total.add_(x)
        return total * 1

    f = mg.capture(add)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    seen = []
    for i in range(6):
        with streams[i % 2]:
            seen.append(f(mg.full((3,), float(i), device="cuda")))
    for stream in streams:
        stream.synchronize()
    assert [y.tolist()[0] for y in seen] == [0, 1, 3, 6, 10, 15]


# ------------------------------------------------------------------------------------------------------- wrong indices


def embedding_trainer(make, capture=mg.capture):
    """A step of an optimizer on an embedding and a classifier, captured or not, and what it changes."""
    table, head = nn.Embedding(5, 4).to("cuda"), nn.Linear(4, 3).to("cuda")
    optimizer = make([*table.parameters(), *head.parameters()])

    def step(x, y):
        loss = F.cross_entropy(head(table(x)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    def run(x, y):
        return captured(*(mg.tensor(values, device="cuda") for values in (x, y)))

    captured = capture(step)
    buffers = [value for s in optimizer.state.values() for value in s.values() if isinstance(value, mg.Tensor)]
    return run, [*table.parameters(), *head.parameters(), *buffers]


@pytest.mark.parametrize("capture", [mg.capture, lambda step: step], ids=["captured", "eager"])
@pytest.mark.parametrize("make", [lambda p: optim.AdamW(p, lr=0.1), lambda p: optim.SGD(p, lr=0.1, momentum=0.9)])
@pytest.mark.parametrize(
    "x, y, message",
    [
        ([0, 5], [0, 1], "embedding: index 5 "),
        ([-1, 7], [0, 1], "index -1 "),
        ([0, 1], [0, 3], "cross_entropy: index 3 "),
    ],
)
def test_a_wrong_index_is_told_and_changes_no_parameter(make, x, y, message, capture):
    run, changed = embedding_trainer(make, capture)
    run([0, 4], [2, -100]).item()  # -100 is ignored
    kept = [t.detach().numpy() for t in changed]
    run(x, y)
    run([1, 2], [0, 1])  # nobody has noticed yet
    with pytest.raises(IndexError, match=message + r".*test_replay\.py:\d+"):
        backend.get("cuda").synchronize()
    for t, before in zip(changed, kept):
        np.testing.assert_array_equal(t.detach().numpy(), before)
    run([1, 2], [0, 1]).item()  # and on it goes
    assert not all(np.array_equal(t.detach().numpy(), before) for t, before in zip(changed, kept))


def test_a_wrong_index_is_told_by_whatever_waits_first():
    run, _ = embedding_trainer(lambda p: optim.SGD(p, lr=0.1))
    loss = run([0, 9], [0, 1])
    with pytest.raises(IndexError, match="index 9 "):
        loss.item()
    assert np.isfinite(loss.item())  # told once


def test_reading_at_a_tensor_of_indices_waits_for_nothing(monkeypatch):
    on = backend.get("cuda")
    x = mg.arange(24.0, device="cuda").reshape(2, 3, 4).requires_grad_()
    index, one, two = (mg.tensor(i, device="cuda") for i in ([[2, -1], [-3, 0]], [-1], [2]))
    with monkeypatch.context() as patch:
        patch.setattr(gpu.Cuda, "to_numpy", None)
        y, z, wrong = x[:, index], x[one], x[two]
        (y * y).sum().backward()
    with pytest.raises(IndexError, match=r"index 2 is out of range for size 2 \(.*test_replay\.py:\d+\)"):
        on.synchronize()
    values, places = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4), np.array([[2, -1], [-3, 0]])
    np.testing.assert_array_equal(on.to_numpy(y.array), values[:, places])
    np.testing.assert_array_equal(on.to_numpy(z.array), values[[-1]])
    assert wrong.shape == (1, 3, 4)
    dx = np.zeros_like(values)
    np.add.at(dx, (slice(None), places), 2 * values[:, places])
    np.testing.assert_array_equal(on.to_numpy(x.grad.array), dx)


def test_an_index_of_nothing_is_told_at_once():
    index = mg.tensor([[0]], device="cuda")
    for read in (lambda x: x[index], lambda x: x.gather(0, index), lambda x: F.embedding(index, x)):
        with pytest.raises(IndexError, match="size 0"):
            read(mg.zeros(0, 1, device="cuda"))


def test_a_mask_stays_on_the_gpu():
    values = np.random.default_rng(0).standard_normal((5, 4, 3), np.float32)
    x = mg.tensor(values, device="cuda", requires_grad=True)
    masks = values[:, :, 0] > 0, values > 0.5, np.zeros(5, bool)
    for mask in masks:
        there = mg.tensor(mask, device="cuda")
        x.grad = None
        y = x[there]
        (y * y).sum().backward()
        np.testing.assert_array_equal(y.detach().numpy(), values[mask])
        np.testing.assert_array_equal(
            x.grad.numpy(), np.where(mask.reshape(mask.shape + (1,) * (3 - mask.ndim)), 2 * values, 0)
        )


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_a_gpu_writes_what_a_cpu_writes(positions):
    sizes = dict(vocab_size=11, block_size=8, n_layer=2, n_head=2, n_embd=16)
    model, prompts = nn.GPT(nn.GPTConfig(**sizes, positions=positions)), [[1, 2, 3], [4, 5, 6]]
    expected = model.generate(prompts, 20, temperature=0).numpy()
    np.testing.assert_array_equal(model.to("cuda").generate(prompts, 20, temperature=0).numpy(), expected)


@pytest.mark.parametrize("other", [lambda: mg.zeros(3), lambda: mg.rand(3), lambda: OF_THE_CPU])
def test_tensors_of_another_device_are_refused(other):
    f = mg.capture(lambda x: x + other())
    with pytest.raises(mg.CaptureError, match=r"on two devices.*test_replay\.py"):
        f(mg.ones(3, device="cuda"))
    g = mg.capture(lambda x: mg.ones(3) * OF_THE_CPU)  # nothing of it is on the GPU
    assert g(mg.ones(3, device="cuda")).tolist() == [1, 1, 1]


def test_a_step_finds_its_device_and_moves_data_and_results():
    """Without arguments, from a batch on the host, to a loss on the host: recorded once, as without."""
    weight = nn.Parameter(mg.ones(3, device="cuda"))
    optimizer, rng = optim.SGD([weight], lr=0.1), np.random.default_rng(0)

    def step():
        batch = mg.from_numpy(rng.standard_normal((4, 3)).astype(np.float32))
        optimizer.zero_grad()
        loss = (batch.to("cuda") @ weight).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach().cpu()

    def drawn():
        return mg.rand(3, device="cuda") * weight

    found = []
    for captured in (True, False):
        rng, take = np.random.default_rng(0), mg.capture(step) if captured else step
        weight.data = mg.ones(3, device="cuda")
        found.append([take().item() for _ in range(6)] + weight.tolist())
    assert found[0] == found[1]
    draw = mg.capture(drawn)
    for _ in range(4):
        draw()
    assert draw.calls == {"captured": 1, "replayed": 3, "uncaptured": 0}


def test_a_graph_that_is_dropped_before_it_has_run():
    """What it reads in page-locked memory is not given to others before."""
    f, x, on = mg.capture(lambda x: F.dropout(x, 0.5)), mg.ones(50, device="cuda"), backend.get("cuda")
    mg.manual_seed(5)
    captured = [f(x) for _ in range(5)]
    del f
    gc.collect()
    others = [on.pinned((SLOTS, 2), np.uint64) for _ in range(5)]
    for memory in others:
        memory[...] = 0
    mg.manual_seed(5)
    for y in captured:
        np.testing.assert_array_equal(y.numpy(), F.dropout(x, 0.5).numpy())


def test_no_optimizer_trains_on_a_wrong_index():
    """Not outside of the captured step, not in another tree, and not before the check in the step's next call."""
    table, w = nn.Embedding(6, 4).to("cuda"), mg.ones(2, device="cuda", requires_grad=True)
    outside, other = optim.SGD(table.parameters(), lr=0.1), optim.SGD([w], lr=0.1)

    @mg.capture
    def backward(idx):
        other.zero_grad()
        (w * w).sum().backward()
        other.step()  # before any index is checked
        outside.zero_grad()
        loss = (table(idx) ** 2).sum()
        loss.backward()
        return loss

    def indices(*values):
        return mg.tensor(np.array(values), device="cuda")

    backward(indices(1, 2)).item()
    backward(indices(1)).item()
    backward(indices(1, 99))
    kept = [x.detach() * 1 for x in (table.weight, w)]
    outside.step()
    backward(indices(1))
    backward(indices(1, 2))
    after = [x.detach() * 1 for x in (table.weight, w)]
    with pytest.raises(IndexError, match="index 99 "):
        backend.get("cuda").synchronize()
    for a, b in zip(kept, after):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_ctrl_c_before_a_launch(monkeypatch):
    """It is queued all the same, once: else each call would read another's numbers."""
    seen = []
    for interrupted in (False, True):
        f = mg.capture(lambda x: x + mg.rand(2, device="cuda"))
        mg.manual_seed(1)
        x = mg.zeros(2, device="cuda")
        f(x)
        (tree,) = f._trees.values()
        (graph,) = tree.programs.values()
        real = graph._graph

        class Interrupted:
            def launch(self, stream, graph=graph, real=real):
                graph._graph = real
                raise KeyboardInterrupt

        if interrupted:
            graph._graph = Interrupted()
            with pytest.raises(KeyboardInterrupt):
                f(x)
        else:
            f(x)
        seen.append([f(x).tolist() for _ in range(3)])
    assert seen[0] == seen[1]


def test_a_wait_of_another_thread_loses_no_error():
    on = backend.get("cuda")
    table = nn.Embedding(5, 2).to("cuda")
    f = mg.capture(lambda idx: table(idx).sum())
    f(mg.tensor([1], device="cuda")).item()
    f(mg.tensor([2], device="cuda"))
    on.current_stream().synchronize()

    class Meanwhile(dict):  # a call comes just when the graph has been taken off the list
        def pop(self, graph, default=None):
            found = super().pop(graph, default)
            if not self.called:
                self.called = True
                f(mg.tensor([9], device="cuda"))
            return found

    on.unread_checks = Meanwhile(on.unread_checks)
    on.unread_checks.called = False
    with pytest.raises(IndexError, match="index 9 "):
        on.raise_index_errors()
        on.synchronize()
    on.unread_checks = dict(on.unread_checks)
