"""Every method of Tensor and every function of mg and F gives in a captured step what it gives outside of one.

On inputs of many kinds; each result is changed in place afterwards, which shows whose memory it has."""

import contextlib
import inspect
import re

import numpy as np
import pytest

import minigrad as mg
from minigrad.nn import functional as F
from minigrad.ops import public

from .steps import supported

pytestmark = supported

CALLS = """
x.abs() x.neg() x.exp() x.log() x.log1p() x.sqrt() x.rsqrt() x.sin() x.cos() x.erf() x.erfc() x.tanh() x.sigmoid()
x.relu() x.sign() x.floor() x.square() x.reciprocal() x.isnan() x.isinf() x.isfinite() x.logical_not() x.all() x.any()
x.add(x) x.add(2) x.sub(x) x.sub(1.5) x.mul(2) x.div(x) x.div(2) x.pow(2) x.pow(x) x.floor_divide(2) x.remainder(x)
x.maximum(x*0) x.minimum(0) x.clamp(0,1) x.eq(x) x.ne(0) x.lt(x*2) x.le(0.5) x.gt(1) x.ge(x) x.logical_and(x>0)
x.logical_or(x) x.equal(x) x.allclose(x*1) x.where(x>0,x*2) mg.where(x>0,x,0) x.masked_fill(x>0,3) x.sum() x.sum(0)
x.sum(-1,keepdim=True) x.mean() x.mean(0) x.var(0) x.std(-1) x.norm() x.norm(dim=0) x.amax(0) x.amin(-1) x.max()
x.max(0) x.min(-1) x.argmax() x.argmax(0) x.argmin(-1,True) x.logsumexp(0) x.logsumexp(-1,True)
x.cumsum(0) x.cumsum(-1) x.sort() x.sort(0,True) x.argsort(0) x.topk(0) x.topk(1,0) x.softmax(-1)
x.softmax(0) x.log_softmax(-1) F.softmax(x,0) F.log_softmax(x,-1) x.reshape(-1) x.reshape(x.shape) x.reshape(1,-1,1)
x.view(-1) x.view(x.shape) x.view(*x.shape,1) x.flatten() x.flatten(0,-1) x.squeeze() x.squeeze(0) x.unsqueeze(0)
x.unsqueeze(-1) x.transpose(0,-1) x.t() x.T x.mT x.permute(-1,0) x.permute(tuple(range(x.ndim))) x.expand(x.shape)
x.expand(2,*x.shape) x.flip(()) x.flip(0) x.flip((0,-1)) x.alias() x.clone() x.contiguous() x.detach() x.data
x.to(x.dtype) x.to(mg.float64) x.double() x.float() x.long() x.int() x.bool() x.pin_memory() x.split(1)
x.split([0,1],-1) x.split([0,x.numel()]) x.chunk(2) x.chunk(1,-1) x.unbind() x.unbind(-1) mg.cat([x]) mg.cat([x,x],-1)
mg.stack([x]) mg.stack([x,x],-1) x.repeat([1]*x.ndim) x.repeat(1,1,1) x.repeat(2,*[1]*x.ndim) x.repeat_interleave(1)
x.repeat_interleave(1,0) x.repeat_interleave(2,-1) x.roll(0) x.roll(1,0) x.roll((),()) x.pad(()) x.pad((0,0))
x.pad((1,2),value=3) x.tril() x.triu(1) x.diagonal() x.narrow(0,0,0) x.narrow(-1,0,1) x[0] x[...] x[0:0] x[:1] x[None]
x[...,None,:1] x[::-1] x[[0]] x[[]] x[x>0] x[:] x.nonzero() x.index_select(0,mg.tensor([0])) x.gather(-1,(x*0).long())
x.scatter(-1,(x*0).long(),x) x.scatter_add(0,(x*0).long(),x) x.matmul(x) x.matmul(x.mT) x.bmm(x)
x[None].bmm(x[None].mT) x.outer(x) x.reshape(-1).outer(x.reshape(-1)) mg.einsum("ij,ij->j",x,x)
mg.einsum("...i->...",x) mg.multinomial(x.abs().reshape(-1)+1,1) x.add_(1) x.sub_(x) x.mul_(2) x.div_(2) x.copy_(x*2)
x.copy_(x) x.fill_(3) x.zero_() x.clamp_(0,1) x.normal_() x.masked_fill_(x>0,0) x.uniform_() x.constant([1,2])
x.constant(np.zeros((0,2))) x.zeros_like() x.requires_grad_(False) F.relu(x) F.sigmoid(x) F.tanh(x) F.gelu(x)
F.silu(x) F.elu(x) F.leaky_relu(x) F.softplus(x) F.dropout(x,0.0) F.pad(x,()) F.dropout(x,1.0) F.dropout(x,0.5)
F.dropout(x,0.5,False) F.layer_norm(x,x.shape[-1:]) F.rms_norm(x,x.shape[-1:]) F.linear(x,x) F.linear(x,x,x[...,0])
F.mse_loss(x,x*2) F.mse_loss(x,x,reduction="none") F.cross_entropy(x.pad((0,1)),(x.sum(-1)*0).long())
F.cross_entropy(x,x,reduction="none") F.nll_loss(x.pad((0,1)),(x.sum(-1)*0).long())
F.binary_cross_entropy_with_logits(x,x) F.one_hot((x*0).long()) F.one_hot(x.long()*0,3) F.embedding((x*0).long(),x)
F.split_heads(x[None],1) F.merge_heads(x[None,None]) F.attention_pattern(x[None],x[None])
F.scaled_dot_product_attention(x[None],x[None],x[None]) F.scaled_dot_product_attention(x,x,x,is_causal=True)
mg.tensor(1.5) mg.tensor([]) mg.as_tensor([1]) mg.from_numpy(np.ones(2)) mg.zeros(2,0)
mg.ones(()) mg.full((2,),x.ndim) mg.eye(2) mg.arange(3) mg.linspace(0,1,3) mg.rand(2) mg.randn(()) mg.randint(3,(2,))
mg.randperm(3) mg.zeros_like(x) mg.ones_like(x) mg.full_like(x,2) mg.randn_like(x) mg.empty(0) x.tolist() x.numpy()
x.sum().item() x.numel() x.dim() x.size() x.size(-1) x.stride() x.is_contiguous() x.shape x.ndim x.dtype x.device
x.is_leaf x.requires_grad x.grad x.is_floating_point()
x.absolute() x.clip(0,1) x.round() x.prod() x.prod(0) x.prod(-1,keepdim=True) x.max(x*0) x.mm(x) x.mm(x.mT)
mg.concat([x]) x.type_as(x) x.expand_as(x) x.sqrt_() x.addcmul_(x,x) x.addcdiv_(x,x+9,value=2) x.lerp_(x*2,0.5)
F.l1_loss(x,x*2) F.smooth_l1_loss(x,x*2) F.kl_div(x,x) x.ceil() x.trunc() x.log2() x.log10() x.lerp(x*2,0.5)
x.addcmul(x,x) x.addcdiv(x,x+9,value=2) x.cumprod(0) x.cumprod(-1) x.index_add(0,mg.tensor([0]),x[:1],alpha=2)
x.index_fill(-1,mg.tensor([0]),3) x.new_zeros(2) x.new_ones((2,)) x.new_full((2,),3) x.new_empty(0)
x.new_tensor([1,2]) mg.meshgrid(x.reshape(-1),x.reshape(-1)) x.type(mg.float64) x.nelement() x.is_sparse x.is_cuda
x.is_complex() mg.empty_like(x[:0]) mg.rand_like(x) mg.randint_like(x,3) mg.FloatTensor([1,2]) mg.DoubleTensor([1])
mg.LongTensor([1]) mg.IntTensor([1]) mg.ByteTensor([1]) mg.BoolTensor([1])
x.bitwise_and(x) x.bitwise_or(1) x.bitwise_xor(x) x.bitwise_not()
x.div(x,rounding_mode="trunc") x.sum(0,dtype=mg.float64)
x.mv(x[0]) x.reshape(-1).dot(x.reshape(-1)) x.new([1,2]) x.ndimension() mg.searchsorted(x.reshape(-1),x)
""".split()  # noqa: SIM905
TWINS = [name for name, f in vars(public).items() if hasattr(f, "also_in_place") and hasattr(mg.Tensor, name)]
CALLS += [call.replace(name, f"{name}_", 1) for name in TWINS for call in CALLS if call.startswith(f"x.{name}(")]
UNTRIED = {"backward", "grad_fn", "register_hook", "retain_grad", "array", "storage", "node", "cpu", "cuda"}
UNTRIED |= {"op", "half", "HalfTensor"}  # a step on a CPU takes no float16
KINDS = {  # what x is: the dtype and shape of an array, and a view of it
    "matrix": ("f", (2, 3), lambda t: t),
    "strided": ("f", (4, 6), lambda t: t[::2, 1::2]),
    "transposed": ("f", (3, 2), lambda t: t.T),
    "expanded": ("f", (1, 3), lambda t: t.expand(2, 3)),
    "row": ("d", (1, 3), lambda t: t),
    "reversed": ("f", (3,), lambda t: t[::-1]),
    "one": ("f", (1, 1), lambda t: t),
    "scalar": ("f", (), lambda t: t),
    "element": ("d", (3,), lambda t: t[1]),
    "empty": ("f", (0, 3), lambda t: t),
    "empty view": ("f", (2, 3), lambda t: t[:, 1:1]),
    "ints": ("l", (1, 3), lambda t: t),
    "bools": ("?", (2, 2), lambda t: t.T),
}
ORIGINS = "argument", "weight", "global", "view of a global", "within"


