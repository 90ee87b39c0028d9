"""Names and arguments of PyTorch's that minigrad does not have, each with what to use in its place.

A module that people from PyTorch look into ends with `__getattr__ = explaining(__name__)`. So nn.Conv2d is an
AttributeError that says more than that it is not there, and so is the ImportError of `from minigrad.nn import Conv2d`.
`__dir__ = listing(__name__)` has tab completion offer what a module is for, and not what it has imported for itself.
"""

import functools
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

_LOSSES = "write it with ops; F has {mse, l1, smooth_l1, huber, nll}_loss, cross_entropy, kl_div, binary_cross_entropy"
_NORMS = "use LayerNorm or RMSNorm, which need no statistics over a batch"
_POOLING = "there is no pooling: reshape, then mean() or amax() over the dims of a window"
_OPTIMIZERS = "there are SGD, Adam and AdamW; another is a subclass of optim.Optimizer that gives its formula"
_IMAGES = "there is nothing for images"

_MISSING = {  # {module: {pattern of a name: what to use}}; the first that matches the whole name counts
    "minigrad": {
        r"conv\w*|\w*_pool\w*|(un)?fold|interpolate|grid_sample|affine_grid|pixel_(un)?shuffle": (
            "minigrad has no convolutions and no pooling; patches of a picture are reshape and permute, then matmul"
        ),
        r"c(omplex\w*|float|double|half)|view_as_\w+|real|imag|conj\w*|angle|polar|is_complex": (
            "minigrad has no complex numbers; keep real and imaginary parts in tensors of their own"
        ),
        r"\w*sparse\w*": "minigrad has no sparse tensors; gather, index_add and scatter_add read and add by index",
        r"fft|i?stft|\w+_window": "minigrad has no Fourier transforms; a small one is a matmul with cos and sin",
        r"linalg|svd\w*|qr|eig\w*|cholesky\w*|p?inverse|(slog|log)?det|lu\w*|lstsq|\w*solve|matrix_\w+": (
            "minigrad has no decompositions of matrices; there are norm, trace, outer, matmul and einsum"
        ),
        r"bfloat16|float8\w*|u?int[0-9]+|q\w*int\w+|quantize\w*": (
            "minigrad's dtypes are float64, float32, float16, int64, int32, int16, int8, uint8 and bool"
        ),
        r"LongTensor": "use minigrad.tensor(data, dtype=minigrad.int64)",
        r"\w+Tensor": "tensors are made by minigrad.tensor(data, dtype=…), zeros, ones, randn, …",
        r"bitwise_\w+|__\w+shift__": "& | ^ ~ are for bools here: logical_and, logical_or, logical_xor, logical_not",
        r"compile|jit|fx|export": "minigrad.capture records a whole training step and replays it",
        r"func|vmap|autocast|amp": "minigrad has no transforms of functions and no mixed precision",
        r"[sg]et_default_\w+": "new tensors are float32 on the CPU; say dtype= and device= where they are made",
        r"[sg]et_num_threads": "set OMP_NUM_THREADS before the program starts",
        r"(arc|a)(sin|cos|tan)h": "logarithms make it: asinh x = ln(x + √(x² + 1)), acosh x = ln(x + √(x² - 1)), "
        "atanh x = (log1p(x) - log1p(-x)) / 2",
        r"cummax|cummin|kthvalue|mode|msort|aminmax|quantile": "sort, topk, amax, amin and median do this",
        r"nan(mean|sum|median|quantile)": "x.where(~x.isnan(), 0) leaves NaN out; (~x.isnan()).sum() counts",
        r"addr|addbmm|chain_matmul|vdot|kron|cdist": "matmul, outer, baddbmm and einsum do this",
        r"histc|histogram\w*|unique_consecutive": "bincount, bucketize and unique do this",
        r"scatter_reduce|index_reduce|index_put|put|masked_scatter": "scatter, scatter_add, where and x[i] = y do this",
        r"dropout|embedding|layer_norm|rms_norm|scaled_dot_product_attention": "it is in minigrad.nn.functional",
        r"pad|linear|[gsc]elu|elu|silu|mish|softplus|\w+_loss|\w+_entropy\w*": "it is in minigrad.nn.functional",
        r"arc(sin|cos|tan|tan2)": "it goes by its short name: asin, acos, atan, atan2",
        r"is_tensor": "use isinstance(x, minigrad.Tensor)",
        r"select|view|expand|repeat|view_as|expand_as|numel|is_floating_point": "it is a method of Tensor",
        r"lstm|gru|rnn_\w+": "minigrad has no recurrent layers; a loop over the positions with nn.Linear does this",
        r"[gs]et_rng_state": "read and set minigrad.default_generator.state, two ints",
        r"seed": "use manual_seed(n): a run that nobody can repeat has no use here",
        r"distributions": "rand, randn, normal, bernoulli, multinomial and randint draw; densities are a line of ops",
        r"special": "minigrad has erf, erfc, expm1, log1p, logit and logsumexp as functions of its own",
        r"backends|use_deterministic_algorithms|are_deterministic_algorithms_enabled": (
            "minigrad gives the same bits at every run, on the CPU and the GPU; there is nothing to switch on"
        ),
        r"set_printoptions": "Tensors are shown by NumPy: numpy.set_printoptions",
        r"testing": "use numpy.testing.assert_allclose(x.numpy(), …)",
        r"profiler": "use python -m cProfile",
        r"onnx|hub|package": "minigrad.save writes safetensors files, which other libraries read",
        r"multiprocessing|dist|futures": "see minigrad.distributed",
        r"(batch|group|instance)_norm": "minigrad has layer_norm and rms_norm, in minigrad.nn.functional",
    },
    "nn": {
        r"(Lazy)?Conv\w*|Fold|Unfold": "there are no convolutions; see nn.MultiheadAttention, or nn.Linear on patches",
        r"(RNN|LSTM|GRU)(Cell|Base)?": "there are no recurrent layers; see nn.MultiheadAttention and nn.GPT",
        r"\w*Pool\d?d?|\w*Unpool\dd": _POOLING,
        r"(Lazy|Sync)?(Batch|Instance|Group)Norm\w*|LocalResponseNorm": _NORMS,
        r"\w+Pad\dd": "use F.pad",
        r"Upsample\w*|Upsampling\w*|Pixel\w*|ChannelShuffle": _IMAGES,
        r"AlphaDropout|FeatureAlphaDropout|Dropout\dd": "use nn.Dropout",
        r"EmbeddingBag": "use nn.Embedding, then sum() or mean()",
        r"DataParallel|parallel": "see minigrad.distributed",
        r"Bilinear": "einsum('bi,oij,bj->bo', x, weight, y) does this",
        r"PairwiseDistance": "use (x - y).norm(dim=-1)",
        r"Lazy\w+": "say how many inputs it has: there are no layers that find out",
        r"Buffer": "use self.register_buffer(name, tensor)",
        r"Un(initialized)?(Parameter|Buffer)": "make the parameter with the shape that it will have",
        r"modules|parameter|common_types": "all classes are in minigrad.nn itself: nn.Linear, nn.Parameter",
        r"Threshold|RReLU|Softmax2d|AdaptiveLogSoftmaxWithLoss": "write it with ops: mg.where, rand_like, softmax",
        r"attention": "see F.scaled_dot_product_attention",
        r"quantized|qat|quantizable": "there is no quantization",
        r"\w+Loss": _LOSSES,
    },
    "nn.functional": {
        r"conv\w*|fold|unfold": "there are no convolutions; see scaled_dot_product_attention and linear",
        r"\w*pool\w*": _POOLING,
        r"(batch|instance|group|local_response)_norm": _NORMS,
        r"interpolate|upsample\w*|grid_sample|affine_grid|pixel_\w+": _IMAGES,
        r"alpha_dropout|feature_alpha_dropout|dropout\dd": "use dropout",
        r"multi_head_attention_forward": "use nn.MultiheadAttention or scaled_dot_product_attention",
        r"(\w*elu|hardtanh|threshold)_": "leave out the _: changes in place are not recorded",
        r"threshold": "use mg.where(x > threshold, x, value)",
        r"rrelu": "use leaky_relu; a random slope is mg.where(x > 0, x, x * slope)",
        r"gumbel_softmax": "add noise -mg.log(-mg.log(mg.rand_like(x))) to the logits, then softmax",
        r"pairwise_distance|pdist": "use (x - y).norm(dim=-1)",
        r"embedding_bag": "use embedding, then sum() or mean()",
        r"bilinear": "einsum('bi,oij,bj->bo', x, weight, y) does this",
        r"\w+_loss": _LOSSES,
    },
    "nn.init": {
        r"dirac_|sparse_": "fill it under mg.no_grad()",
        r"uniform|normal|constant|orthogonal|(xavier|kaiming)_(uniform|normal)": "the functions that fill end with _",
    },
    "nn.utils": {
        r"rnn": "there are no recurrent layers; pad_sequence is F.pad of each to one length, then mg.stack",
        r"parametrizations|parametrize|weight_norm|spectral_norm": "compute the weight in forward",
        r"get_total_norm": "clip_grad_norm_(parameters, float('inf')) returns it and changes nothing",
        r"clip_grads?_(norm|value|with_norm)_?": "it is clip_grad_norm_ or clip_grad_value_, with _ at the end",
        r"prune": "see MultiheadAttention.prune_heads and study.prune",
    },
    "optim": {
        r"RMSprop|Ada\w+|[NR]Adam|Rprop|ASGD|SparseAdam|Muon|LBFGS": _OPTIMIZERS,
        r"swa_utils": "average state_dict()s under mg.no_grad()",
    },
    "optim.lr_scheduler": {
        r"CyclicLR": "use OneCycleLR, or LambdaLR with a function of the step",
        r"MultiplicativeLR": "use ExponentialLR, or LambdaLR with a function of the step",
        r"ChainedScheduler": "call step() of several schedulers",
        r"_LRScheduler": "it is called LRScheduler",
    },
    "utils": {
        r"checkpoint": "use nn.recompute to save memory; mg.save and mg.load for files",
        r"tensorboard": "see minigrad.training.Table and viz.curves",
        r"cpp_extension": "CONTRIBUTING.md says how to write an op and a kernel",
        r"dlpack": "see mg.from_dlpack",
    },
    "utils.data": {
        r"distributed|DistributedSampler": "see minigrad.distributed, which shares out each batch",
        r"StackDataset": "use TensorDataset, or a Dataset whose __getitem__ returns a tuple",
        r"ChainDataset": "use an IterableDataset whose __iter__ is itertools.chain(…)",
        r"get_worker_info": "batches are made in the process that asks for them",
        r"dataloader|dataset|sampler|_utils": "all classes are in minigrad.utils.data itself",
    },
    "autograd": {
        r"Variable": "a Tensor with requires_grad=True is one",
        r"functional|forward_ad": "use mg.grad, with create_graph=True for second derivatives",
        r"profiler": "use python -m cProfile",
        r"set_detect_anomaly": "use mg.detect_anomaly(), a context manager and decorator",
        r"gradgradcheck": "use gradcheck(…, order=2)",
        r"set_grad_enabled|inference_mode": "it is mg's",
    },
    "cuda": {
        r"amp": "minigrad has no mixed precision: leave out autocast and GradScaler",
        r"(set|current|get)_device\w*|device": "minigrad uses one GPU, the one that is current in CuPy",
        r"empty_cache|\w*memory\w*": "the memory is CuPy's: cupy.get_default_memory_pool()",
        r"Event": "time a step with time.perf_counter(), after cuda.synchronize()",
        r"\w*[Ss]tream|graphs?|\w*CUDAGraph": "minigrad.capture records a step, which a GPU replays as one CUDA graph",
    },
    "distributed": {
        r"(init|destroy)_process_group|is_(initialized|available)|get_(rank|world_size|backend)|barrier|new_group": (
            "start the program with mpiexec, and see minigrad.distributed.world()"
        ),
        r"\w*(reduce|gather|broadcast|scatter)\w*|fsdp|\w*tensor|algorithms|optim": (
            "see minigrad.distributed.Shards, which sums gradients over the processes"
        ),
    },
}  # fmt: skip


