"""The functions behind the layers, under their PyTorch names: `from minigrad.nn import functional as F`."""

from ..ops.activation import *
from ..ops.attention import *
from ..ops.dropout import *
from ..ops.index import embedding
from ..ops.loss import *
from ..ops.matmul import linear
from ..ops.movement import pad
from ..ops.norm import *
from ..ops.softmax import *
from ..tensor import one_hot
