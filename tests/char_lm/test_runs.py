"""`minigrad train`: a resumed run has the same bits, and bad input is answered in one line."""

import math
import re
import shlex

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.training import recipe, runner, runs

from .runs import SIZES, TINY, WORDS, fails, main, options, rows, same_run, start, state, stop_after


def test_a_run_leaves_all_its_files_and_learns(book, out, capsys):
    assert main(*TINY, "--text", book, "--out", out, "--steps", 40, "--eval-every", 8, "--lr", 0.03) == 0
    assert {p.name for p in out.iterdir()} == {"last.safetensors", "best.safetensors", "losses.csv"}
    table = rows(out)
    assert [int(row["step"]) for row in table] == list(range(1, 41))
    assert [int(row["step"]) for row in table if row["val"]] == list(range(8, 41, 8))
    assert float(table[-1]["val"]) < float(table[7]["val"]) - 0.5
    best = min(float(row["val"]) for row in table if row["val"])
    assert state(out, "best")["best_loss"] == state(out)["best_loss"] == pytest.approx(best, rel=1e-5)
    lines = capsys.readouterr().out.splitlines()
    at = lines.index(next(line for line in lines if line.startswith("step 16: ")))
    mean = np.mean([float(row["train"]) for row in table[8:16]])  # since the validation before
    assert lines[at] == f"step 16: training loss {mean:.4f}, validation loss {float(table[15]['val']):.4f}"
    assert re.fullmatch(r"    \S.{20,100}", lines[at + 1])  # what it would write
    assert f"best validation loss: {best:.4f} nats, or {best / math.log(2):.2f} bits, per character" in lines
    *_, wrote, sample, further = lines
    assert set(wrote.removeprefix("wrote ").split(", ")) == {str(p) for p in out.iterdir()}
    sample, further = (shlex.split(line.partition(": ")[2]) for line in (sample, further))  # to be typed as they are
    assert [command[1:3] for command in (sample, further)] == [["-m", "minigrad"]] * 2
    assert main(*sample[3:], "--prompt=The", "--tokens", 5) == 0 and capsys.readouterr().out.startswith("The")
    assert further[3:] == ["train", "--resume", "--steps", "80", "--out", str(out)]
    assert main(*further[4:], "--steps", 61, "--keep", 2) == 0 and state(out)["step"] == 61
    assert "kept the models of these steps, as" in capsys.readouterr().out


def test_the_preset_is_nanogpts_and_options_override_it(book, out):
    typed = options(SIZES | dict(eval_batches=1, steps=1))
    assert main("--preset", "nanogpt-cpu", *typed, "--text", book, "--out", out) == 0
    settings = state(out)["settings"]
    assert settings["n_layer"] == 1 and settings["lr"] == 1e-3 and settings["min_lr"] == 1e-4
    assert settings["warmup"] == 100 and settings["weight_decay"] == 0.1 and settings["clip"] == 1.0
    groups = state(out)["optimizer"]["param_groups"]
    assert [g["weight_decay"] for g in groups] == [0.1, 0.0] and groups[0]["betas"] == (0.9, 0.99)


def test_sample_writes_what_the_seed_says(book, out, capsys):
    main(*TINY, "--text", book, "--out", out, "--steps", 4)
    capsys.readouterr()

    def written(*argv):
        assert main("sample", out, "--tokens", 30, *argv) == 0
        return capsys.readouterr().out.removesuffix("\n")

    first = written("--prompt", "The ")
    assert first.startswith("The ") and len(first) == 34
    assert written("--prompt", "The ") == first != written("--prompt", "The ", "--seed", 5)
    assert written("--temperature", 0) == written("--temperature", 0, "--seed", 5) == written("--top-k", 1)
    assert "the vocabulary lacks 'é' (U+00E9), at position 3" in fails(capsys, "sample", out, "--prompt", "Theé")
    (out / "best.safetensors").unlink()  # as before the first validation
    assert main("sample", out, "--tokens", 5) == 0


# ------------------------------------------------------------------------------------------------------------ resuming


