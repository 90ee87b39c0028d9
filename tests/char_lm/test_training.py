"""The numbers of `minigrad train`: learning rates, validation losses, the best model, settings."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import optim
from minigrad.training import recipe, runner, runs, text

from .runs import SIZES, TINY, WORDS, main, options, rows, state


def trained(book, out, *argv):
    assert main(*TINY, "--text", book, "--out", out, *argv) == 0
    return rows(out)


def test_the_learning_rate_is_that_of_the_step(book, out):
    settings = dict(lr=0.02, min_lr=0.005, warmup=3, total=9)
    schedules = [optim.warmup_cosine, lambda step, **of: optim.warmup_linear(step, fall=0.6, **of)]
    for muon, shares in enumerate(([1.0] * 2, [1.0, 1.0, 1.0, 0.3, 0.3])):
        argv = options(dict(lr=0.02, min_lr=0.005, warmup=3, steps=9, muon=muon))
        table = trained(book, out / str(muon), *argv)
        expected = [schedules[muon](step, **settings) for step in range(9)]
        np.testing.assert_allclose([float(row["lr"]) for row in table], expected, rtol=1e-5)
        found = [group["lr"] for group in groups(out / str(muon))]
        np.testing.assert_allclose(found, np.array(shares) * expected[-1], rtol=1e-15)


def groups(out):
    """Return the parameter groups of all optimizers in a run's checkpoint."""
    saved = state(out)["optimizer"]
    return [group for each in saved.get("optimizers", [saved]) for group in each["param_groups"]]


FREE = "--weight-decay", 0, "--clip", 0


@pytest.mark.parametrize("muon", [0, 1])
def test_the_first_step_has_the_rate_of_the_table(book, out, muon):
    """With AdamW, |Δp| = lr for each number whose gradient is not tiny. With Muon, a matrix moves equally far in all
    directions."""
    assert main(*TINY, "--text", book, "--out", out, "--steps", 1, "--muon", muon, *FREE) == 0
    saved = state(out)
    mg.manual_seed(1337)
    before = recipe.model(saved["settings"], len(saved["chars"])).state_dict()
    moved = {name: (saved["model"][name] - p).numpy() for name, p in before.items()}
    lr = float(rows(out)[0]["lr"])
    for name, x in moved.items():
        if muon and x.ndim == 2 and name.startswith("blocks"):
            for part in np.split(x, 3) if "in_proj" in name else [x]:
                sizes = np.linalg.svd(part, compute_uv=False) / lr / max(1, part.shape[0] / part.shape[1]) ** 0.5
                assert np.median(sizes) == pytest.approx(0.95, abs=0.3) and sizes.max() < 1.3, name
        else:
            share = 0.3 if muon and "wte" not in name else 1.0
            assert abs(x).max() == pytest.approx(share * lr, rel=1e-3), name


def losses_by_hand(out, data, batch_size, block_size):
    """Return the (validation, training) loss of the last model over all characters, one sequence at a time."""
    model, vocab, _ = runs.load_char_model(out / "last.safetensors")
    found = []
    for ids in reversed(text.split(vocab.encode(data), 0.9)):
        values = []
        for x, y in text.fixed_batches(ids, block_size, 1):
            with mg.no_grad():
                values.append(model.eval()(mg.tensor(x), mg.tensor(y))[1].item())
        found.append(np.mean(values))
    return found


def test_the_validation_loss_is_the_mean_over_the_validation_split(book, out):
    """Each character counts once, also in the last, smaller batch. Dropout is off, and on again afterwards."""
    words = WORDS * 20 + "zzzz" * 40  # the end, which validates, is unlike the rest; 24 windows in batches of 23
    book.write_text(words)
    table = trained(book, out, *options(dict(steps=8, batch_size=23, eval_batches=0, eval_every=8, lr=0.05)))
    n = len(text.fixed_batches(np.zeros(len(words) - int(0.9 * len(words))), SIZES["block_size"], 1))
    assert n % 23 not in (0, 22)  # the last batch is smaller
    validation, of_training = losses_by_hand(out, words, 23, SIZES["block_size"])
    assert float(table[-1]["val"]) == pytest.approx(validation, rel=1e-5)
    assert abs(validation - of_training) > 0.05
    assert [row["val"] != "" for row in table] == [False] * 7 + [True]