_ARGUMENTS = {
    "add_bias_kv": "concatenate it to key and value",
    "add_zero_attn": "a query that sees no key gives zeros here",
    "is_grads_batched": "call grad for one of grad_outputs after the other",
    "max_norm": "scale the rows of weight under mg.no_grad()",
    "norm_type": "it belongs to max_norm",
    "only_inputs": "backward() adds to .grad of all leaves",
    "out_dtype": "convert the factors with .to(dtype)",
    "reduce": "say reduction='mean', 'sum' or 'none'; to add at an index there is scatter_add",
    "scale_grad_by_freq": "divide the rows of weight.grad by mg.bincount(input)",
    "size_average": "say reduction='mean', 'sum' or 'none'",
    "sparse": "gradients are dense",
    "weight": "multiply the losses of reduction='none' by it",
    "_weight": "there is Embedding.from_pretrained",
}


def refused_argument(name: str, word: str) -> TypeError | None:
    """The TypeError for an argument that `name` does not take, if it is one of PyTorch's."""
    why = _ARGUMENTS.get(word)
    return None if why is None else TypeError(f"{name}: minigrad has no {word}=; {why}")


def changes_nothing(name: str, word: str, value: Any) -> bool:
    """Whether `name`, which has no such argument, may leave it out: PyTorch has one, and at this value it asks for
    nothing. Raises the TypeError of `refused_argument` if it asks for something."""
    error = refused_argument(name, word)
    off = value is False and word not in ("size_average", "reduce")  # which ask for the sum, and for all losses
    if error and value is not None and not off and word != "norm_type":  # a max_norm beside it would be refused
        raise error
    return error is not None