@pytest.mark.parametrize("steps", [1, 4, 5, 11])
def test_a_resumed_run_is_the_run_never_stopped(book, tmp_path, steps, capsys):
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    argv = [*TINY, "--text", book, "--steps", 12]
    assert main(*argv, "--out", straight) == 0
    with stop_after(steps):
        assert main(*argv, "--out", stopped) == 130
    assert f"stopped and saved at step {steps}" in capsys.readouterr().err
    assert state(stopped)["step"] == steps
    mg.manual_seed(12345)  # whatever else drew from the default generator meanwhile
    assert main("--resume", "--out", stopped) == 0
    same_run(straight, stopped)


def test_rows_written_after_the_last_save_are_dropped(book, tmp_path):
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    argv = [*TINY, "--text", book, "--steps", 12]
    main(*argv, "--out", straight)
    with stop_after(8):
        main(*argv, "--out", killed)
    with open(killed / "losses.csv", "a") as file:
        file.write("9,2.5,,0.001,1.0\n1")  # what a kill leaves: rows too many, the last one cut
    assert main("--resume", "--out", killed) == 0
    same_run(straight, killed)


def test_a_finished_run_resumed_is_left_as_it_is_and_can_go_further(book, out):
    main(*TINY, "--text", book, "--out", out, "--steps", 6)
    before = (out / "last.safetensors").read_bytes(), (out / "losses.csv").read_bytes()
    assert main("--resume", "--out", out) == 0
    assert ((out / "last.safetensors").read_bytes(), (out / "losses.csv").read_bytes()) == before
    assert main("--resume", "--out", out, "--steps", 9, "--batch-size", 2, "--weight-decay", 0.5) == 0
    assert [int(row["step"]) for row in rows(out)] == list(range(1, 10))
    saved = state(out)
    assert saved["settings"]["batch_size"] == 2  # what is typed at a resume counts
    groups = [group["weight_decay"] for each in saved["optimizer"]["optimizers"] for group in each["param_groups"]]
    assert groups == [0.5, 0.5, 0.5, 0.5, 0.0]  # Muon's two groups, both ends, and norms


@pytest.mark.parametrize("steps", [3, 5])  # before the first validation, and after it
def test_a_run_with_nothing_left_to_train_has_its_best(book, out, steps):
    with stop_after(steps):
        main(*TINY, "--text", book, "--out", out)
    (out / "best.safetensors").unlink(missing_ok=True)
    assert main("--resume", "--out", out, "--steps", steps) == 0
    found = state(out), state(out, "best")
    assert [each["step"] for each in found] == [steps, steps]
    assert found[0]["best_loss"] == found[1]["best_loss"] < math.inf


def test_a_best_that_was_deleted_begins_anew(book, out):
    main(*TINY, "--text", book, "--out", out, "--steps", 4)
    (out / "best.safetensors").unlink()
    assert main("--resume", "--out", out, "--steps", 8, "--lr", 0) == 0  # no better than before, or hardly
    assert state(out, "best")["step"] == 8


def test_one_process_trains_in_a_folder(book, out, capsys):
    """While a process trains in a folder, another can neither resume the run nor begin one there."""
    first = start(*TINY, "--text", book, "--out", out, "--steps", 100_000)
    try:
        assert "characters" in first.stdout.readline() and "step" in first.stdout.readline()
        line = f"another process trains in {out} now: choose another folder"
        assert line in fails(capsys, "--resume", "--out", out)
        for name in "last.safetensors", "losses.csv":
            (out / name).unlink()
        assert line in fails(capsys, *TINY, "--text", book, "--out", out)
        assert [p.name for p in out.iterdir() if p.name != "best.safetensors"] == []
    finally:
        first.kill()
        first.communicate()
    for path in out.iterdir():
        path.unlink()
    assert main(*TINY, "--text", book, "--out", out, "--steps", 1) == 0


