# For type checkers: what __init__.py imports, with types. They stand in a file of their own because mypy, once it has a
# cache, would take minigrad.ops.softmax for the module of that name.
from .signatures import *
