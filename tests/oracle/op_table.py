"""Every public function of minigrad.ops beside PyTorch's of the same name, as data.

A row is (name, function(m, *inputs), case of inputs). The function is called twice, with m = minigrad and m = torch:
whatever runs here under both is a program that ports by changing its import. Rows that need two spellings say why.
"""

from minigrad.autograd.cases import Fixed, apart, booleans, case, integers, positive, uniform

ROWS = []
_FUNCTIONAL = {  # what both have in nn.functional; torch has older functions of some of these names at the top
    "binary_cross_entropy_with_logits", "mse_loss", "nll_loss", "cross_entropy", "dropout", "embedding",
    "elu", "gelu", "layer_norm", "leaky_relu", "linear", "log_softmax", "pad", "rms_norm",
    "scaled_dot_product_attention", "silu", "softmax", "softplus",
}  # fmt: skip
INF = float("inf")


def row(name, function, *inputs):
    ROWS.append((name, function, case(*inputs)))


def same(name, *inputs, **params):
    """A function of that name and those arguments in both."""

    def function(m, *xs):
        return getattr(m.nn.functional if name in _FUNCTIONAL else m, name)(*xs, **params)

    row(name, function, *inputs)


def pair(name, ours, theirs, *inputs):
    row(name, lambda m, *xs: (ours if m.__name__ == "minigrad" else theirs)(m, *xs), *inputs)


# ---------------------------------------------------------------------------------------------------------- elementwise

