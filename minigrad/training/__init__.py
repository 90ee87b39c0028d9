"""The parts of a training loop beside the model and the optimizer, and `minigrad train`, which uses them.

For a loop of your own:
    text         characters, a corpus, batches; stories.txt is the default text
    checkpoint   mg.save and mg.load
    loop         a table of losses, signals, a line of progress

`minigrad train`, in the order of reading:
    runs         the folder of a run: its files, and the model in it
    recipe       settings, model, optimizer, learning rates
    runner       a run: its start or resumption, its steps, its files
"""

from .loop import Interrupt, Progress, Table

__all__ = ["Interrupt", "Progress", "Table"]
