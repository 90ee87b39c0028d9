"""`minigrad COMMAND`: one name for every command line of the package. Each is also a module of its own or a script,
whose lines begin with another name; test_command_lines.py tries those with whatever may be typed."""

import os
import re
import shlex
import signal
import subprocess
import sys

import pytest

import minigrad
import minigrad.commands.study
from minigrad import nn
from minigrad.__main__ import MODEL, TOOLS, main
from minigrad.base import cli
from minigrad.commands import sample
from minigrad.training.text import CharVocab

from ..char_lm.runs import TINY, WORDS

ALL = [*MODEL, *minigrad.commands.study.COMMANDS, *TOOLS]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").write_text(WORDS * 20)


def outcome(capsys, *argv):
    """(exit status, stdout, stderr)"""
    try:
        status = main([str(a) for a in argv])
    except SystemExit as stop:
        status = stop.code
    return status, *capsys.readouterr()


def test_help_lists_every_command_with_what_it_does(capsys):
    status, listed, _ = outcome(capsys, "-h")
    assert (status, outcome(capsys)[1], outcome(capsys, "--help")[1]) == (0, listed, listed)
    rows = re.findall(r"^  ([\w-]+)  +(\w.{9,})$", listed, re.M)
    assert [name for name, _ in rows] == ALL
    assert max(map(len, listed.splitlines())) <= 120
    assert outcome(capsys, "help")[1] == listed
    assert outcome(capsys, "help", "flow") == outcome(capsys, "flow", "-h")
    assert outcome(capsys, "help", "flwo")[2] == "minigrad: there is no command 'flwo'; did you mean flow?\n"
    assert outcome(capsys, "--version") == (0, f"minigrad {minigrad.__version__}\n", "")


@pytest.mark.parametrize("word", ALL)
def test_the_help_of_a_command_is_called_like_it(word, capsys):
    status, printed, _ = outcome(capsys, word, "-h")
    usage, says = printed.split("\n\n")[:2]
    assert status == 0 and usage.startswith(f"usage: minigrad {word} ") and len(says) > 15
    assert re.search(rf"\n\n    minigrad {word}", printed)  # an example
    options = printed.partition("\noptions:\n")[2].partition("\n\n")[0]
    assert all(len(says.split()) > 1 for says in re.split(r"^  -\S.*?(?:  |\n)", options, flags=re.M)[1:]), options