for _name in ("add", "sub", "mul", "div", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge"):
    for _shapes in (((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 1, 3), (4, 1)), ((), (2,)), ((0, 3), (3,))):
        same(_name, *_shapes)
for _name in ("maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge"):
    same(_name, Fixed([1.0, 2.0, 3.0, float("nan")]), Fixed([2.0, 2.0, 2.0, 1.0]))  # a tie; NaN
for _name in ("add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge"):
    same(_name, integers((3, 4), 3), 1)
for _name in ("exp", "sin", "cos", "tanh", "sigmoid", "silu", "gelu", "softplus", "leaky_relu", "erf", "erfc"):
    same(_name, uniform((3, 40), -6, 6))
    same(_name, Fixed([0.0, -0.0, 1e-300, 30.0, -30.0]))
    same(_name, ())
for _name in ("log", "sqrt", "rsqrt", "log1p", "square"):
    same(_name, positive((3, 4)))
same("log1p", Fixed([1e-10, 0.0, -0.5]))
same("elu", uniform((3, 40), -6, 6))
same("elu", Fixed([1e-300, 30.0, -1e-12, -30.0]), alpha=0.5)
for _inputs in (
    (uniform((3, 4), -9, 9), uniform((4,), 0.5, 3)),
    (integers((3, 4), 9, -9), integers((4,), 5, 1)),
    ((3, 4), -2.5),
):
    same("remainder", *_inputs)
    row("floor_divide", lambda m, x, y: m.floor_divide(x.detach(), m.as_tensor(y).detach()), *_inputs)  # no gradient
same("gelu", uniform((3, 40), -6, 6), approximate="tanh")
for _name in ("abs", "neg", "sign", "floor", "relu"):
    same(_name, (3, 4))
    same(_name, Fixed([0.0, -0.0, 2.0]))
    same(_name, integers((3, 4), 3, -3))
row("add", lambda m, x, y: x + y * 2.5 - 1, (3, 4), (4,))
row("sub", lambda m, x: 1.5 - x, (3, 4))
row("div", lambda m, x: 1.5 / x, positive((3, 4)))
row("neg", lambda m, x: -x, (3, 4))
row("abs", lambda m, x: abs(x), (3, 4))
row("add", lambda m, x, y: x.detach().clone().add_(y.detach(), alpha=2).mul_(3).sub_(1).div_(y.detach()), (3, 4), (4,))
for _exponent in (-2, -1, -0.5, 0, 0.5, 1, 2, 3, 2.5):
    same("pow", positive((3, 4)), _exponent)
for _exponent in (0, 1, 2, 3):
    same("pow", Fixed([-2.0, 0.0, 1.0]), _exponent)  # 0 to the power 0, and its gradient
row("pow", lambda m, x: 2.0**x, (3, 4))
row("pow", lambda m, x: x**3 + 2**x, integers((3, 4), 5))
same("pow", positive((3, 1)), (4,))
# (torch has NaN for the second derivative of 0**0, whose value 1 does not depend on the base; ours is 0)
row("pow", lambda m, x, y: m.pow(x, y.detach()), Fixed([0.0, 0.5, 2.0]), Fixed([2.0, 0.0, 0.0]))
same("where", booleans((3, 4)), (3, 4), (4,))
row("where", lambda m, x: m.where(x > 0, x, 0.5), (3, 4))
row("where", lambda m, x: x.where(x > 0, -x), (3, 4))
same("clamp", (3, 4), min=-0.5, max=0.7)
same("clamp", (3, 4), max=0.1)
same("clamp", Fixed([-1.0, 0.0, 1.0, 2.0]), min=0.0, max=1.0)  # on the bounds
row("clamp", lambda m, x: m.clamp(x.detach(), min=1.0, max=0.0), (4,))  # min > max: all become max
same("masked_fill", (3, 4), booleans((4,)), 2.0)
row(
    "masked_fill",
    lambda m, x, mask: x.masked_fill(mask, -INF).softmax(-1),
    (3, 5),
    Fixed([True, False, False, True, True]),
)
for _name in ("logical_and", "logical_or"):
    same(_name, booleans((3, 4)), booleans((4,)))
    same(_name, integers((3, 4), 2), integers((3, 4), 2))
row("logical_and", lambda m, x, y: (x & y, x | y, ~x), booleans((3, 4)), booleans((4,)))
same("logical_not", booleans((3, 4)))
for _name in ("isnan", "isinf", "isfinite"):
    same(_name, Fixed([0.0, float("nan"), INF, -INF]))
row("Cast", lambda m, x: (x.float() * 2).double(), (3, 4))
row("Cast", lambda m, x: (x.long(), x.int(), x.bool(), x.to(m.float16), x.half()), uniform((3, 4), -9, 9))

# ----------------------------------------------------------------------------------------------------------- reductions

for _name in ("sum", "mean", "var", "std", "logsumexp", "amax", "amin"):
    for _dim in (0, -1, (0, 2), (-1, -2)):
        for _keepdim in (False, True):
            same(_name, (2, 3, 4), dim=_dim, keepdim=_keepdim)
for _name in ("sum", "mean", "var", "std", "max", "min", "prod", "any", "all", "argmax", "argmin"):
    same(_name, (2, 3, 4))
for _name in ("sum", "mean", "max", "min", "prod", "argmax", "argmin", "amax", "amin"):
    same(_name, ())
for _name in ("max", "min", "prod", "argmax", "argmin", "cumsum", "any", "all"):
    for _dim in (0, 1, -1):
        same(_name, (2, 3, 4), dim=_dim)
for _name in ("max", "min", "prod", "argmax", "argmin", "any", "all"):
    same(_name, (2, 3, 4), dim=1, keepdim=True)
for _name in ("var", "std"):
    for _correction in (0, 1, 2):
        same(_name, (3, 4), dim=1, correction=_correction)
same("var", (3, 1), dim=1, correction=0)
for _name in ("sum", "prod", "cumsum", "max", "argmax", "any", "all"):
    same(_name, integers((3, 4), 5, -5), dim=1)
for _name in ("sum", "prod", "any", "all"):
    same(_name, booleans((3, 4)))
    same(_name, (0, 3), dim=0)
same("mean", (3, 0), dim=1)
row("logsumexp", lambda m, x: m.logsumexp(x.detach(), 1), Fixed([[1.0, -INF], [-INF, -INF], [INF, 1.0]]))
for _name in ("amax", "amin", "max", "min"):
    same(_name, Fixed([3.0, 1.0, 3.0, 1.0]))  # ties
for _name in ("max", "min"):
    same(_name, Fixed([[3.0, 3.0], [1.0, 1.0]]), dim=1)
for _name in ("max", "min", "amax", "amin", "argmax", "argmin"):
    same(_name, Fixed([[3.0, float("nan"), 5.0], [1.0, 2.0, 0.0]]), dim=1)
for _params in ({}, dict(p=1, dim=0), dict(p=3, dim=1), dict(p=INF, dim=-1), dict(dim=(0, 1), keepdim=True)):
    row("norm", lambda m, x, params=_params: x.norm(**params), apart((3, 4)))


def _norm_of_zero(m, x):
    """Its second derivative at 0 does not exist: it is NaN there, and 0 here."""
    y = x.norm(dim=0)
    return y.detach(), m.autograd.grad(y.sum(), [x])[0].detach()


row("norm", _norm_of_zero, Fixed([[0.0, 1.0], [0.0, 2.0]]))
for _factors in ([1.0, 0.0, 3.0], [0.0, 0.0, 2.0], [2.0, 3.0, 4.0]):
    same("prod", Fixed([_factors, [1.0, 2.0, 0.5]]), dim=1)
for _params in ({}, dict(dim=0), dict(dim=0, descending=True), dict(descending=True)):
    same("sort", (3, 5), **_params)
    same("argsort", (3, 5), **_params)
row("sort", lambda m, x: m.argsort(x, dim=-1, descending=True, **_stable(m)), integers((4, 9), 3))
same("sort", Fixed([3.0, float("nan"), 1.0]))
for _params in (dict(k=2), dict(k=3, dim=0), dict(k=3, dim=0, largest=False), dict(k=0), dict(k=5, dim=-1)):
    same("topk", (3, 5), **_params)


def _stable(m):  # ours always is
    return {} if m.__name__ == "minigrad" else {"stable": True}


# ------------------------------------------------------------------------------------------------------------- movement

row("reshape", lambda m, x: (x.reshape(2, 6), x.reshape((-1, 2)), m.reshape(x, (4, 3)), x.T.reshape(2, 6)), (3, 4))
row("view", lambda m, x: (x.view(2, 6), x.view(-1), x.T.view(2, 2, 3)), (3, 4))
row("flatten", lambda m, x: (x.flatten(), x.flatten(1), m.flatten(x, 0, 1), x.flatten(-2, -1)), (2, 3, 4))
row("flatten", lambda m, x: x.flatten(), ())
row("squeeze", lambda m, x: (x.squeeze(), x.squeeze(1), x.squeeze(-1), m.squeeze(x, (1, 2))), (2, 1, 3, 1))
row("unsqueeze", lambda m, x: (x.unsqueeze(0), x.unsqueeze(-1), x.unsqueeze(2), m.unsqueeze(x, -3)), (2, 3))
row("transpose", lambda m, x: (x.transpose(0, 1), x.transpose(-1, 0), m.transpose(x, 1, 2), x.mT), (2, 3, 4))
row("permute", lambda m, x: (x.permute(2, 0, 1), x.permute((0, 2, 1)), m.permute(x, (-1, 0, 1))), (2, 3, 4))
row("expand", lambda m, x: (x.expand(2, 3, 4), x.expand(-1, 4), x.expand((3, 4))), (3, 1))
row("flip", lambda m, x: (m.flip(x, (0,)), x.flip(0, 2), m.flip(x, (-1,))), (2, 3, 4))
row("repeat", lambda m, x: (x.repeat(2, 1), x.repeat(2, 1, 3), x.repeat((1, 0))), (2, 3))
row("repeat_interleave", lambda m, x: (m.repeat_interleave(x, 2, dim=1), x.repeat_interleave(3, dim=0)), (2, 3))
row("cat", lambda m, x, y: (m.cat([x, y]), m.cat((y, x, y), dim=-2), m.cat([x])), (2, 3), (4, 3))
row("cat", lambda m, x, y: m.cat([x.long(), y]), (2, 3), (4, 3))
row("stack", lambda m, x, y: (m.stack([x, y]), m.stack((y, x), dim=-1), m.stack([x, x], dim=1)), (2, 3), (2, 3))
row("split", lambda m, x: (*x.split(2), *m.split(x, [1, 4], dim=0), *x.split(2, dim=-1)), (5, 3))
row("split", lambda m, x: x.split(2)[1], (5, 3))  # the other parts get no gradient
row("chunk", lambda m, x: (*x.chunk(2), *m.chunk(x, 3, dim=1), *x.chunk(4)), (5, 3))
row("unbind", lambda m, x: (*x.unbind(), *m.unbind(x, dim=-1)), (2, 3))
for _widths in ((1, 2), (0, 1, 2, 0), (0, 0, 0, 0, 1, 1)):
    same("pad", (2, 3, 2), pad=_widths, value=1.5)
row("clone", lambda m, x: x.clone() * m.clone(x), (3, 4))
row("contiguous", lambda m, x: (x.contiguous(), x.T.contiguous()), (3, 4))

# -------------------------------------------------------------------------------------------------- indexing, triangles

_INDICES = [
    lambda m: 1,
    lambda m: -1,
    lambda m: slice(1, 3),
    lambda m: slice(-3, None, 2),
    lambda m: (slice(None), 2),
    lambda m: (Ellipsis, 1),
    lambda m: (1, Ellipsis, slice(0, 2)),
    lambda m: (None, slice(None), None, 1),
    lambda m: [2, 0, 2],
    lambda m: m.tensor([[3, -1], [0, 0]]),
    lambda m: (m.tensor([0, 2, 2]), m.tensor([1, 1, 1])),
    lambda m: (m.tensor([[0], [3]]), m.tensor([0, 2])),  # broadcast against each other
    lambda m: (slice(None), m.tensor([0, 2, 0])),
    lambda m: (m.tensor([0, 3]), slice(1, 2), m.tensor([1, 0])),  # apart: their dim comes first
    lambda m: (slice(0, 2), m.tensor([1, 1]), m.tensor([1, 0])),
    lambda m: (slice(None), slice(None), None, m.tensor([1])),
    lambda m: m.tensor([True, False, True, True]),
    lambda m: (slice(None), m.tensor([True, False, True])),
    lambda m: (Ellipsis, m.tensor([1, 0])),
    lambda m: m.tensor([], dtype=m.int64),
]
for _index in _INDICES:
    row("getitem", lambda m, x, index=_index: x[index(m)], (4, 3, 2))
row("getitem", lambda m, x: x[x > 0.3], (4, 3))


def _assigned(m, x, value, index):
    y = x.detach().clone()
    y[index(m)] = value.detach() if hasattr(value, "detach") else value
    return y


for _index in [index for i, index in enumerate(_INDICES) if i != 8]:  # [2, 0, 2] is there again below, with one value
    row("getitem", lambda m, x, index=_index: _assigned(m, x, 1.5, index), (4, 3, 2))
row("getitem", lambda m, x, v: _assigned(m, x, v, lambda m: (slice(None), [2, 0])), (4, 3, 2), (2, 2))

row("index_select", lambda m, x, i: (m.index_select(x, 0, i), x.index_select(-2, i)), (4, 3), Fixed([2, 0, 2]))
row("narrow", lambda m, x: (m.narrow(x, 1, 1, 3), x.narrow(-2, -2, 2)), (3, 5))
row("roll", lambda m, x: (m.roll(x, 7), x.roll(-2, 1), x.roll((1, -1), (0, -1)), x.roll(0, 0)), (3, 4))
row("bmm", lambda m, x, y: (m.bmm(x, y), y.bmm(x)), (2, 3, 4), (2, 4, 3))
row("outer", lambda m, x, y: (m.outer(x, y), y.outer(x)), (3,), (4,))
row("reciprocal", lambda m, x: (m.reciprocal(x), x.reciprocal()), positive((3, 4)))
row("cat", lambda m, x: m.cat([m.zeros(0, dtype=x.dtype), x, x], 1), (3, 4))
row("repeat_interleave", lambda m, x: (x.repeat_interleave(2), m.repeat_interleave(x, 3, -1)), (2, 3))
row("norm", lambda m, x: (x.norm(None), x.norm("fro", 1)), (3, 4))
row("var", lambda m, x: (x.var(False), x.std(True), x.var(0, False)), (3, 4))
row("gather", lambda m, x, i: (m.gather(x, 1, i), x.gather(-1, i)), (3, 4), integers((3, 2), 4))
row("gather", lambda m, x, i: x.gather(0, i), (3, 4, 2), integers((5, 4, 2), 3))
row("scatter", lambda m, x, s: x.scatter(1, m.tensor([[0, 2], [1, 0]]), s), (2, 3), (2, 2))
row("scatter", lambda m, x: m.scatter(x, 0, m.tensor([[1, 0, 1]]), 0.5), (2, 3))
row("scatter_add", lambda m, x, s: m.scatter_add(x, 0, m.tensor([[2, 0, 2], [2, 1, 0]]), s), (3, 3), (2, 3))
row("diagonal", lambda m, x: (m.diagonal(x), x.diagonal(1, -1, 0), x.diagonal(-1, 1, 2)), (2, 3, 4))
row("nonzero", lambda m, x: (m.nonzero(x > 0), *(x > 0).nonzero(as_tuple=True)), (3, 4))
row("t", lambda m, x: (x.t(), m.t(x[0])), (3, 4))
row("embedding", lambda m, w, i: m.nn.functional.embedding(i, w), (5, 3), integers((2, 4), 5))
for _diagonal in (-5, -1, 0, 1, 5):
    same("tril", (2, 4, 3), diagonal=_diagonal)
    same("triu", (3, 4), diagonal=_diagonal)

# ------------------------------------------------------------------------------------------------------ matrix products

for _shapes in (
    ((3, 4), (4, 5)), ((4,), (4,)), ((4,), (4, 5)), ((3, 4), (4,)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)),
    ((2, 3, 4), (4,)), ((4,), (2, 4, 5)), ((2, 1, 3, 4), (5, 4, 2)), ((3, 4), (2, 4, 5)), ((2, 0, 4), (4, 3)),
    ((3, 0), (0, 2)),
):  # fmt: skip
    row("matmul", lambda m, a, b: (m.matmul(a, b), a @ b), *_shapes)
