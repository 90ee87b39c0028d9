"""Thousands of wrong checkpoints through every loader: each is refused with one line, or is a model that works."""

import contextlib
import dataclasses
import io
import signal
from collections import Counter

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.__main__ import main
from minigrad.training import checkpoint, recipe, runner, runs

from ..char_lm.runs import quick_ending
from . import wrong_checkpoints

SECONDS = 20  # what loads at all takes milliseconds
WORDS = "The quick brown fox jumps over the lazy dog, and the dog does not mind.\n"
TINY = "--n-layer 1 --n-head 2 --n-embd 8 --block-size 8 --batch-size 3 --steps 2 --eval-every 4 --eval-batches 2"
REFUSED, FINE = "refused", "loaded"


class Hang(BaseException):
    pass


def outcome(function, *args, errors=(checkpoint.CheckpointError,)):
    """REFUSED or FINE, or else what went wrong: a traceback, a hang, an error of many lines, a model that is none."""

    def late(number, frame):
        raise Hang

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        function(*args)
    except errors as error:
        message = str(error)
        return REFUSED if len(message) < 600 and message.isprintable() else "not one line"
    except Hang:
        return "hang"
    except AssertionError as error:
        return f"wrong: {error}"
    except Exception as error:
        return f"traceback of {type(error).__name__}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return FINE


def table_of(cases, path, load, **options):
    """{outcome: how many}, and the names of the cases whose outcome should not be."""
    counts, bad = Counter(), []
    for name, contents in cases:
        path.write_bytes(contents())
        found = outcome(load, path, **options)
        counts[found] += 1
        if found not in (REFUSED, FINE):
            bad.append(f"{name}: {found}")
    return counts, bad


@pytest.fixture(scope="module", autouse=True)
def short():
    with pytest.MonkeyPatch.context() as patch:
        quick_ending(patch)
        yield