@pytest.mark.parametrize(
    "argv, line",
    [
        (["trian"], "minigrad: there is no command 'trian'; did you mean train?"),
        (["reprot", "--text", "x"], "minigrad: there is no command 'reprot'; did you mean report?"),
        (["xyz"], f"minigrad: there is no command 'xyz'; there are {', '.join(ALL)}"),
        ([""], f"minigrad: there is no command ''; there are {', '.join(ALL)}"),
        (["--steps", "3"], "minigrad: a command goes first, then its options, not --steps: minigrad -h lists them"),
        (["train", "--stpes", "3"], "minigrad train: unrecognized arguments: --stpes 3"),
        (["train", "--steps", "0"], "minigrad train: --steps must be at least 1, not 0"),
        (["train", "book.txt"], "minigrad train: unrecognized arguments: book.txt"),
        (["scores", "--periods", "1"], "minigrad scores: --periods must be at least 2, not 1"),
        (["scores", "--periods", "9,"], "minigrad scores: --periods must be whole numbers, such as 2,3, not '9,'"),
        (["sample", "none"], "minigrad sample: there is no checkpoint none"),
        (["report", "none", "--text", "x"], "minigrad report: there is no checkpoint none"),
        (["ops", "--all"], "minigrad ops: unrecognized arguments: --all"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line_that_begins_with_what_was_typed(argv, line, capsys):
    assert outcome(capsys, *argv) == (2, "", f"{line}\n")


@pytest.mark.parametrize("word", ["\udcff", "a\nb", "%(x)s", "9" * 5000, "²", "."])
def test_a_strange_word_is_one_line(word, capsys):
    for argv in ([word], ["train", word], ["ops", f"--{word}"], ["flow", "--text", word, f"-{word}"]):
        status, out, err = outcome(capsys, *argv)
        assert (status, out, err.count("\n")) == (2, "", 1) and err.startswith("minigrad") and len(err) < 1000


# ------------------------------------------------------------------------------------------------- the whole way, small


def trained(capsys):
    """The lines that `minigrad train` ends with, as words, after the name of the program."""
    status, printed, err = outcome(capsys, "train", *TINY, "--text", "book.txt", "--steps", 2)
    assert (status, err) == (0, "")
    lines = [shlex.split(line.partition(": ")[2]) for line in printed.splitlines()[-2:]]
    start = [os.path.basename(sys.executable), "-m", "minigrad"]
    assert all([os.path.basename(line[0]), *line[1:3]] == start for line in lines)
    return [line[3:] for line in lines]


def test_its_last_lines_can_be_typed(capsys):
    write, further = trained(capsys)
    status, text, err = outcome(capsys, *write, "--tokens", 5)
    assert (status, len(text), err) == (0, 5 + 2, "")
    assert outcome(capsys, *further, "--steps", 3)[0] == 0


def test_a_model_is_named_by_its_file_by_the_folder_of_its_run_or_not_at_all(capsys, monkeypatch):
    status, _, err = outcome(capsys, "scores", "--periods=2", "--sequences=2")
    assert status == 2 and "there is no checkpoint in runs/char_lm: train a model first, with: " in err
    assert err.endswith("-m minigrad train\n")
    trained(capsys)
    for command in (
        ["sample", "--tokens=9"],
        ["flow", "--text", "The dog"],
        ["scores", "--periods=2", "--sequences=2"],
    ):
        status, printed, err = outcome(capsys, *command)
        assert (status, err) == (0, "")
        for named in ("runs/char_lm", "runs/char_lm/best.safetensors"):
            assert outcome(capsys, *command, named)[:2] == (0, printed)
            assert outcome(capsys, command[0], named, *command[1:])[:2] == (0, printed)
    os.remove("runs/char_lm/best.safetensors")
    status, _, err = outcome(capsys, "sample", "--tokens=9")
    assert status == 0 and err.startswith("minigrad sample: note: runs/char_lm/last.safetensors writes, as there is no")
    os.remove("runs/char_lm/last.safetensors")
    assert "there is no checkpoint in runs/char_lm" in outcome(capsys, "report", "--text", "The dog")[2]


def test_what_is_asked_of_a_model_is_answered_in_the_words_of_the_command(capsys):
    trained(capsys)
    for argv, said in {
        "report -o a.txt": "--out a.txt: the file's name must end with .html or .htm, such as heads.html",
        "report --limit 0.001": "shorter text, or a larger limit (--layers, --heads, --limit)",
        "flow -o f.html": "--out f.html: the file's name must end with .svg or .png or .dot, such as flow.svg",
        "flow --of 0:9": "--of: there is no node 'blocks.0.attn:9'; did you mean blocks.0.attn:1 or blocks.0.attn:0?",
        "ledger --scope blocks.0.attn --head 9": "there is no head 9: this layer has 2, from 0 on",
    }.items():
        command, *words = argv.split()
        status, out, err = outcome(capsys, command, *words, "--text", "The dog")
        assert (status, out, err.count("\n")) == (2, "", 1) and err.endswith(f"{said}\n"), err
    assert "made at" not in outcome(capsys, "ledger", "--text", "The dog")[1]


def test_a_file_in_place_of_a_text_is_noted(capsys):
    """train takes the names of files after --text; all others take the text itself."""
    said = "minigrad flow: note: 'book.txt' is read as a text: for what is in that file, give \"$(cat book.txt)\"\n"
    assert outcome(capsys, "flow", "--text", "book.txt", "none")[2].startswith(said)


def test_a_terminal_is_told_what_report_is_busy_with(capsys, monkeypatch):
    trained(capsys)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    status, _, err = outcome(capsys, "report", "--text", "The quick brown fox")
    shown = err.split("\r")
    assert status == 0 and shown[1].startswith("tracing ") and shown[-3].startswith("writing heads.html")
    assert {len(line) for line in shown} == {0, 39} and not shown[-2].strip()


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
    assert shown[:29] == [whole[: n + 6] for n in range(29)] and shown[-1] == whole  # two at first
    assert outcome(capsys, "sample", "--tokens=1", "--prompt=The ") == (0, f"{whole[:5]}\n", "")


def test_what_a_text_would_have_a_terminal_do_is_shown(capsys):
    """Its characters come from a corpus that nobody has looked at."""
    vocab = CharVocab("\x1b\r\n\t[2J")
    model = nn.GPT(nn.GPTConfig(len(vocab), 8, n_layer=1, n_head=1, n_embd=8))
    sample.write(model, vocab, "\x1b[2J\n", 200, "cpu", 1)
    said = capsys.readouterr().out
    assert said.startswith("\\x1b[2J\n") and "\t" in said and not {"\x1b", "\r"} & {*said} and "\\r" in said


def test_ctrl_c_ends_the_line_that_is_being_written(capsys, monkeypatch):
    trained(capsys)
    choose = minigrad.nn.gpt.generate._check_finite
    calls = []

    def stop(largest):
        calls.append(largest)
        if len(calls) == 4:
            raise KeyboardInterrupt
        choose(largest)

    monkeypatch.setattr(minigrad.nn.gpt.generate, "_check_finite", stop)
    status, text, err = outcome(capsys, "sample", "--prompt=The ", "--temperature=0")
    assert (status, len(text), text[-1], err) == (130, 4 + 3 + 1, "\n", "minigrad sample: stopped\n")


# --------------------------------------------------------------------------------------------------- as real processes


def process(*argv, **options):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OPENBLAS_NUM_THREADS": "1"}
    piped = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return subprocess.run([sys.executable, "-m", "minigrad", *argv], env=env, **piped | options)


def test_a_reader_that_has_read_enough():
    read, write = os.pipe()
    os.close(read)
    done = process("ops", stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, "")


@pytest.mark.slow
def test_python_without_docstrings():
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    calls = "from contextlib import suppress; from minigrad.__main__ import main\n"
    for argv in (["-h"], *([word, "-h"] for word in ALL), ["ops"]):
        calls += f"with suppress(SystemExit): main({argv})\n"
    done = subprocess.run([sys.executable, "-OO", "-c", calls], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout.count("usage: minigrad ")) == (0, len(ALL) + 1)
    assert done.stderr.startswith("minigrad ops: the formulas are docstrings, which python -OO leaves out")
    assert done.stderr.count("\n") == 1


def test_the_lines_to_type_name_the_program_that_was_started(monkeypatch, tmp_path):
    program = tmp_path / "bin" / "minigrad"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(program), "train"])
    assert cli.typed("sample", "--prompt=The") == "bin/minigrad sample --prompt=The"
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    assert cli.typed("train") == "minigrad train"
