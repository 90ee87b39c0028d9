"""Names of PyTorch's that minigrad does not have, each with what to use in its place.

A module that people from PyTorch look into ends with `__getattr__ = explaining(__name__)`. So nn.Conv2d is an
AttributeError that says more than that it is not there.
"""

import re
import sys
from collections.abc import Callable
from typing import Any

_LOSSES = "write it with ops; F has {mse, l1, smooth_l1, huber, nll}_loss, cross_entropy, kl_div, binary_cross_entropy"
_NORMS = "use LayerNorm or RMSNorm, which need no statistics over a batch"
_POOLING = "there is no pooling: reshape, then mean() or amax() over the dims of a window"
_OPTIMIZERS = "there are SGD, Adam and AdamW; another is a subclass of optim.Optimizer that gives its formula"
_IMAGES = "there is nothing for images"

_MISSING = {  # {module: {pattern of a name: what to use}}; the first that matches the whole name counts
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
        r"\w+_loss": _LOSSES,
    },
    "nn.init": {
        r"dirac_|sparse_": "fill it under mg.no_grad()",
        r"\w+[^_]": "the functions that fill a tensor end with _",
    },
    "nn.utils": {
        r"rnn": "there are no recurrent layers",
        r"parametrizations|parametrize|weight_norm|spectral_norm": "compute the weight in forward",
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
        r"get_worker_info": "batches are made in the process that asks for them",
    },
    "autograd": {
        r"Variable": "a Tensor with requires_grad=True is one",
        r"functional|forward_ad": "use mg.grad, with create_graph=True for second derivatives",
        r"profiler": "use python -m cProfile",
        r"set_detect_anomaly": "use mg.detect_anomaly(), a context manager and decorator",
        r"gradgradcheck": "use gradcheck(…, order=2)",
        r"set_grad_enabled|inference_mode": "it is mg's",
    },
}  # fmt: skip


def explaining(module: str) -> Callable[[str], Any]:
    """A __getattr__ for the module of that name: it raises AttributeError, which tells what to use instead of PyTorch's
    name, where there is something to tell."""
    home = module.removeprefix("minigrad.")

    def missing(name: str) -> Any:
        for pattern, instead in _MISSING[home].items():
            if re.fullmatch(pattern, name):
                raise AttributeError(f"minigrad has no {home}.{name}: {instead}")
        raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name, obj=sys.modules[module])

    return missing
