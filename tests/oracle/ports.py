"""Well-known programs for PyTorch, from your own checkouts of them, on minigrad and as they are.

    python -m tests.oracle.ports nanogpt ~/nanoGPT                 the lines that change, and how far losses differ
    python -m tests.oracle.ports makemore ~/makemore --type=gru    other options go to the program

The repository holds none of them. Two copies run in temporary folders, made short; in one of them the imports change,
and the lines that PROGRAMS says. Both compute in float64 from PyTorch's first weights, with the same random numbers. A
loss is noted whenever backward() is called.

The lines that change, and the largest difference of any loss in 20 to 83 steps:

| | lines | losses |
|---|---|---|
| nanogpt: its training and its model, validation and checkpoints | 14: 4 imports; 10 for DDP, TF32, bfloat16 | 3e-16 |
| mingpt: chargpt with its trainer | 9 imports | 9e-16 |
| makemore, with any of its six --types | 10: 5 imports, 5 for TensorBoard | 1e-15 |
| bigram and gpt of ng-video-lecture | 3 imports each | 9e-16 |
| micrograd: its demo beside micrograd itself, with Tensors of one number for Values | 3 | 4e-16 |"""

import argparse
import contextlib
import dataclasses
import io
import json
import os
import pathlib
import pickle
import pkgutil
import re
import runpy
import sys
import tempfile
from unittest import mock

import numpy as np

import minigrad as mg

IMPORTS = {
    r"^import torch$": "import minigrad as torch",
    r"^(from|import) torch\.utils\.data\.dataloader\b": r"\1 minigrad.utils.data",
    r"^(from|import) torch\b": r"\1 minigrad",
}
RTOL = 1e-12  # of losses, in float64, over some 24 steps
LETTERS = "etaoinshrdlu ,!GO"  # minGPT's prompt has the last ones
TEXT = "".join(LETTERS[i % len(LETTERS)] for i in np.random.default_rng(0).zipf(1.5, 20000))


@dataclasses.dataclass
class Program:
    """What a program is made of, and which of its lines are others here: patterns, and what they are replaced by."""

    script: str
    files: tuple[str, ...] = ()
    argv: str = ""
    short: dict[str, str] = dataclasses.field(default_factory=dict)  # on PyTorch too
    changes: dict[str, str] = dataclasses.field(default_factory=dict)  # on minigrad, beside imports
    deleted: str = "(?!)"  # the lines that have this go, on minigrad
    original: str = "torch:Tensor"  # whose backward() is called


VALUE = "from minigrad import float64, tensor; Value = lambda x: tensor(x, dtype=float64, requires_grad=True)"
LECTURE = {"max_iters = [0-9]+": "max_iters = 24", "eval_iters = 200": "eval_iters = 2", "_tokens=500": "_tokens=50"}
PROGRAMS = {
    "nanogpt": Program(
        "train.py",
        ("model.py", "configurator.py"),
        "--device=cpu --dtype=float32 --compile=False --dataset=letters --n_layer=2 --n_head=2 --n_embd=16 --bias=True "
        "--block_size=16 --batch_size=4 --gradient_accumulation_steps=2 --learning_rate=0.01 --max_iters=24 "
        "--eval_interval=10 --eval_iters=2 --warmup_iters=5 --lr_decay_iters=20",
        deleted=r"^from torch\.(nn\.parallel|distributed)|\.allow_tf32|^ptdtype|= torch.cuda.amp|scaler\.u",
        changes={r"scaler\.scale\(loss\)": "loss", r"scaler\.step\(optimizer\)": "optimizer.step()"},
    ),
    "mingpt": Program(
        "projects/chargpt/chargpt.py",
        ("mingpt/__init__.py", "mingpt/model.py", "mingpt/trainer.py", "mingpt/utils.py"),
        "--model.model_type=None --model.n_layer=2 --model.n_head=2 --model.n_embd=16 --data.block_size=16 "
        "--model.embd_pdrop=0.0 --model.attn_pdrop=0.0 --model.resid_pdrop=0.0 "
        "--trainer.batch_size=4 --trainer.max_iters=24",
        {"model.generate\\(x, 500": "model.generate(x, 50"},
    ),
    "makemore": Program(
        "makemore.py",
        argv="-i input.txt --max-steps=24 --n-layer=2 --n-head=2 --n-embd=16",
        short={r"torch.zeros\(\(B, T, T\)": "torch.zeros((B, T, T), dtype=x.dtype"},  # or torch wants a float32 model
        deleted=r"SummaryWriter|\bwriter\.",
    ),
    "bigram": Program("bigram.py", short=LECTURE),  # this and the next are of ng-video-lecture
    "gpt": Program(
        "gpt.py",
        short=LECTURE
        | {"n_embd = 384": "n_embd = 16", "n_(head|layer) = 6": r"n_\1 = 2", "dropout = 0.2": "dropout = 0.0"}
        | {"block_size = 256": "block_size = 16", "batch_size = 64": "batch_size = 4"},
    ),
    "micrograd": Program(
        "demo.ipynb",
        ("micrograd/__init__.py", "micrograd/engine.py", "micrograd/nn.py"),
        short={
            "from sklearn.datasets import make_moons, make_blobs": "from tests.oracle.ports import make_moons",
            "n_samples=100": "n_samples=10", r"range\(100\)": "range(20)", "^# visualize decision boundary": "exit()",
            r"^(%|plt\.|import matplotlib).*": "", r"\bprint\(.*": "pass",
        },
        changes={"from micrograd.engine import Value": VALUE, r"\bp\.grad = 0": "p.grad = None"},
        original="micrograd.engine:Value",
    ),
}  # fmt: skip


