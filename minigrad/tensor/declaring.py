"""Op and FormulaOp as those see them who declare ops: what was saved comes back as Tensors. The engine sees Values."""

from typing import TYPE_CHECKING

from .. import autograd
from .core import Tensor

if TYPE_CHECKING:

    class Op(autograd.Op, abstract=True):
        """autograd.Op."""

        def saved_inputs(self) -> tuple[Tensor, ...]: ...
        def saved_output(self) -> Tensor: ...
        def saved(self) -> tuple[Tensor, ...]: ...

    class FormulaOp(Op, autograd.FormulaOp, abstract=True):
        """autograd.FormulaOp."""
else:
    Op, FormulaOp = autograd.Op, autograd.FormulaOp