def parts(result):
    """The parts of a result: Tensors, and anything else as a string."""
    each = result if isinstance(result, tuple) else [result]
    return [y if isinstance(y, mg.Tensor) else repr(y) for y in each]


def outcomes(run, call, kind, origin, calls):
    """For each call: its results, gradients, its argument afterwards, and its error."""
    char, shape, view = KINDS[kind]
    values = np.array(np.arange(np.prod(shape, dtype=int)).reshape(shape) % 4 - 0.5, char)
    t = mg.tensor(values)
    t.requires_grad_(origin == "weight" and char in "fd")
    outside = view(t) if origin == "view of a global" else t
    code = compile(call, call, "eval")

    def step(given=outside):
        with mg.inference_mode() if call[-3:] == "_()" else contextlib.nullcontext():
            x = given if origin == "view of a global" else view(given * 1 if origin == "within" else given)
            ys = parts(eval(code, {"x": x, "mg": mg, "F": F, "np": np}))
        found = [y if type(y) is str else (y.detach().clone(), y.shape, y.dtype, y.is_contiguous()) for y in ys]
        grads = [y for y in ys if type(y) is not str and y.requires_grad]
        if grads:
            sum(((y * y).sum() for y in grads), 0.0).backward()
        for y in ys:
            with mg.no_grad(), contextlib.suppress(mg.GraphError):  # read-only
                found.append(type(y) is str or y.fill_(7) * 1)
        return found, t.grad

    step = run(step)
    for _ in range(calls):
        mg.manual_seed(1)
        t.grad = None
        t.detach().copy_(mg.tensor(values))
        try:
            yield [step(outside) if origin == "argument" else step(), t]
        except Exception as error:
            yield [f"{type(error).__name__}: {error}", t]


