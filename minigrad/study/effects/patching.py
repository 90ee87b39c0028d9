"""Which heads carry the difference between two inputs: their values in one run are put into the other.

A clean run, such as one on a text that can be predicted, and a corrupt one differ in a few tokens. A head whose clean
value brings the corrupt run's loss back, alone, carries what differs. One forward for each head says so exactly, and
one backward for all of them to first order (attribution patching, Nanda 2023).

Sources: Meng et al. 2022; Wang et al. 2022, Interpretability in the wild; Syed, Rager and Conmy 2023, for edges."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ...autograd import enable_grad
from ...base.errors import unknown
from ...nn.attention import POINTS, all_take
from ...tensor import Tensor, grad, tensor
from ...typing import Array
from ..layers import as_float64, attention_layers, several, undisturbed
from .importance import check_batch, returned_loss, value_of

if TYPE_CHECKING:
    from ...nn.module import Module

METHODS = "exact", "first_order"


def patch(
    model: "Module",
    clean: Sequence[Any],
    corrupt: Sequence[Any],
    loss: Callable[..., Tensor] = returned_loss,
    point: str = "z",
    method: str = "exact",
    positions: Any = None,
) -> dict[str, Array]:
    """{path: (nh,) float64}: how loss(model, *corrupt) changes when one head's value is that of the clean run.

    clean, corrupt: tuples of arguments of the same shapes. loss: a function of the model and those, such as the
    difference of two logits; by default what the model returns last. point: what of a head is patched: "z", "q", "k",
    "v", "qk" (its unscaled scores) or "pattern". positions: only there, numbers of queries, or of keys for "k" and "v"
    (None: everywhere).

        exact        one forward for each head
        first_order  ⟨clean - corrupt, gradient in the corrupt run⟩, one backward for all heads

    The model runs in eval mode; neither it nor any .grad is changed. A run patched with itself changes nothing. Raises
    ValueError for an unknown point, method or position, and for runs whose shapes differ."""
    if point not in POINTS:
        raise ValueError(unknown("point", point, POINTS))
    if method not in METHODS:
        raise ValueError(unknown("method", method, METHODS))
    check_batch(clean)
    check_batch(corrupt)
    layers = {path: layer for path, layer in attention_layers(model).items() if layer.num_heads}
    with undisturbed(model), all_take("batched"):  # the same form in each forward, so that only the patch differs
        wanted = values_at(model, layers.values(), clean, loss, point)[0]
        given, before = values_at(model, layers.values(), corrupt, loss, point)
        differences = {}  # layer -> (B, nh, …), 0 where nothing is patched
        for path, layer in layers.items():
            if wanted[layer].shape != given[layer].shape:
                shapes = wanted[layer].shape, given[layer].shape
                raise ValueError(
                    f"{point} of {path} is {shapes[0]} in the clean run, but {shapes[1]} in the corrupt one"
                )
            differences[layer] = _kept(wanted[layer] - given[layer], positions, path)
        if method == "first_order":
            gradients = gradients_at(model, layers.values(), corrupt, loss, point, {})
            change = {layer: as_float64(g) * differences[layer] for layer, g in gradients.items()}
            return {p: change[m].reshape(*change[m].shape[:2], -1).sum((0, 2)) for p, m in layers.items()}

        def of_head(layer, h):
            own = np.zeros_like(differences[layer])
            own[:, h] = differences[layer][:, h]
            with _shifted(layer, point, own):
                return value_of(loss, model, corrupt).item() - before

        return {path: np.array([of_head(layer, h) for h in range(layer.num_heads)]) for path, layer in layers.items()}


def values_at(model, layers, batch, loss, point):
    """({layer: its heads' values at a point}, the loss)"""
    values = {}

    def keep(layer, x):
        if layer in values:
            raise ValueError("a layer runs twice for this loss: patching needs one run of each")
        values[layer] = as_float64(x)

    with ExitStack() as stack:
        for layer in layers:
            stack.callback(layer.register_head_hook(point, keep).remove)
        value = value_of(loss, model, batch).item()
    if any(layer not in values for layer in layers):
        raise ValueError("an attention layer did not run for this loss")
    return values, value


def _kept(difference, positions, path):
    if positions is None:
        return difference
    T, positions = difference.shape[2], several(positions)
    if wrong := [t for t in positions if t not in range(-T, T)]:
        raise ValueError(f"there is no position {wrong[0]} in {path}: there are {T}")
    kept = np.zeros_like(difference)
    kept[:, :, positions] = difference[:, :, positions]
    return kept


def gradients_at(model, layers, batch, loss, point, shifts):
    """{layer: the gradient of the loss at a point}, where shifts, {layer: array}, are added to the values there."""
    with ExitStack() as stack, enable_grad():
        added = {layer: stack.enter_context(_shifted(layer, point, shifts.get(layer, 0.0))) for layer in layers}
        value = value_of(loss, model, batch)
        leaves = [leaf for found in added.values() for leaf in found]
        gradients = grad(value, leaves, allow_unused=True)
    return {layer: np.zeros(x.shape) if g is None else g for layer, x, g in zip(added, leaves, gradients)}


@contextmanager
def _shifted(layer, point, by):
    """Within a with-block, the layer's heads have `by` added to their values at a point. Yields a list, to which the
    first forward adds the Tensor that is added: its gradient is that of the values, whatever is frozen."""
    added = []

    def add(layer, x):
        if not added:  # the same again where the layer runs twice
            added.append(tensor(np.broadcast_to(by, x.shape), dtype=x.dtype, device=x.device, requires_grad=True))
        return x + added[0]

    handle = layer.register_head_hook(point, add)
    try:
        yield added
    finally:
        handle.remove()