row("matmul", lambda m, a, b: a @ b, integers((3, 4), 9), integers((4, 2), 9))
for _x in ((2, 4), (4,), (2, 3, 4), (2, 2, 2, 4), (0, 4)):
    same("linear", _x, (5, 4), (5,))
    same("linear", _x, (5, 4), None)
for _equation, *_shapes in (
    ("ij,jk->ik", (2, 3), (3, 4)), ("ij,jk", (2, 3), (3, 4)), ("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)),
    ("ii->i", (3, 3)), ("ii", (3, 3)), ("ij->ji", (2, 3)), ("ij->", (2, 3)), ("ij->j", (2, 3)), ("ba", (2, 3)),
    ("i,j->ij", (2,), (3,)), ("i,i", (3,), (3,)), ("i,j,ij->", (2,), (3,), (2, 3)), ("...i,...i", (2, 3), (3,)),
    ("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 2)), ("b...d,dk->bk...", (2, 3, 5, 4), (4, 2)),
    ("ij,ij->ij", (2, 3), (2, 3)), ("ij,kl->ki", (2, 3), (4, 5)), ("aij,jk,kl->ail", (2, 3, 4), (4, 2), (2, 3)),
    ("iij,jk->ik", (3, 3, 2), (2, 4)), ("ij,jk->ik", (2, 0), (0, 3)),
):  # fmt: skip
    row("einsum", lambda m, *xs, equation=_equation: m.einsum(equation, *xs), *_shapes)

# ------------------------------------------------------------------------------------------------- softmax, norms, loss

for _name in ("softmax", "log_softmax"):
    for _dim in (0, 1, -1):
        same(_name, (2, 3, 4), dim=_dim)
    same(_name, (3, 1), dim=1)
    same(_name, (), dim=0)
    same(_name, Fixed([[1e4, 0.0, -1e4], [1.0, -INF, 2.0]]), dim=1)
for _name, _parameters in (("layer_norm", ((5,), (5,))), ("layer_norm", ((5,), None)), ("layer_norm", (None, None))):
    row(_name, lambda m, x, w, b: m.nn.functional.layer_norm(x, (5,), w, b), (2, 3, 5), *_parameters)
row("layer_norm", lambda m, x, w, b: m.nn.functional.layer_norm(x, (3, 5), w, b, eps=0.1), (2, 3, 5), (3, 5), (3, 5))
row("layer_norm", lambda m, x: m.nn.functional.layer_norm(x, (5,)), Fixed([[2.0] * 5, [1e4, 0.0, 0.0, 0.0, 1.0]]))
for _weight in ((5,), None):
    for _eps in (None, 1e-2):
        row("rms_norm", lambda m, x, w, eps=_eps: m.nn.functional.rms_norm(x, (5,), w, eps), (2, 3, 5), _weight)
row("rms_norm", lambda m, x, w: m.nn.functional.rms_norm(x, (3, 5), w, 1e-5), (2, 3, 5), (3, 5))

for _reduction in ("mean", "sum", "none"):
    for _params in ({}, dict(label_smoothing=0.1), dict(ignore_index=2), dict(ignore_index=2, label_smoothing=1.0)):
        same("cross_entropy", (6, 5), Fixed([2, 0, 4, 4, 1, 2]), reduction=_reduction, **_params)
    for _logits, _target in (((5,), ()), ((2, 5, 3), (2, 3)), ((2, 5, 3, 4), (2, 3, 4))):
        same("cross_entropy", _logits, integers(_target, 5), reduction=_reduction)
        same("cross_entropy", _logits, integers(_target, 5), reduction=_reduction, ignore_index=1, label_smoothing=0.3)
row("cross_entropy", lambda m, x, t: m.nn.functional.cross_entropy(x.detach(), t), (2, 5), Fixed([-100, -100]))  # NaN
same("cross_entropy", (3, 5), Fixed([-100, -100, -100]), reduction="sum")


def weighted(name, *inputs, **params):
    """A loss whose third argument is weights, with respect to which PyTorch has no gradient."""
    row(name, lambda m, x, t, w: getattr(m.nn.functional, name)(x, t, w.detach(), **params), *inputs)


for _reduction in ("none", "sum", "mean"):
    same("mse_loss", apart((3, 4)), (3, 4), reduction=_reduction)
    for _params in ({}, {"ignore_index": 1}):
        weighted("nll_loss", (6, 5), Fixed([2, 1, 4, 4, 1, 2]), positive((5,)), reduction=_reduction, **_params)
        weighted("cross_entropy", (6, 5), Fixed([2, 1, 4, 4, 1, 2]), positive((5,)), reduction=_reduction, **_params)
    for _params in ({}, {"label_smoothing": 0.2}):
        for _target in (integers((2, 3), 5), uniform((2, 5, 3), 0, 1)):
            weighted("cross_entropy", (2, 5, 3), _target, positive((5,)), reduction=_reduction, **_params)
    same("binary_cross_entropy_with_logits", (3, 4), uniform((3, 4), 0, 1), reduction=_reduction)
    weighted("binary_cross_entropy_with_logits", (3, 4), uniform((3, 4), 0, 1), positive((4,)), reduction=_reduction)
row(
    "binary_cross_entropy_with_logits",
    lambda m, x, t, w: m.nn.functional.binary_cross_entropy_with_logits(x, t.detach(), pos_weight=w.detach()),
    Fixed([[0.0, -60.0, 60.0], [1e4, -1e4, 0.5]]), Fixed([[0.3, 0.0, 1.0], [0.0, 1.0, 0.7]]), positive((3,)),
)  # fmt: skip
same("cross_entropy", Fixed([[1e4, 0.0, -1e4], [3.0, -INF, 2.0]]), Fixed([2, 0]))
same("dropout", (3, 4), p=0.0)
same("dropout", (3, 4), p=1.0)
same("dropout", (3, 4), p=0.5, training=False)

# ------------------------------------------------------------------------------------------------------------ attention

_QKV = ((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 6))  # (B, nh, T, d), (B, nh, S, d), (B, nh, S, d_v)
for _params in ({}, dict(is_causal=True), dict(scale=0.3), dict(is_causal=True, scale=2.0)):
    same("scaled_dot_product_attention", *_QKV, **_params)
    same("scaled_dot_product_attention", (4, 3), (4, 3), (4, 3), **_params)
_NOTHING_SEEN = Fixed([[True, False, True, True, False], [False] * 5, [True] * 5])
for _mask in (booleans((3, 5)), (3, 5), booleans((2, 1, 1, 5)), (2, 2, 3, 5), _NOTHING_SEEN):
    same("scaled_dot_product_attention", *_QKV, _mask)


def _split_heads(m, x, *heads):
    parts = x.reshape(*x.shape[:2], sum(heads), -1).transpose(1, 2).split(heads, 1)
    return parts if len(heads) > 1 else parts[0]


for _heads in ((2,), (2, 1, 1)):
    pair(
        "split_heads",
        lambda m, x, h=_heads: m.nn.functional.split_heads(x, *h),
        lambda m, x, h=_heads: _split_heads(m, x, *h),
        (2, 3, 8),
    )
pair(
    "merge_heads", lambda m, x: m.nn.functional.merge_heads(x), lambda m, x: x.transpose(1, 2).flatten(2), (2, 3, 4, 5)
)


def _attention_pattern(m, scores, mask, is_causal=False):
    """In torch's words. Its softmax makes NaN of a row that sees nothing, so those rows are set apart."""
    if is_causal:
        mask = m.ones(scores.shape[-2:], dtype=m.bool).tril()
    if mask is not None and mask.dtype == m.bool:
        return scores.masked_fill(~mask, -INF).softmax(-1).masked_fill(~mask.any(-1, keepdim=True), 0.0)
    return (scores if mask is None else scores + mask).softmax(-1)


for _mask in (None, booleans((4,)), (3, 4)):
    pair("attention_pattern", lambda m, s, mask: m.nn.functional.attention_pattern(s, mask), _attention_pattern,
         (2, 3, 4), _mask)  # fmt: skip
pair(
    "attention_pattern",
    lambda m, s: m.nn.functional.attention_pattern(s * 2, is_causal=True),
    lambda m, s: _attention_pattern(m, s * 2, None, True),
    (2, 3, 4),
)
pair(
    "attention_pattern",
    lambda m, s: m.nn.functional.attention_pattern(s, scale=0.3),
    lambda m, s: _attention_pattern(m, 0.3 * s, None),
    apart((2, 3, 4)),
)
