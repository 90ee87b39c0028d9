"""The functions of ops that are minigrad's, a star for each family. Of the package itself, type checkers
may take the name ops.softmax for that of the module; here there are no modules."""

# isort: off
from .elementwise import *
from .index import *
from .matmul import *
from .movement import *
from .reduce import *
from .select import *
from .softmax import *
from .activation import relu, sigmoid, tanh