def test_resuming_what_does_not_fit(book, out, tmp_path, capsys):
    main(*TINY, "--text", book, "--out", out, "--steps", 2)
    before = {p.name: p.read_bytes() for p in out.iterdir()}

    def refused(*argv):
        line = fails(capsys, "--resume", "--out", out, "--steps", 3, *argv)
        assert {p.name: p.read_bytes() for p in out.iterdir()} == before
        return line

    assert "a run that is resumed keeps its n_layer, n_embd" in refused("--n-layer", 2, "--n-embd", 16)
    assert "keeps its muon" in refused("--muon", 0)
    assert "keeps its seed" in refused("--seed", 5)
    line = refused("--steps", 1)
    assert f"the run in {out} has done 2 steps: give a larger total, such as 3" in line
    (tmp_path / "more").write_text(WORDS * 20 + "é")
    assert "the text has other characters than the run: 'é'" in refused("--text", tmp_path / "more")
    book.unlink()
    assert "book.txt: No such file" in refused()
    (out / "last.safetensors").write_bytes(before["last.safetensors"][:-1])
    assert "damaged" in fails(capsys, "--resume", "--out", out)
    mg.save({"step": 3}, out / "last.safetensors")
    assert "holds no run that could continue" in fails(capsys, "--resume", "--out", out)


def test_another_text_of_the_same_characters_is_noted(book, out, tmp_path, capsys):
    main(*TINY, "--text", book, "--out", out, "--steps", 2)
    (tmp_path / "other").write_text(WORDS[::-1] * 20)
    assert main("--resume", "--out", out, "--text", tmp_path / "other", "--steps", 3) == 0
    assert "note: the text has changed since the run began" in capsys.readouterr().err


# ----------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "text is empty"),
        (b"ab\ncd\xff", "text is not UTF-8: byte 0xff, line 2"),
        (b"a", "the text only repeats 'a'"),
        (b"ab\0cd", "text is no UTF-8 text: it has a byte 0 at offset 2"),
        ("a long story".encode("utf-16"), "text is no UTF-8 text"),
        (b"abcd", "the training split has 3 characters, but a block of 8 needs at least 9: use a longer text or a"),
        (b"abcd" * 10, "the validation split has 4 characters, but a block of 8 needs at least 9"),
    ],
)
def test_bad_text(tmp_path, out, capsys, data, message):
    (tmp_path / "text").write_bytes(data)
    assert message in fails(capsys, *TINY, "--text", tmp_path / "text", "--out", out)
    assert not out.exists()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--n-embd", "many"], "--n-embd must be a whole number, not 'many'"),
        (["--n-embd", "9"], "n_embd"),
        (["--dropout", "1"], "--dropout must be at least 0 and below 1, not 1"),
        (["--lr", "nan"], "--lr must be at least 0, not nan"),
        (["--seed", "-1"], "--seed must be at least 0 and below 4294967296, not -1"),
        (["--text", "nowhere"], "nowhere: No such file or directory"),
        (["--preset", "gpt-4"], "invalid choice: 'gpt-4'"),
        (["--resume"], "there is no checkpoint"),
    ],
)
def test_bad_options(book, out, capsys, argv, message):
    assert message in fails(capsys, *TINY, "--text", book, "--out", out, *argv)
    assert not out.exists()


def test_an_out_that_cannot_be_written(book, capsys):
    assert "book.txt" in fails(capsys, *TINY, "--text", book, "--out", book)
    assert "/proc/run" in fails(capsys, *TINY, "--text", book, "--out", "/proc/run")
    assert book.read_text() == WORDS * 20


@pytest.mark.parametrize("name", ["last.safetensors", "best.safetensors", "losses.csv"])
def test_a_run_is_not_overwritten(book, out, capsys, name):
    out.mkdir()
    (out / name).write_bytes(b"precious")
    line = fails(capsys, *TINY, "--text", book, "--out", out)
    assert "already holds a run" in line and (out / name).read_bytes() == b"precious"


@pytest.mark.parametrize("lr", [1e30, 1e38])  # the loss of a step explodes, or that of a validation
def test_a_loss_that_explodes_stops_the_run_with_the_last_good_weights(book, out, capsys, lr):
    argv = [*TINY, "--text", book, "--out", out, "--warmup", 0, "--lr", lr, "--min-lr", lr, "--eval-every", 1]
    with np.errstate(all="ignore"):
        assert main(*argv, "--steps", 6) == 1
    assert re.search(r"try a lower lr; step \d is saved", capsys.readouterr().err)
    assert all(np.isfinite(x.numpy()).all() for x in state(out)["model"].values())
    assert main("--resume", "--out", out, "--lr", 1e-3, "--min-lr", 1e-4, "--steps", 7) == 0


