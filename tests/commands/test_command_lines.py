"""`minigrad COMMAND`: a user's error is one line, before any work, and never a traceback."""

import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import minigrad as mg
from minigrad import nn
from minigrad.__main__ import MODEL, TOOLS, main, studies
from minigrad.base import cli
from minigrad.training.text import CharVocab

from ..char_lm.runs import TINY, WORDS

ALL = [*MODEL, *studies(), *TOOLS]
COMMANDS = {  # what makes each quick; a hostile argument is put after it, and so wins over it
    "train": [*TINY, "--text", "book.txt", "--steps=1"],
    "sample": ["model.safetensors", "--tokens=2"],
    "report": ["model.safetensors", "--text", "The fox", "-o", "made/heads.html"],
    "flow": ["model.safetensors", "--text", "The fox and the dog"],
    "importance": ["model.safetensors", "--text", "The fox", "--steps=1", "--right=e", "--wrong=o"],
    "scores": ["model.safetensors", "--periods=2", "--sequences=2"],
    "check": ["--op", "exp", "--order", "1"],
    "doctor": [],
    "learn": ["1", "."],
}
OUTPUTS = "--out", "--gpu"
STRANGE = ["", "x", "-1", "0", "1.5", "nan", "-inf", "²", "\udcff", "a\nb", "%(x)s"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working directory with a text, a model, and a file that is neither."""
    monkeypatch.chdir(tmp_path)
    Path("book.txt").write_text(WORDS * 20)
    vocab = CharVocab(WORDS)
    model = nn.GPT(nn.GPTConfig(len(vocab), 8, n_layer=1, n_head=2, n_embd=8))
    mg.save({"model": model, "chars": vocab.chars, "config": dataclasses.asdict(model.config)}, "model.safetensors")
    mg.save({"step": 3}, "other.safetensors")
    return tmp_path


def outcome(capsys, *argv):
    """(exit status, stdout, stderr). Any exception but SystemExit goes through."""
    try:
        status = main([str(a) for a in argv])
    except SystemExit as stop:
        status = stop.code
    return status, *capsys.readouterr()


def told(capsys, *argv):
    """The line with which a command refuses, before it prints any result."""
    status, out, err = outcome(capsys, *argv)
    *notes, line = err.splitlines()
    assert (status, out, [note for note in notes if not note.startswith("note: ")]) == (2, "", []), (argv, err)
    return line


def options(command, capsys):
    """The options that take a value, as --help tells."""
    status, printed, _ = outcome(capsys, command, "--help")
    assert status == 0 and printed.startswith(f"usage: minigrad {command} ")
    return [option for option, value in re.findall(r"^  (?:-\w \S+, )?(--[\w-]+)(?: (\S))?", printed, re.M) if value]


def test_help_lists_every_command_with_what_it_does(capsys):
    status, listed, _ = outcome(capsys, "-h")
    assert (status, outcome(capsys)[1], outcome(capsys, "--help")[1]) == (0, listed, listed)
    rows = re.findall(r"^  ([\w-]+)  +(\w.{9,})$", listed, re.M)
    assert [name for name, _ in rows] == ALL == [*COMMANDS] or {name for name, _ in rows} == COMMANDS.keys()
    assert outcome(capsys, "--version") == (0, f"minigrad {mg.__version__}\n", "")


@pytest.mark.parametrize("word", ALL)
def test_the_help_of_a_command_has_an_example(word, capsys):
    assert re.search(rf"\n\n    minigrad {word}", outcome(capsys, word, "-h")[1])


@pytest.mark.parametrize(
    "argv, line",
    [
        (["trian"], "minigrad: there is no command 'trian'; did you mean train?"),
        (["xyz"], f"minigrad: there is no command 'xyz'; there are {', '.join(ALL)}"),
        (["train", "--stpes", "3"], "minigrad train: unrecognized arguments: --stpes 3"),
        (["train", "--steps", "0"], "minigrad train: --steps must be at least 1, not 0"),
        (["scores", "--periods", "1"], "minigrad scores: --periods must be at least 2, not 1"),
        (["scores", "--periods", "9,"], "minigrad scores: --periods must be a whole number, not ''"),
        (["sample", "none"], "minigrad sample: there is no checkpoint none"),
    ],
)  # fmt: skip
def test_errors_are_one_line_that_begins_with_the_command(argv, line, capsys):
    assert outcome(capsys, *argv) == (2, "", f"{line}\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_hostile_arguments(command, capsys):
    """Unknown options, outputs that cannot be written and strange values: refused in one line, or what they mean."""
    argv = [command, *COMMANDS[command]]
    assert "--nonsense" in told(capsys, *argv, "--nonsense")
    for option in options(command, capsys):
        assert "expected" in told(capsys, *argv, option)
        if option in OUTPUTS:
            for path in "book.txt/x", "/proc/x/y.svg", f"{'n' * 300}/y.svg":
                told(capsys, *argv, option, path)
            continue
        for value in STRANGE[::3] if option != "--text" else STRANGE[:1]:
            status, _, err = outcome(
                capsys, *argv, f"{option}={value}", *["--out", f"made{value!r}"] * (command == "train")
            )
            assert status in (0, 1, 2) and (status != 2 or err.startswith(("minigrad ", "note: "))), (
                option,
                value,
                err,
            )


@pytest.mark.parametrize("command", [c for c in COMMANDS if COMMANDS[c][:1] == ["model.safetensors"]])
def test_checkpoints_that_are_none(command, capsys):
    for path in "none", ".", "book.txt", "/dev/zero", "other.safetensors":
        assert path in told(capsys, command, path, *COMMANDS[command][1:])


@pytest.mark.parametrize("error, status, line", [
    (KeyboardInterrupt(), 130, "stopped"), (MemoryError(), 2, "not enough memory"),
    (OSError(28, "No space left on device", "x"), 2, "x: No space left on device"),
    (OSError(28, "No space left on device"), 2, "No space left on device"),
    (mg.DeviceError("no such device"), 2, "no such device"), (cli.CommandError("two\nlines", 7), 7, "two lines"),
], ids=str)  # fmt: skip
def test_errors_that_a_user_can_put_right_are_one_line(error, status, line, capsys, monkeypatch):
    def parse(*args):
        raise error

    monkeypatch.setattr(cli.Parser, "parse_args", parse)
    assert outcome(capsys, "doctor") == (status, "", f"minigrad doctor: {line}\n")


def test_a_mistake_of_ours_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr(cli.Parser, "parse_args", lambda *args: [][1])
    with pytest.raises(IndexError):
        main(["doctor"])


# ------------------------------------------------------------------------------------------------- the whole way, small


def trained(capsys):
    """The last two lines of `minigrad train`, as words, after the name of the program."""
    status, printed, err = outcome(capsys, "train", *TINY, "--text", "book.txt", "--steps", 2)
    assert (status, err) == (0, "")
    return [shlex.split(line.partition(": ")[2])[3:] for line in printed.splitlines()[-2:]]


def test_a_model_is_named_by_its_file_by_the_folder_of_its_run_or_not_at_all(capsys):
    assert "no checkpoint in runs/char_lm: train a model first" in told(capsys, "scores")
    trained(capsys)
    for command in ["sample", "--tokens=9"], ["flow", "--text", "The dog"], ["scores", "--periods=2", "--sequences=2"]:
        status, printed, err = outcome(capsys, *command)
        assert (status, err) == (0, "")
        for named in ("runs/char_lm", "runs/char_lm/best.safetensors"):
            assert outcome(capsys, command[0], named, *command[1:])[:2] == (0, printed)
    os.remove("runs/char_lm/best.safetensors")
    os.remove("runs/char_lm/last.safetensors")
    assert "there is no checkpoint in runs/char_lm" in told(capsys, "report", "--text", "The dog")


def test_characters_are_shown_when_they_are_drawn(capsys, monkeypatch):
    trained(capsys)
    whole, shown = outcome(capsys, "sample", "--tokens=30", "--prompt=The ")[1], []

    class Seen:
        text = ""

        def write(self, text):
            self.text += text

        def flush(self):
            shown.append(self.text)

    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", Seen())
        main(["sample", "--tokens=30", "--prompt=The "])
    assert shown[:31] == [whole[: n + 4] for n in range(31)] and shown[-1] == whole


def test_the_lines_to_type_name_the_program_that_was_started(monkeypatch, tmp_path):
    program = tmp_path / "bin" / "minigrad"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(program), "train"])
    assert cli.command_line("sample", "--prompt=a b") == f"{program} sample '--prompt=a b'"
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    assert cli.command_line("train") == "minigrad train"


# --------------------------------------------------------------------------------------------------- as real processes


def process(*argv, python=(), **options):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OPENBLAS_NUM_THREADS": "1"}
    piped = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    done = subprocess.run([sys.executable, *python, "-m", "minigrad", *argv], env=env, **piped | options)
    return done.returncode, done.stderr


def test_output_in_ascii(monkeypatch):
    """Characters that the output's encoding lacks are escaped."""
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    Path("book.txt").write_text("abcé𝔘 \n" * 400, encoding="utf-8")
    with open("said.txt", "wb") as said:
        assert process("train", *COMMANDS["train"], "--eval-every=1", "--out=run", stdout=said) == (0, "")
        assert process("sample", "run", "--tokens=60", "--temperature=3", stdout=said) == (0, "")
    assert b"\\xe9" in Path("said.txt").read_bytes()


def test_without_an_output():
    """As after `minigrad train >&-`."""
    closed = dict(stdout=None, preexec_fn=lambda: os.close(1))
    assert process("train", *COMMANDS["train"], "--out=run", **closed) == (0, "")
    assert process("sample", "run", "--tokens=2", **closed) == (0, "")


def test_control_characters_of_a_file_are_escaped(capsys):
    header = {"\x1b]0;title\x07": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}}
    text = json.dumps(header).encode()
    Path("model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(16))
    assert "\x1b" not in told(capsys, "sample", "model.safetensors")


def test_a_reader_that_has_read_enough():
    read, write = os.pipe()
    os.close(read)
    assert process("doctor", stdout=write) == (141, "")
    os.close(write)


@pytest.mark.slow
def test_a_process_says_one_line_and_ends_with_2():
    assert process("doctor", "x") == (2, "minigrad doctor: unrecognized arguments: x\n")
    with open("/dev/full", "w") as full:
        assert process("doctor", stdout=full) == (2, "minigrad doctor: No space left on device\n")
    assert process("train", *COMMANDS["train"], python=["-X", "dev"]) == (0, "")
