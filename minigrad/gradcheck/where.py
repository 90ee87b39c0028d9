"""The line of a user's file that an exception comes from: what the user can look at, among frames of everybody else."""

import site
import sysconfig
import traceback
from pathlib import Path

OURS = str(Path(__file__).parents[1])
INSTALLED = {*sysconfig.get_paths().values(), *site.getsitepackages()}


def raised(error):
    """An exception in words, with the innermost line that is neither ours nor an installed package's."""
    return told(error) + users_line(error)


def told(error):
    """'ValueError: too long', or 'ValueError' of one without words, or that cannot say them."""
    kind = type(error).__name__
    try:
        said = str(error)
    except Exception:
        return kind
    return f"{kind}: {said}" if said else kind


def users_line(error):
    """', at my_ops.py:12 in backward: return dy / 0', or ''. An installed package's line if there is no other, or one
    of our own ops'."""
    frames = traceback.extract_tb(error.__traceback__)
    for others in ((OURS, *INSTALLED), (OURS,), (str(Path(__file__).parent),)):
        for frame in reversed(frames):
            if not _inside(frame.filename, others):
                code = f": {frame.line}" if frame.line else ""
                return f", at {frame.filename}:{frame.lineno} in {frame.name}{code}"
    return ""


def _inside(file, folders):
    return file.startswith("<") or any(Path(file).is_relative_to(folder) for folder in folders)