def plain(x):
    """Nested results, in which each Tensor is replaced by its shape, dtype and values."""
    if isinstance(x, mg.Tensor):
        return x.shape, str(x.dtype), np.nan_to_num(x.detach().numpy().astype("d"), nan=1e300).tolist()
    return [plain(each) for each in x] if isinstance(x, (list, tuple)) else x


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_a_function_is_captured_as_it_is(kind, kernels, thorough):
    for i, call in enumerate(CALLS):
        for origin in ORIGINS if thorough else [ORIGINS[i % len(ORIGINS)]]:
            (expected,) = map(plain, outcomes(lambda f: f, call, kind, origin, 1))
            for found in map(plain, outcomes(mg.capture, call, kind, origin, 2)):
                assert found == expected, f"{call} of {kind}, {origin}"


def test_every_function_is_tried():
    named = UNTRIED.union(re.findall(r"\.(\w+)", " ".join(CALLS)))
    offered = {name for name in dir(mg.Tensor) if hasattr(mg.Tensor, name)}
    offered |= {name for module in (mg, F) for name, f in vars(module).items() if inspect.isfunction(f)
               and f.__module__.startswith(("minigrad.nn", "minigrad.ops", "minigrad.tensor"))}  # fmt: skip
    assert {name for name in offered if not name.startswith("_")} <= named