def test_the_best_model_is_that_of_the_lowest_validation_loss(book, out, tmp_path):
    argv = options(dict(steps=14, eval_every=1, muon=0, lr=0.5, min_lr=0.5, warmup=0, weight_decay=0.1))
    table = trained(book, out, *argv)
    losses = [float(row["val"]) for row in table]
    best = int(np.argmin(losses))
    assert 0 < best < 13, losses  # the run is one whose best is neither the first nor the last
    assert state(out, "best")["step"] == best + 1
    for name in ("best", "last"):
        assert state(out, name)["best_loss"] == pytest.approx(losses[best], rel=1e-5)
    assert main("--resume", "--out", out, "--steps", 16) == 0  # two more that are no better
    assert min(float(row["val"]) for row in rows(out)[14:]) > losses[best]
    assert state(out, "best")["step"] == best + 1 and state(out)["step"] == 16


@pytest.mark.slow
def test_typed_wins_over_the_preset_that_over_the_saved_and_these_over_the_defaults(book, out):
    trained(book, out, "--steps", 1, "--lr", 0.03, "--clip", 0.7, "--eval-batches", 1, "--muon", 0)
    sizes = options(SIZES | dict(steps=2, eval_batches=1))
    assert main("--resume", "--out", out, "--preset", "nanogpt-cpu", *sizes, "--warmup", 5) == 0
    settings = state(out)["settings"]
    expected = runner.PRESETS["nanogpt-cpu"] | SIZES | dict(steps=2, eval_batches=1, warmup=5, seed=1337)
    assert {name: settings[name] for name in expected} == expected
    assert main("--resume", "--out", out, "--steps", 3) == 0
    assert state(out)["settings"] == settings | dict(steps=3)
    other = out.parent / "other"
    trained(book, other, "--steps", 1)
    typed = {**SIZES, "eval_every": 4, "warmup": 2, "dropout": 0.2, "steps": 1}
    defaults = {name: row[0] for name, row in runner.SETTINGS.items()} | typed
    assert {k: v for k, v in state(other)["settings"].items() if k != "text"} == defaults


def test_defaults_and_presets():
    """The README's figures come from the defaults; the nanogpt presets are nanoGPT's own settings."""
    sizes = dict(n_layer=3, n_head=4, n_embd=96, block_size=128, batch_size=16, dropout=0.0, steps=2200, muon=1)
    rates = dict(lr=0.02, min_lr=1e-3, warmup=10, weight_decay=0.0, clip=0.0)
    assert (
        sizes | rates | dict(eval_every=200, eval_batches=200, keep=0, keep_doubling=0, seed=1337, text=[])
        == runner.DEFAULTS
    )
    both = dict(muon=0, lr=1e-3, min_lr=1e-4, warmup=100, weight_decay=0.1, clip=1.0, eval_every=250, eval_batches=0)
    cpu = dict(n_layer=4, n_head=4, n_embd=128, block_size=64, batch_size=12, dropout=0.0, steps=2000)
    gpu = dict(n_layer=6, n_head=6, n_embd=384, block_size=256, batch_size=64, dropout=0.2, steps=5000)
    presets = runner.PRESETS
    fast = dict(n_layer=2, n_head=4, n_embd=96, block_size=64, batch_size=16, steps=280, lr=0.04, min_lr=0.002)
    assert presets == {"fast": fast | dict(eval_every=140), "nanogpt-cpu": both | cpu, "nanogpt-gpu": both | gpu}


def test_a_short_text_gets_fewer_steps_and_dropout(book, out, capsys):
    assert recipe.settings_for_length(2 * 10**7) == dict(steps=2200, eval_every=200, dropout=0.0, block_size=128)
    sizes = [word for word in TINY if "block" not in word and "dropout" not in word and "eval" not in word]
    assert main(*sizes, "--text", book, "--out", out, "--lr", 0.001) == 0  # of 1,460 characters
    assert "; 160 steps with dropout 0.4\n" in capsys.readouterr().out and len(rows(out)) == 160
    assert main("--resume", "--out", out, "--steps", 161) == 0
    settings = state(out)["settings"]
    assert (settings["block_size"], settings["dropout"], settings["eval_every"]) == (64, 0.4, 14)


def test_settings_at_their_lowest_train(book, out):
    lowest = {name: row[2].get("at_least", 0) for name, row in runner.SETTINGS.items()} | dict(steps=2, eval_batches=1)
    assert main(*options(lowest), "--text", book, "--out", out) == 0
    assert [float(row["lr"]) for row in rows(out)] == [0, 0] and all(row["val"] for row in rows(out))


def test_clipping_is_to_the_norm_and_the_table_has_that_before(book, out):
    small, none = (
        trained(book, out.parent / name, "--steps", 3, "--lr", 0.01, "--clip", clip)
        for name, clip in (("small", 1e-9), ("none", 0))
    )
    assert small[0]["grad_norm"] == none[0]["grad_norm"] and float(none[0]["grad_norm"]) > 0.05
    assert small[2]["train"] != none[2]["train"]  # eps of AdamW is large for gradients as small as these
