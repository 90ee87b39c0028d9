"""The folder of a run of `minigrad train`: its files, the claim on it, and the model in it.

last.safetensors    all that a resumed run needs, as runner.Run.save writes it
best.safetensors    the same at the lowest validation loss
losses.csv          a row for each step: step, train, val, lr, grad_norm
step-00000100.safetensors, …    with --keep: the model after these steps
"""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import nn
from ..base.errors import CommandError
from ..base.files import claimed
from ..typing import FilePath
from .checkpoint import CheckpointError, load
from .text import CharVocab

if TYPE_CHECKING:
    from ..nn.gpt.model import GPT

__all__ = ["FOLDER", "kept_checkpoints", "load_char_model", "model_file"]

LAST, BEST, LOSSES = "last.safetensors", "best.safetensors", "losses.csv"
FOLDER = Path("runs/char_lm")  # the run that is trained or read by default


def kept_at(folder: Path, step: int) -> Path:
    """Return the path of the checkpoint that is kept of a step."""
    return folder / f"step-{step:08}.safetensors"


def kept_checkpoints(folder: FilePath) -> dict[int, Path]:
    """Return {step: path} of the checkpoints that `minigrad train --keep` has left in a run's folder, in order."""
    found = {path.stem.removeprefix("step-"): path for path in Path(folder).glob("step-*.safetensors")}
    return {int(step): found[step] for step in sorted(found) if step.isdecimal()}


def claim(folder: Path, held: ExitStack) -> None:
    """Keep other processes from training in the folder until `held` is closed. Raises CommandError if one does."""
    try:
        held.enter_context(claimed(folder))
    except BlockingIOError:
        raise CommandError(f"another process trains in {folder} now: choose another folder") from None


def refuse_another(folder: Path) -> None:
    """Raise CommandError if the folder holds a run."""
    if any((folder / name).exists() for name in (LAST, BEST, LOSSES)) or kept_checkpoints(folder):
        raise CommandError(f"{folder} already holds a run: resume it, or choose another folder")


def model_file(path: FilePath) -> Path:
    """Return the checkpoint at a path: the file itself, or for a run's folder its best.safetensors, or before the first
    validation its last.safetensors. Raises CheckpointError if the folder has neither."""
    path = Path(path)
    if not path.is_dir() and path != FOLDER:
        return path
    for file in (path / BEST, path / LAST):
        if file.exists():
            return file
    raise CheckpointError(f"there is no checkpoint in {path}: train a model first, with `minigrad train`")


def load_char_model(path: FilePath, device: str = "cpu") -> "tuple[GPT, CharVocab, dict[str, Any]]":
    """Return (model, vocabulary, everything that was saved) of a run's folder, or of a file with the entries "model",
    "config" and "chars". Raises CheckpointError for a file that cannot be read or holds something else."""
    path = model_file(path)
    saved = load(path)
    try:
        model = nn.GPT.with_weights(nn.GPTConfig(**saved["config"]), saved["model"])
        return model.to(device), CharVocab(saved["chars"]), saved
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} holds no character model: {error!r}") from error
