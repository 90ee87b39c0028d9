"""The graph, the backward walk and the grad modes.

    Tensor ──> Node ──> Op ──> the Nodes of its inputs

References run one way only, so a graph is freed with its last Tensor. A Node has the shape, dtype and device of a
value, but not the value. An Op keeps an array only where it says so (`save_inputs`, `save_output`, `save`), and the
walk frees the array as soon as it has been used.

An op's backward takes Tensors and returns Tensors. So it is written like any other maths, and the backward pass is a
graph itself (`create_graph=True`). The engine does not import Tensor: `Value`, its base class, declares what the engine
calls. To add gradients and to fit their shapes these are +, sum, reshape, detach and clone.
"""

from typing import TYPE_CHECKING, Any

from .anomaly import AnomalyError
from .cases import case
from .graph import GraphError, Handle, Node, Storage, Value
from .modes import (
    current_modes, detect_anomaly, enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled, switched,
    watch,
)  # fmt: skip
from .op import FormulaOp, Op
from .registry import Declaration, composite, declaration_of, registry
from .walk import backward, reachable, vjp
from ..base.missing import module_getattr

__all__ = [
    "AnomalyError", "case", "GraphError", "Handle", "Node", "Storage", "Value",
    "current_modes", "detect_anomaly", "enable_grad", "inference_mode", "is_grad_enabled", "no_grad",
    "set_grad_enabled", "switched", "watch", "FormulaOp", "Op", "Declaration", "composite", "declaration_of",
    "registry", "backward", "reachable", "vjp",
]  # fmt: skip

if TYPE_CHECKING:  # to mypy a module with __getattr__ would have every name
    grad: Any
    gradcheck: Any
else:
    _later: dict = {}
    __getattr__ = module_getattr(__name__, _later)

    def later(name, module):
        """Make this package offer a name of a higher module, which is imported at its first use."""
        _later[name] = module