def test_weights_that_are_not_finite_are_never_saved(book, out, capsys, monkeypatch):
    """This holds also if a signal stops the run in the step that made them infinite, whose loss was still finite."""
    update = runner.recipe.set_rates

    def explode(optimizer, shares, step, lr):
        update(optimizer, shares, step, math.inf if step == 5 else lr)

    monkeypatch.setattr(runner.recipe, "set_rates", explode)
    with stop_after(6), np.errstate(all="ignore"):
        assert main(*TINY, "--text", book, "--out", out) == 1
    assert "step 6: some weights are no longer finite: try a lower lr; step 4 is saved" in capsys.readouterr().err
    assert state(out)["step"] == 4 and all(np.isfinite(x.numpy()).all() for x in state(out)["model"].values())


def test_samples_show_control_characters_and_what_kept_them_from_being_drawn(tmp_path, out, capsys, monkeypatch):
    (tmp_path / "text").write_text("\x1b[2J a\n" * 40)
    assert main(*TINY, "--text", tmp_path / "text", "--out", out, "--steps", 4) == 0
    assert main("sample", out, "--prompt", "\x1b[2J\n", "--tokens", 60, "--temperature", 9) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed and printed.count(r"\x1b") > 3

    def overflow(*args, **options):
        raise FloatingPointError("the logits are not finite")

    monkeypatch.setattr(nn.GPT, "generate", overflow)
    assert main("--resume", "--out", out, "--steps", 8) == 0 and state(out)["step"] == 8
    assert "    (the logits are not finite)\n" in capsys.readouterr().out
    assert main("sample", out) == 2 and capsys.readouterr().err == "minigrad sample: the logits are not finite\n"


def kept(out):
    return {step: mg.load(path) for step, path in runs.kept_checkpoints(out).items()}


def test_models_are_kept_along_the_way(book, out, capsys):
    assert main(*TINY, "--text", book, "--out", out, "--steps", 12, "--keep", 4) == 0
    assert [*kept(out)] == [0, 4, 8, 12] == [saved["step"] for saved in kept(out).values()]
    last, models = state(out)["model"], [saved["model"] for saved in kept(out).values()]
    assert all(mg.equal(last[name], x) for name, x in models[-1].items())
    assert len({x["wte.weight"].sum().item() for x in models}) == 4 and "optimizer" not in kept(out)[4]
    model, vocab, _ = runs.load_char_model(runs.kept_checkpoints(out)[4])
    assert mg.equal(model.wte.weight, models[1]["wte.weight"]) and vocab.chars == state(out)["chars"]
    assert main("--resume", "--out", out, "--steps", 24) == 0  # the settings of the run stay
    assert [*kept(out)] == [0, 4, 8, 12, 16, 24]
    for name in "last.safetensors", "best.safetensors", "losses.csv":
        (out / name).unlink()
    assert "already holds a run" in fails(capsys, *TINY, "--text", book, "--out", out)


def test_a_resumed_run_keeps_the_same_models(book, out, tmp_path):
    typed = *TINY, "--text", book, "--steps", 12, "--keep", 4
    assert main(*typed, "--out", tmp_path / "whole") == 0
    with stop_after(6):
        assert main(*typed, "--out", out) == 130
    assert [*kept(out)] == [0, 4]
    assert main("--resume", "--out", out) == 0
    for path, other in zip(*(runs.kept_checkpoints(each).values() for each in (out, tmp_path / "whole")), strict=True):
        assert path.read_bytes() == other.read_bytes(), path


@pytest.mark.parametrize(
    "keep, doubling, steps, expected",
    [
        (0, 0, 10, []), (1, 0, 10, [10]), (2, 1, 10, [0, 10]), (5, 0, 10, [0, 2, 5, 8, 10]),
        (6, 1, 100, [0, 7, 13, 25, 50, 100]), (9, 1, 3, [0, 1, 2, 3]), (9, 0, 3, [0, 1, 2, 3]),
    ],
)  # fmt: skip
def test_which_steps_are_kept(keep, doubling, steps, expected):
    assert sorted(recipe.steps_to_keep(dict(keep=keep, keep_doubling=doubling, steps=steps))) == expected
