"""What a training loop needs beside a model and an optimizer, on the host.

text         characters, a corpus, batches            stories    the default text, a file
checkpoint   mg.save and mg.load                      loop       a table of losses, signals, progress
recipe       how `minigrad train` trains              runner     its loop
runs         the folder of a run, and its model
"""

from .loop import Interrupt, Progress, Table

__all__ = ["Interrupt", "Progress", "Table"]
