"""`minigrad train` on several processes: the files of one process, byte for byte."""

import pytest

from ..char_lm.runs import SIZES, TRAIN, WORDS, options
from .ranks import run

pytestmark = pytest.mark.needs("mpiexec")

SETTINGS = SIZES | dict(batch_size=16, dropout=0.2, clip=0.5, weight_decay=0.1, warmup=2, eval_every=5, lr=0.02)
FILES = "last.safetensors", "best.safetensors", "losses.csv"


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "book.txt"
    path.write_text(WORDS * 50)
    return path


def trained(n, out, *argv):
    """The bytes of a run's files."""
    status, _, err, _ = run(n, *TRAIN, *argv, "--out", out)
    assert (status, err) == (0, "")
    return [(out / name).read_bytes() for name in FILES]


def new(n, out, book, steps, shards=8):
    return trained(n, out, "--text", book, *options(SETTINGS | dict(steps=steps, shards=shards)))


@pytest.fixture(scope="module")
def alone(book, tmp_path_factory):
    """A run of one process with 8 shards."""
    return new(1, tmp_path_factory.mktemp("alone") / "run", book, 12)


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 4, 8])
def test_any_number_of_processes_writes_the_same_files(n, alone, book, tmp_path):
    assert new(n, tmp_path / "run", book, 12) == alone


@pytest.mark.slow
def test_another_number_goes_on(alone, book, tmp_path):
    """4 processes, then 2: as one process that never stopped. (The rate is constant, as it depends on --steps.)"""
    fixed = options(SETTINGS | dict(shards=8, min_lr=0.02, warmup=0))
    straight = trained(1, tmp_path / "straight", "--text", book, *fixed, "--steps", 10)
    trained(4, tmp_path / "run", "--text", book, *fixed, "--steps", 5)
    assert trained(2, tmp_path / "run", "--resume", "--steps", 10) == straight


@pytest.mark.slow
def test_the_number_of_shards_does_matter(alone, book, tmp_path):
    """Or else the tests above would say little."""
    assert new(1, tmp_path / "run", book, 12, shards=4)[0] != alone[0]


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_fifty_steps(n, book, tmp_path):
    """Of two layers, with dropout, clipping and AdamW."""
    sizes = dict(n_layer=2, n_head=2, n_embd=32, block_size=16, steps=50, eval_every=20)
    argv = "--text", book, *options(SETTINGS | sizes | dict(shards=8))
    assert trained(n, tmp_path / "run", *argv) == trained(1, tmp_path / "alone", *argv)


@pytest.mark.gpu
def test_training_on_gpus_writes_the_files_of_one(book, tmp_path):
    argv = "--text", book, *options(SETTINGS | dict(steps=3, shards=2)), "--device", "cuda"
    for n in (1, 2):  # the first to run on the rig compiles the kernels
        status, _, err, _ = run(n, *TRAIN, *argv, "--out", tmp_path / str(n), seconds=500)
        assert (status, err) == (0, "")
    one, two = ([(tmp_path / n / name).read_bytes() for name in FILES] for n in "12")
    assert one == two
