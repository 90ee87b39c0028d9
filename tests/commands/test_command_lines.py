"""Every command line, whatever is typed: one line says what is wrong, before any work; never a traceback."""

import dataclasses
import os
import random
import re
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import minigrad
from minigrad import nn
from minigrad.__main__ import MODEL, TOOLS, studies
from minigrad.__main__ import main as program
from minigrad.base import cli
from minigrad.training import checkpoint
from minigrad.training.text import CharVocab

from .. import ROOT
from ..char_lm.runs import quick_ending
from ..examples.scripts import EXAMPLES, load

WORDS = "The quick brown fox jumps over the lazy dog, and the dog does not mind.\n"
TINY = ["--n-layer=1", "--n-head=2", "--n-embd=8", "--block-size=8", "--batch-size=2", "--eval-every=2",
        "--eval-batches=1", "--steps=1"]  # fmt: skip
TEXT = ["--text", "book.txt"]
# What makes each command quick; a hostile argument is put after it, and so wins over it.
COMMANDS = {
    "minigrad train": [*TINY, *TEXT],
    "char_lm": [*TEXT, "--steps=1"],
    "minigrad sample": ["model.safetensors", "--tokens=2"],
    "minigrad report": ["model.safetensors", "--text", "The fox", "-o", "made/heads.html"],
    "minigrad ledger": ["model.safetensors", "--text", "The fox", "--scope", "blocks.0.attn"],
    "minigrad flow": ["model.safetensors", "--text", "The fox and the dog"],
    "minigrad importance": ["model.safetensors", "--text", "The fox", "--steps=1", "--right=e", "--wrong=o"],
    "minigrad scores": ["model.safetensors", "--periods=2", "--sequences=2"],
    "minigrad check": ["--op", "exp", "--order", "1"],
    "minigrad doctor": [],
    "minigrad learn": ["1", "."],
    "minigrad ops": [],
    "backprop_through_heads": [],
    "backprop_between_heads": [],
    "check_gradients": [],
    "head_count": [*TEXT, "--seeds=1", "--steps=0"],
    "head_report": ["--checkpoint", "model.safetensors", "--text", "The fox"],
    "induction_heads": ["--steps=1"],
    "microgpt": [*TEXT, "--steps=1"],
    "kv_cache": ["--prompt=2", "--tokens=1"],
    "prune_heads": [*TEXT, "--steps=0", "--batches=1", "--remove=1"],
    "reverse_sequence": ["--steps=0"],
    "saturation": ["--steps=1"],
    "scale": [],
    "which_gradient_teaches": ["--seeds=1", "--steps=1"],
    "why_topological_order": [],
    "worked_examples": [],
}
SMALL = {  # what makes examples quick that no option does
    "head_count": {"HEADS": (1, 2)},
    "induction_heads": {"accuracy": lambda *args: 0.0, "report": lambda *args: None},
    "kv_cache": {"KINDS": {"GQA": 2}},
    "prune_heads": {"SIZES": dict(block_size=8, n_layer=1, n_head=2, n_embd=8)},
    "reverse_sequence": {"exact": lambda model: 0.0},
    "saturation": {"FACTORS": (1, 2), "HALF": 1},
    "scale": {"SIZES": (4, 8)},
    "which_gradient_teaches": {"TRAININGS": {}},
}
OUTPUTS = "--out", "--json", "--html"
CORPORA = "minigrad train", "char_lm", "head_count", "microgpt", "prune_heads"  # whose --text is files
STRANGE = ["", "x", "-1", "0", "1.5", "1e999", "nan", "-inf", "9" * 400, "9" * 5000, "²", "\udcff", "a\nb", "%(x)s"]
NO_OUTPUT = ["", ".", "fifo", "book.txt/x", "book.txt/x/y.svg", "broken/y.svg", "/proc/x/y.svg", f"{'n' * 300}/y.svg"]
NO_TEXT = ["", ".", "none", "fifo", "/dev/zero", "empty", "binary", "sparse", "loop", "one", "short", "book.txt/x",
           "/proc/self/mem", "n" * 300, "\udcff"]  # fmt: skip