def make_moons(n_samples, noise):
    """In place of scikit-learn's: points (n, 2) on two half circles, and on which each is, 0 or 1."""
    angle, side = np.random.uniform(0, np.pi, n_samples), np.arange(n_samples) % 2
    points = np.stack([np.cos(angle) * (1 - 2 * side) + side, np.sin(angle) * (1 - 2 * side) + 0.5 * side], 1)
    return points + np.random.normal(0, noise, (n_samples, 2)), side


def ported(line, program):
    """A line as minigrad needs it."""
    if re.search(program.deleted, line):
        return ""
    for pattern, replacement in (program.changes | IMPORTS).items():
        if re.search(pattern, line):
            return re.sub(pattern, replacement, line)
    return line


def written(program, checkout, folder, port):
    """Copy the program to the folder, as a port or as it is. Returns the lines changed: (file, number, old, new)."""
    made = []
    for name in (program.script, *program.files):
        source = (checkout / name).read_text(encoding="utf-8")
        if name.endswith(".ipynb"):
            source = "\n".join("".join(c["source"]) for c in json.loads(source)["cells"] if c["cell_type"] == "code")
        for pattern, replacement in program.short.items():
            source = re.sub(pattern, replacement, source, flags=re.MULTILINE)
        lines = source.splitlines()
        for i, line in enumerate(lines if port else []):
            lines[i] = ported(line, program)
            made += [(name, i + 1, line, lines[i])] if lines[i] != line else []
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for pattern in program.changes if port else ():
        if not any(re.search(pattern, old) for _, _, old, _ in made):
            raise SystemExit(f"ports: this checkout is of another version: no line has {pattern}")
    return made


