"""The folder of a run of `minigrad train`, and the model in it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import nn
from ..typing import FilePath
from .checkpoint import CheckpointError, load
from .text import CharVocab

if TYPE_CHECKING:
    from ..nn.gpt.model import GPT

__all__ = ["FOLDER", "load_char_model", "model_file"]

LAST, BEST = "last.safetensors", "best.safetensors"
FOLDER = Path("runs/char_lm")  # the run that is trained or read by default


def model_file(path: FilePath) -> Path:
    """The checkpoint at a path: a file itself, or of a run's folder best.safetensors, or last.safetensors before the
    first validation. Raises CheckpointError if the folder has neither."""
    path = Path(path)
    if not path.is_dir() and path != FOLDER:
        return path
    for file in (path / BEST, path / LAST):
        if file.exists():
            return file
    raise CheckpointError(f"there is no checkpoint in {path}: train a model first, with `minigrad train`")


def load_char_model(path: FilePath, device: str = "cpu") -> "tuple[GPT, CharVocab, dict[str, Any]]":
    """(model, vocabulary, all that was saved) of a run's folder, or of a file with the entries "model", "config" and
    "chars". Raises CheckpointError for a file that cannot be read, or holds something else."""
    path = model_file(path)
    saved = load(path)
    try:
        model = nn.GPT.with_weights(nn.GPTConfig(**saved["config"]), saved["model"])
        return model.to(device), CharVocab(saved["chars"]), saved
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} holds no character model: {error!r}") from error
