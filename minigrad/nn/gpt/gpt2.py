"""GPT-2's weights, as Hugging Face names and lays them out, in the names and shapes of nn.GPT."""

import re

from ...dtypes import plain
from ...tensor import Tensor
from .config import GPTConfig

_LAYER = re.compile(r"blocks\.([0-9]{1,9})\.")
_CAUSAL_MASK = re.compile(r"blocks\.\d+\.attn\.(masked_)?bias")
_TRANSPOSED = "attn.c_attn.weight", "c_proj.weight", "mlp.c_fc.weight"  # their Conv1D holds (in, out)
_NAMES = {
    "ln_1": "norm1", "ln_2": "norm2", "ln_f": "norm", "attn.c_attn.": "attn.in_proj_", "attn.c_proj": "attn.out_proj",
    "mlp.c_fc": "mlp.fc", "mlp.c_proj": "mlp.proj",
}  # fmt: skip


def translate_gpt2(state, n_head=None, **changes):
    """Return (GPTConfig, {our path: Tensor or array}) of GPT-2's weights: see GPT.from_state_dict."""
    own = {}
    for name, x in state.items():
        ours = _rename(name.removeprefix("transformer."))
        if not _CAUSAL_MASK.fullmatch(ours):
            if ours in own:
                raise ValueError(f"two tensors are {ours}, one of them {name}")
            own[ours] = _convert(name, x)
    wte, wpe, head = (own.get(f"{name}.weight") for name in ("wte", "wpe", "lm_head"))
    layers = {int(found[1]) for found in map(_LAYER.match, own) if found}
    if wte is None or wpe is None or not wte.ndim == wpe.ndim == 2 or 0 not in layers:
        raise ValueError(f"these are not GPT-2's weights: {', '.join(list(state)[:5])}, …")
    tied = head is None or (head.shape == wte.shape and bool((head == wte).all()))
    if tied:
        own.pop("lm_head.weight", None)
    (V, C), block_size = wte.shape, wpe.shape[0]
    sizes = dict(vocab_size=V, block_size=block_size, n_layer=len(layers), n_head=n_head or max(1, C // 64))
    return GPTConfig(**sizes | dict(n_embd=C, bias=True, tied=tied, init_std=0.02) | changes), own


def _rename(name):
    """Return our name of a parameter for Hugging Face's name."""
    name = re.sub(r"^h\.", "blocks.", name)
    for theirs, ours in _NAMES.items():
        name = name.replace(theirs, ours)
    return name


def _convert(name, x):
    """Return one of Hugging Face's tensors as a Tensor or an array, without a copy, and matrices as (out, in)."""
    try:
        x = x.detach() if isinstance(x, Tensor) else plain("tensor", x)
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from None
    return x.T if name.endswith(_TRANSPOSED) and x.ndim == 2 else x