def run_main(*argv):
    """What a main program does, as an exception where it refuses."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), np.errstate(all="ignore"):
        try:
            status = main([str(a) for a in argv])
        except SystemExit as stop:
            status = stop.code
    if status:
        lines = [line for line in err.getvalue().splitlines() if ": note: " not in line]
        raise checkpoint.CheckpointError("\n".join(lines))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a small run, and the contents of its checkpoint."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "book").write_text(WORDS * 20)
    run_main("train", "--text", folder / "book", "--out", folder / "out", *TINY.split())
    return folder / "out", *checkpoint.load(folder / "out" / "last.safetensors")


@pytest.fixture(scope="module")
def cases(run):
    return wrong_checkpoints.all_of(*run[1:])


def check_model(model, vocab, config, weights):
    """It is the model that the file says, and does what a model does."""
    assert len(vocab) == config["vocab_size"] and weights, "sizes"
    made = dataclasses.asdict(model.config) | {"pruned": None}
    assert made.items() >= {name: v for name, v in config.items() if name != "pruned"}.items(), "config"
    state = model.state_dict()
    assert state.keys() == weights.keys(), "names"
    for name, x in weights.items():
        assert (state[name].numpy() == x.astype(state[name].dtype)).all(), name
    idx = mg.tensor(np.arange(6).reshape(2, 3) % len(vocab))
    assert model.generate(idx, 1).shape == (2, 4), "generated"


def load_model(path):
    """runs.load_char_model, which `sample`, the study and the examples load with."""
    model, vocab, meta = runs.load_char_model(path)
    tensors, _ = checkpoint.load(path)
    check_model(model, vocab, meta["config"], checkpoint.weights(tensors))


def load_any(path):
    tensors, meta = checkpoint.load(path)
    assert isinstance(meta, dict) and all(isinstance(x, np.ndarray) and x.flags.writeable for x in tensors.values())


def load_tensors(path):
    assert all(isinstance(x, np.ndarray) and x.flags.writeable for x in checkpoint.load_tensors(path).values())


def load_run(settings):
    def load(path):
        """As --resume does, with a step after it."""
        tensors, meta = runs.load_run(path, settings)
        saved = meta["settings"]
        with nn.init.skipped():
            model = recipe.model(settings | saved, len(meta["chars"]))
        optimizer = recipe.optimizer(model, settings | {"weight_decay": 0.1})
        generators = {"default": mg.Generator(), "batches": mg.Generator()}
        before = {name: x.numpy().tobytes() for name, x in model.state_dict().items()}
        try:
            checkpoint.unpack(tensors, meta, model, optimizer, generators)
        except checkpoint.CheckpointError:  # all or nothing
            assert not any(each.state for each in optimizer.optimizers) and all(
                g.state == mg.Generator().state for g in generators.values()
            ), "halves"
            assert all(before[name] == x.numpy().tobytes() for name, x in model.state_dict().items()), "half a model"
            raise
        idx = mg.tensor(np.arange(6).reshape(2, 3))
        model(idx, idx)[1].backward()
        with np.errstate(all="ignore"):  # of a learning rate of 1e9
            optimizer.step()
        generators["batches"].integers(0, 9, (4,))

    return load


def test_there_are_enough_of_them(cases):
    assert len(cases) >= 3000 and len({name for name, _ in cases}) == len(cases)


@pytest.mark.parametrize("load", [load_any, load_tensors])
def test_files(cases, tmp_path, load):
    files = [case for case in cases if not case[0].startswith(("meta ", "tensor "))]  # the others have a good header
    counts, bad = table_of(files, tmp_path / "c.safetensors", load)
    assert not bad, f"{counts}: {bad[:20]}"
    assert counts[REFUSED] > 300, counts


some_and_all = pytest.mark.parametrize("every", [16, pytest.param(1, marks=pytest.mark.slow)])


@some_and_all
def test_models(cases, tmp_path, every):
    counts, bad = table_of(cases[::every], tmp_path / "c.safetensors", load_model)
    assert not bad, f"{counts}: {bad[:20]}"
    # It refuses, but not everything.
    assert sum(counts.values()) > 3000 / every and min(counts[REFUSED], counts[FINE]) > 800 / every, counts


@some_and_all
def test_runs_to_go_on_with(cases, tmp_path, every):
    counts, bad = table_of(cases[::every], tmp_path / "c.safetensors", load_run(runner.DEFAULTS))
    assert not bad, f"{counts}: {bad[:20]}"
    assert sum(counts.values()) > 3000 / every, counts
    assert counts[REFUSED] > 800 / every and counts[FINE] > 200 / every, counts


@pytest.mark.slow
def test_main_programs(cases, run, tmp_path):
    """--resume, sample and the study, from end to end, with some of them."""
    out, _, _ = run
    rows = (out / "losses.csv").read_bytes()

    def resume(path):
        (out / "losses.csv").write_bytes(rows)
        run_main("train", "--resume", "--out", out, "--steps", 3)

    def sample(path):
        run_main("sample", path, "--tokens", 2)

    def ledger(path):
        run_main("ledger", path, "--text", "The", "--scope", "blocks.0.attn", "--head", 0)

    for first, load in enumerate((resume, sample, ledger)):
        path = out / "last.safetensors" if load is resume else tmp_path / "c.safetensors"
        # A batch of 10^9 is possible, and takes its time.
        some = [case for case in cases[first::41] if "batch_size" not in case[0]]
        counts, bad = table_of(some, path, load)
        assert not bad, f"{load.__name__}: {counts}: {bad[:20]}"
        assert counts[REFUSED] > 15 and counts[FINE] > 5, counts


def gpt2():
    """The weights of a small GPT-2, as Hugging Face names them."""
    C, rng = 6, np.random.default_rng(0)
    shapes = {"wte.weight": (5, C), "wpe.weight": (4, C), "ln_f.weight": (C,), "ln_f.bias": (C,)}
    for layer in ("h.0", "h.1"):
        sizes = {"attn.c_attn": (C, 3 * C), "attn.c_proj": (C, C), "mlp.c_fc": (C, 4 * C), "mlp.c_proj": (4 * C, C)}
        for name, (n, m) in sizes.items():
            shapes |= {f"{layer}.{name}.weight": (n, m), f"{layer}.{name}.bias": (m,)}
        shapes |= {f"{layer}.{name}.{part}": (C,) for name in ("ln_1", "ln_2") for part in ("weight", "bias")}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def load_gpt2(path):
    with np.errstate(invalid="ignore"):
        model = nn.GPT.from_state_dict(checkpoint.load_tensors(path), n_head=2)
        assert model(mg.tensor([[1, 0]]))[0].shape == (1, 2, model.config.vocab_size), "logits"


@pytest.mark.slow
def test_weights_from_elsewhere(tmp_path):
    weights = gpt2()
    cases = [*wrong_checkpoints.wrong_tensors(weights, {}), *wrong_checkpoints.wrong_headers(weights, {})]
    counts, bad = table_of(cases, tmp_path / "model.safetensors", load_gpt2, errors=(ValueError,))
    assert not bad, f"{counts}: {bad[:20]}"
    assert len(cases) > 500 and counts[REFUSED] > 300 and counts[FINE] > 30, counts
