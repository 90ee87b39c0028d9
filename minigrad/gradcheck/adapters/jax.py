"""JAX: functions of arrays and pytrees of them, in float64 even where x64 is switched off."""

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np

from ..subject import flat, mapped
from .foreign import Framework, as_tensor
from .traced import Traced

trees = jax.tree_util


class Pytree(dict):
    """{path: Tensor} in place of an object of a class that is registered with JAX."""

    def __init__(self, x):
        paths, self.treedef = trees.tree_flatten_with_path(x)
        super().__init__((trees.keystr(path), _entered(leaf)) for path, leaf in paths)


class _Registered(type):
    def __instancecheck__(cls, x):
        containers = dict, list, tuple, jax.Array, np.ndarray, type(None)
        return not isinstance(x, containers) and not trees.treedef_is_leaf(trees.tree_structure(x))


class Registered(metaclass=_Registered):
    """What is a pytree of its own kind."""


class Jax(Framework):
    array = "jax.Array"
    imports = "import jax, jax.numpy as jnp"
    modules = {"jnp": jnp, "jnp.linalg": jnp.linalg, "jax.nn": jax.nn, "jax.lax": jax.lax}
    kinds = (jax.Array, np.ndarray, Registered)
    compiles = True

    def entered(self, x):
        return Pytree(x) if isinstance(x, Registered) else _entered(x)

    def rebuilt(self, tree):
        return mapped(tree, lambda x: trees.tree_unflatten(x.treedef, list(x.values())), of=Pytree)

    def function(self, call, label):
        return Traced(call, label, _derived, jnp.asarray, np.array, jnp.zeros_like, _x64, lazy=True)

    def outputs(self, y):
        found = flat(y, of=jax.Array) or [x for x in trees.tree_leaves(y) if isinstance(x, jax.Array)]
        if any(jnp.iscomplexobj(x) for x in found):
            raise TypeError("gradcheck: the function returned a complex array; return jnp.real(y) and jnp.imag(y)")
        return [x for x in found if jnp.issubdtype(x.dtype, jnp.floating)]

    def constant(self, array):
        with _x64():
            return jnp.asarray(array)

    def literal(self, x, most):
        if isinstance(x, jax.Array) and x.size <= most and jnp.issubdtype(x.dtype, jnp.number):
            return f"jnp.array({np.asarray(x).tolist()!r}, dtype=jnp.{x.dtype})"
        return None


def _derived(f, xs):
    return jax.vjp(lambda *xs: f(xs), *xs)


def _x64():
    enable = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64  # since JAX 0.8, before
    return enable(True)


def _entered(x):
    """A float array as a Tensor; integers too, where we have their dtype. Anything else is a constant."""
    if not isinstance(x, (jax.Array, np.ndarray)):
        return x
    if jnp.iscomplexobj(x):
        raise TypeError("gradcheck: complex inputs are not checked; pass real and imaginary part to a function of both")
    if jnp.issubdtype(x.dtype, jnp.floating):
        return as_tensor(np.asarray(x, np.float64))
    return as_tensor(np.asarray(x)) if x.dtype in (np.int64, np.int32, np.bool_) else x


framework = Jax()