NO_CHECKPOINT = [
    "",
    ".",
    "none",
    "fifo",
    "/dev/zero",
    "sparse",
    "empty",
    "binary",
    "book.txt",
    "loop",
    "book.txt/x",
    "other.safetensors",
]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working directory with a text, a model, and things that are neither."""
    monkeypatch.chdir(tmp_path)
    Path("book.txt").write_text(WORDS * 200)
    Path("empty").touch()
    Path("binary").write_bytes(bytes(range(256)))
    Path("one").write_text("a" * 2000)
    Path("short").write_text("ab")
    Path("loop").symlink_to("loop")
    Path("broken").symlink_to("nothing")
    os.mkfifo("fifo")
    with open("sparse", "wb") as file:
        file.truncate(4 << 30)
    vocab = CharVocab(WORDS)
    model = nn.GPT(nn.GPTConfig(len(vocab), 8, n_layer=1, n_head=2, n_embd=8))
    meta = {"chars": vocab.chars, "config": dataclasses.asdict(model.config)}
    checkpoint.save("model.safetensors", *checkpoint.pack(model, **meta))
    checkpoint.save("other.safetensors", {}, {"step": 3})
    return tmp_path


@pytest.fixture(autouse=True)
def short(monkeypatch):
    quick_ending(monkeypatch)


def main_of(command):
    name, *sub = command.split()
    if name == "minigrad":
        return lambda argv: program([*sub, *argv])
    module = load(name)
    for what, small in SMALL.get(name, {}).items():
        setattr(module, what, small)
    return module.main


def options(command, capsys):
    """The options that take a value, as --help tells."""
    status, printed, _ = outcome(main_of(command), ["--help"], capsys)
    assert status == 0 and "usage:" in printed
    return [option for option, value in re.findall(r"^  (?:-\w \S+, )?(--[\w-]+)(?: (\S))?", printed, re.M) if value]


def outcome(main, argv, capsys):
    """(exit status, stdout, stderr). Any exception but SystemExit goes through, and so does a status that is none."""
    try:
        status = main(argv)
    except SystemExit as stop:
        status = stop.code
    assert status in (0, 1, 2), (argv, status)
    return status, *capsys.readouterr()


def is_told(command, argv, capsys, main):
    """The command refuses, in one line, before it has printed anything of its work."""
    status, out, err = outcome(main, argv, capsys)
    assert status == 2 and out == "", (argv, status, out)
    *notes, line = err.splitlines()
    assert line.startswith(f"{command}: ") and len(line) > 20 and len(line) < 1000, (argv, err)
    assert all("note: " in note for note in notes), (argv, err)
    return line


def test_every_command_is_here():
    ours = {f"minigrad {name}" for name in (*MODEL, *TOOLS, *studies())}
    assert COMMANDS.keys() == {path.stem for path in EXAMPLES.glob("*.py")} | ours


@pytest.mark.parametrize("command", COMMANDS)
def test_what_nobody_knows(command, capsys):
    main = main_of(command)
    assert "--nonsense" in is_told(command, [*COMMANDS[command], "--nonsense"], capsys, main)
    is_told(command, [*COMMANDS[command], "--nonsense=1\n2"], capsys, main)
    if command not in ("minigrad check", "minigrad sample"):  # where it is a file
        assert "surplus" in is_told(command, [*COMMANDS[command], "surplus"], capsys, main)
    for option in options(command, capsys):
        assert "expected" in is_told(command, [*COMMANDS[command], option], capsys, main)


@pytest.mark.parametrize("command", COMMANDS)
def test_outputs_are_tried_before_the_work(command, capsys):
    main, before = main_of(command), set(os.listdir())
    for option in options(command, capsys):
        for path in NO_OUTPUT if option in OUTPUTS else ():
            if path == "." and command in ("minigrad train", "head_report", "induction_heads", "prune_heads",
                                           "saturation", "why_topological_order"):  # fmt: skip
                continue  # theirs is a folder
            line = is_told(command, [*COMMANDS[command], option, path], capsys, main)
            assert option in line or "too long" in line
            assert set(os.listdir()) == before and not os.path.exists("nothing")


@pytest.mark.parametrize("command", CORPORA)
@pytest.mark.parametrize("path", NO_TEXT)
def test_texts_that_are_none(command, path, capsys):
    for texts in [path], ["book.txt", path]:
        if len(texts) == 1 or path not in ("one", "short"):  # together they are a text
            is_told(command, [*COMMANDS[command], "--out", "made", "--text", *texts], capsys, main_of(command))
            assert not os.path.exists("made")


@pytest.mark.parametrize(
    "command", [c for c in COMMANDS if COMMANDS[c][:1] == ["model.safetensors"]] + ["head_report", "prune_heads"]
)
def test_checkpoints_that_are_none(command, capsys):
    main = main_of(command)
    for path in NO_CHECKPOINT:
        argv = [path, *COMMANDS[command][1:]] if "minigrad" in command else [*COMMANDS[command], "--checkpoint", path]
        is_told(command, argv, capsys, main)


@pytest.mark.filterwarnings("ignore:wrote .* but not .*dot.* is not installed")
@pytest.mark.parametrize("command", COMMANDS)
def test_strange_values(command, capsys, thorough):
    """Alone, and several at once: they are refused, or what they mean is done."""
    main, refused = main_of(command), 0
    named = [o for o in options(command, capsys) if o not in OUTPUTS and not (o == "--text" and command in CORPORA)]
    if command == "minigrad train":
        named = [option for option in named if option != "--out"]
    rng = random.Random(command)
    trials = [[(option, value)] for option in named for value in (STRANGE if thorough else rng.sample(STRANGE, 3))]
    several = 20 if thorough else 3
    trials += [[(rng.choice(named), rng.choice(STRANGE)) for _ in range(3)] for _ in range(several)] if named else []
    for i, trial in enumerate(trials):
        out = ["--out", f"made/{i}"] if command in ("minigrad train", "head_report", "prune_heads") else []
        argv = [*COMMANDS[command], *out, *(f"{option}={value}" for option, value in trial)]
        status, _, err = outcome(main, argv, capsys)
        last = (err.splitlines() or [""])[-1]
        assert status != 2 or (last.startswith(f"{command}: ") and len(last) < 1000), (argv, err)
        refused += status == 2
    assert refused >= len(trials) // 3


@pytest.mark.parametrize("command", COMMANDS)
def test_ctrl_c_a_missing_device_and_no_memory(command, capsys, monkeypatch):
    main = main_of(command)
    for error, status, line in (
        (KeyboardInterrupt(), 130, "stopped"),
        (BrokenPipeError(32, "Broken pipe"), 141, ""),
        (MemoryError(), 2, "not enough memory"),
        (OSError(28, "No space left on device", "x"), 2, "x: No space left on device"),
        (OSError(28, "No space left on device"), 2, "cannot write: No space left on device"),
        (minigrad.DeviceError("no such device"), 2, "no such device"),
    ):

        def parse(*args, error=error):
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(cli.Parser, "parse_args", parse)
            with pytest.raises(SystemExit) as stopped:
                main(COMMANDS[command])
        assert stopped.value.code == status
        assert capsys.readouterr().err == (f"{command}: {line}\n" if line else "")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_has_gone(command, capsys, monkeypatch):
    class Gone:
        def write(self, text):
            raise BrokenPipeError(32, "Broken pipe")

        def flush(self):
            pass

    main = main_of(command)
    monkeypatch.setattr(sys, "stdout", Gone())
    with pytest.raises(SystemExit, match="141"):
        main(COMMANDS[command])
    assert capsys.readouterr().err == ""


def test_a_mistake_of_ours_keeps_its_traceback(monkeypatch):
    def parse(*args):
        return [][1]

    monkeypatch.setattr(cli.Parser, "parse_args", parse)
    with pytest.raises(IndexError):
        program(["doctor"])


@pytest.mark.parametrize("package", ["matplotlib", "graphviz"])
def test_optional_packages_are_asked_for_before_the_work(package, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, package, None)
    needed = {
        "matplotlib": {"head_count": "a.png", "scale": "a.png", "induction_heads": "a", "prune_heads": "a",
                       "saturation": "a", "head_report": "a", "which_gradient_teaches": "a.png"},
        "graphviz": {"backprop_through_heads": "a.svg", "why_topological_order": "a", "head_report": "a"},
    }  # fmt: skip
    for command, path in needed[package].items():
        line = is_told(command, [*COMMANDS[command], "--out", path], capsys, main_of(command))
        assert f"needs the package {package}: pip install {package}" in line


# --------------------------------------------------------------------------------------------------- as real processes


def environment():
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
        "OPENBLAS_NUM_THREADS": "1",
    }


def process(*words, **options):
    command = [sys.executable, "-X", "dev", *map(str, words)]
    piped = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return subprocess.Popen(command, env=environment(), **piped | options)


def finished(*words, **options):
    """(exit status, stdout, stderr)"""
    running = process(*words, **options)
    out, err = running.communicate(timeout=120)
    return running.returncode, out, err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([EXAMPLES / "char_lm.py", "--text", "none"], "char_lm: none: No such file or directory\n"),
        (["-m", "minigrad", "report", "none", "--text", "ab"], "minigrad report: there is no checkpoint none\n"),
        (["-m", "minigrad", "check", "--json", "/"], "minigrad check: --json / is a folder: give a file, such as"),
        (["-m", "minigrad", "doctor", "x"], "minigrad doctor: unrecognized arguments: x\n"),
        ([EXAMPLES / "scale.py", "--out", "book.txt/x"], "scale: --out book.txt: book.txt is not a folder\n"),
    ],
)
def test_a_process_says_one_line_and_ends_with_2(words, message):
    status, out, err = finished(*words)
    assert (status, out, err.count("\n")) == (2, "", 1) and message in err


@pytest.mark.slow
def test_a_run_says_nothing_on_stderr_in_development_mode():
    status, out, err = finished("-m", "minigrad", "train", *TINY, *TEXT, "--out", "run")
    assert (status, err) == (0, "") and "wrote run/last.safetensors" in out


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_and_a_closed_stdout():
    with open("/dev/full", "w") as full:
        status, _, err = finished("-m", "minigrad", "ops", stdout=full)
        assert (status, err) == (2, "minigrad ops: cannot write: No space left on device\n")
        status, _, err = finished("-m", "minigrad", "-h", stdout=full)
        assert (status, err) == (2, "minigrad: cannot write: No space left on device\n")
    status, _, err = finished("-m", "minigrad", "ops", preexec_fn=lambda: os.close(1))
    assert (status, err) == (0, "")


def test_a_terminal_that_cannot_show_everything():
    running = subprocess.run(
        [sys.executable, EXAMPLES / "worked_examples.py"],
        capture_output=True,
        text=True,
        env=environment() | {"PYTHONIOENCODING": "ascii"},
    )
    assert running.returncode == 0 and running.stderr == "" and "\\u1d40" in running.stdout


@pytest.mark.slow
def test_ctrl_c_in_the_middle_of_an_example():
    running = process(EXAMPLES / "prune_heads.py", *TEXT, "--steps", 10**6, "--out", "made")
    try:
        assert "step" in running.stdout.readline()
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
    finally:
        running.kill()
        running.wait()
    assert (running.returncode, err) == (-signal.SIGINT, "prune_heads: stopped\n")


def test_run_as_a_script_ends_with_the_status(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["worked_examples.py"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(str(EXAMPLES / "worked_examples.py"), run_name="__main__")
    assert "Cat sleeps" in capsys.readouterr().out