def data_written(folder):
    """Put there what the programs read: the same letters for all."""
    letters = np.array([LETTERS.index(letter) for letter in TEXT], np.uint16)
    data = folder / "data" / "letters"  # as nanoGPT prepares it
    data.mkdir(parents=True)
    letters[:15000].tofile(data / "train.bin")
    letters[15000:].tofile(data / "val.bin")
    (data / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": len(LETTERS)}))
    for name in ("input", "train", "valid", "test"):
        (folder / f"{name}.txt").write_text("\n".join(TEXT[i : i + 8] for i in range(0, len(TEXT), 8)))


@contextlib.contextmanager
def same_numbers(m, first_weights, models):
    """Within the with-block, m (torch or minigrad) draws NumPy's random numbers. A model that is moved to its device
    becomes float64. It takes its first weights from the list, or puts its own into the list if that is empty."""
    rng, to = np.random.default_rng(1), m.nn.Module.to

    def moved(self, *args, **kwargs):
        model = to(to(self, *args, **kwargs), m.float64)
        if len(models) == len(first_weights):
            first_weights.append({path: x.numpy().copy() for path, x in model.state_dict().items()})
        model.load_state_dict({path: m.tensor(x) for path, x in first_weights[len(models)].items()})
        models.append(model)
        return model

    def indices(sampler):
        return iter(rng.integers(len(sampler.data_source), size=999))

    def multinomial(p, num_samples):
        below = p.detach().to(m.float64).numpy().cumsum(1) < rng.random((len(p), num_samples))  # of one sample
        return m.tensor(below.sum(1, keepdims=True))

    with (
        mock.patch.object(m, "randint", lambda high, size, **_: m.tensor(rng.integers(high, size=size))),
        mock.patch.object(m, "randperm", lambda n, **_: m.tensor(rng.permutation(n))),
        mock.patch.object(m, "multinomial", multinomial),
        mock.patch.object(m.utils.data.RandomSampler, "__iter__", indices),
        mock.patch.object(m.nn.Module, "to", moved),
    ):
        yield


def run(program, folder, m, tensor, argv, first_weights):
    """Run the copy in the folder. Returns its losses, its models' weights at the end, and the lines it printed."""
    losses, models, printed, modules = [], [], io.StringIO(), set(sys.modules)
    here = os.getcwd()
    os.chdir(folder)
    try:
        with (
            mock.patch.object(sys, "argv", [program.script, *program.argv.split(), *argv]),
            mock.patch.object(sys, "path", [str((folder / program.script).parent), str(folder), *sys.path]),
            same_numbers(m, first_weights, models),
            contextlib.redirect_stdout(printed),
            contextlib.suppress(SystemExit),
        ):
            cls = pkgutil.resolve_name(tensor)
            backward = cls.backward

            def noted(self, *args, **kwargs):
                losses.append(float(self.data))
                return backward(self, *args, **kwargs)

            with mock.patch.object(cls, "backward", noted):
                runpy.run_path(program.script, run_name="__main__")
    finally:
        os.chdir(here)
        for name in set(sys.modules) - modules:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
                del sys.modules[name]
    weights = [x.numpy() for model in models for x in model.state_dict().values()]
    return losses, weights, re.sub(r"[\d.]+(ms|s\b)|mfu [-\d.]+%|ms/batch +[\d.]+", "", printed.getvalue()).splitlines()


def compare(torch, program, checkout, argv=()):
    """The lines changed, and what run() returns for PyTorch and for minigrad."""
    first_weights, results = [], []
    for m, tensor in ((torch, program.original), (mg, "minigrad:Tensor")):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder).resolve()
            made = written(program, pathlib.Path(checkout), folder, m is mg)
            data_written(folder)
            results.append(run(program, folder, m, tensor, argv, first_weights))
    return made, *results


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.oracle.ports", description=__doc__.split("\n")[0])
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("checkout", help="where you have it")
    args, argv = parser.parse_known_args()
    script = PROGRAMS[args.program].script
    if not (pathlib.Path(args.checkout) / script).is_file():
        parser.error(f"there is no {script} in {args.checkout}")
    import torch

    torch.set_num_threads(1)
    sys.modules.setdefault("torch.utils.tensorboard", mock.MagicMock())  # makemore's, which is a package of its own
    made, theirs, ours = compare(torch, PROGRAMS[args.program], args.checkout, argv)
    for file, number, old, new in made:
        print(f"{file}:{number}: {old.strip()}  →  {new.strip() or '(deleted)'}")
    losses = [np.array(losses) for losses, _, _ in (theirs, ours)]
    if not len(losses[0]) == len(losses[1]) >= 20:
        raise SystemExit(f"FAIL: {len(losses[0])} losses on PyTorch, {len(losses[1])} on minigrad, of at least 20")
    apart = np.abs(losses[0] - losses[1]).max()
    print(f"{len(made)} lines change")
    print(
        f"{len(losses[0])} losses, from {losses[0][0]:.3f} to {losses[0][-1]:.3f}: they differ by at most {apart:.1e}"
    )
    if theirs[1]:
        print(f"weights at the end: by at most {max(np.abs(x - y).max() for x, y in zip(theirs[1], ours[1])):.1e}")
    if theirs[2]:
        same = sum(x == y for x, y in zip(theirs[2], ours[2]))
        print(f"{same} of {len(theirs[2])} printed lines are the same, but for times")
    if not apart <= RTOL * np.abs(losses[0]).max():
        raise SystemExit(f"FAIL: losses differ by more than {RTOL:g} of the largest")


if __name__ == "__main__":
    main()
