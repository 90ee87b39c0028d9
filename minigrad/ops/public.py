"""The functions of ops that minigrad offers under its own name, such as minigrad.softmax.

They have a module of their own because in the package ops, type checkers may take ops.softmax for the module of that
name."""

# isort: off
from .elementwise import *
from .index import *
from .matmul import *
from .movement import *
from .reduce import *
from .select import *
from .softmax import *
from .activation import relu, sigmoid, tanh