def without_defaults(init: Callable[..., None]) -> Callable[..., None]:
    """The __init__ of a class of ours, given also PyTorch's arguments that ask for nothing, which are left out."""
    own = inspect.signature(init).parameters
    if any(p.kind is p.VAR_KEYWORD for p in own.values()):
        return init

    @functools.wraps(init)
    def leaving_out(self: Any, *args: Any, **given: Any) -> None:
        name = type(self).__name__
        left = {k: value for k, value in given.items() if k in own or not changes_nothing(name, k, value)}
        init(self, *args, **left)

    return leaving_out


def instead(name: str, module: str = "minigrad") -> str | None:
    """What to say to who asks a module for a name that only PyTorch has, or None for any other name."""
    table = _MISSING[module.removeprefix("minigrad.")]
    return next((why for pattern, why in table.items() if re.fullmatch(pattern, name)), None)


def explaining(module: str, later: Mapping[str, str | None] = MappingProxyType({})) -> Callable[[str], Any]:
    """A __getattr__ for the module of that name: it raises AttributeError, with what to use where there is something to
    say. later: {name: the module that has it}, None for a module below this one; imported when first asked for."""

    def missing(name: str) -> Any:
        if name == "__path__":  # `from … import` asks a module that has one, even if it is empty, for its names
            return []
        if name in later:
            found = importlib.import_module(later[name] or f".{name}", module)
            if later[name]:
                setattr(sys.modules[module], name, found := getattr(found, name))
            return found
        why, message = instead(name, module), f"module {module!r} has no attribute {name!r}"
        if why is not None:
            if sys._getframe(1).f_globals["__name__"] == "importlib._bootstrap":  # which drops AttributeErrors
                raise ImportError(f"cannot import name {name!r} from {module!r}: {why}")
            raise AttributeError(f"{message}: {why}")
        raise AttributeError(message, name=name, obj=sys.modules[module])  # Python may suggest a name like it

    return missing


def listing(module: str, *more: str) -> Callable[[], list[str]]:
    """A __dir__ for the module of that name: its `__all__`, these names, and what Python itself has put there."""

    def names() -> list[str]:
        home = vars(sys.modules[module])
        return sorted({*home["__all__"], *more, *(name for name in home if name.startswith("__"))})

    return names
