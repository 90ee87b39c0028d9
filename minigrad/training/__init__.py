"""What a training loop needs beside a model and an optimizer, on the host.

text         characters, a corpus, batches                  loop         a table of losses, signals, progress
checkpoint   a model, an optimizer and what belongs to them, saved as one safetensors file
objects      mg.save and mg.load: any nesting of tensors, modules and optimizers, in one call
runner       the loop of `minigrad train`               runs    what it has saved, read back and checked
"""

from .loop import Interrupt, Progress, Table

__all__ = ["Interrupt", "Progress", "Table"]
