"""How `minigrad train` trains a character model: settings and presets, the model, its optimizer, learning rates.

There are two recipes. The default has rotary positions, untied embeddings, Muon for the matrices within blocks and
AdamW for the rest, and a learning rate that is constant and then falls along a line. nanoGPT's recipe (muon 0) has
learned positions, tied embeddings, AdamW for everything, and a rate that falls along half a cosine.
"""

from typing import Any

from .. import nn
from ..nn import init
from ..nn.gpt.config import SIZES
from ..nn.gpt.model import GPT
from ..optim import AdamW, Muon, warmup_cosine, warmup_linear
from ..optim.optimizer import Optimizer, Optimizers

# The defaults had the lowest validation loss of about ten settings that train for two minutes on two cores.
SETTINGS = {  # {name: (default, meaning, limits)}. A checkpoint stores their values, and a resumed run reads them.
    "n_layer": (3, "transformer blocks", dict(at_least=1)),
    "n_head": (4, "attention heads per block", dict(at_least=1)),
    "n_embd": (96, "numbers per character, a multiple of n_head", dict(at_least=1)),
    "block_size": (128, "characters the model sees at once", dict(at_least=1)),
    "batch_size": (16, "blocks per step", dict(at_least=1)),
    "dropout": (0.0, "share of the activations dropped in training", dict(at_least=0, below=1)),
    "steps": (2200, "steps in all, those of a resumed run included", dict(at_least=1)),
    "muon": (1, "1: Muon trains the matrices within blocks; 0: nanoGPT's recipe, lr .004", dict(at_least=0, at_most=1)),
    "lr": (0.02, "learning rate after warmup", dict(at_least=0)),
    "min_lr": (0.001, "learning rate at the end", dict(at_least=0)),
    "warmup": (10, "steps of linear warmup", dict(at_least=0)),
    "weight_decay": (0.0, "weight decay, on matrices only", dict(at_least=0)),
    "clip": (0.0, "largest norm of the gradient; 0: no clipping", dict(at_least=0)),
    "eval_every": (200, "steps between validations, each of which saves the run", dict(at_least=1)),
    "eval_batches": (200, "batches per validation, spread evenly over the split; 0: all of it", dict(at_least=0)),
    "keep": (0, "checkpoints to keep: of the start, of the last step, and between them", dict(at_least=0)),
    "keep_doubling": (0, "1: the steps of kept checkpoints double; 0: they are even", dict(at_least=0, at_most=1)),
    "seed": (1337, "of initial weights, batches, dropout and samples", dict(at_least=0, below=2**32)),
}
DEFAULTS: dict[str, Any] = {name: row[0] for name, row in SETTINGS.items()} | {"text": []}
SHAPE = "block_size", "n_layer", "n_head", "n_embd"
ADAMW: dict[str, Any] = dict(lr=4e-3, min_lr=1e-4, warmup=100, weight_decay=0.1, clip=1.0)  # defaults without Muon
NANOGPT = ADAMW | dict(muon=0, lr=1e-3, eval_every=250, eval_batches=0)
FAST = dict(n_layer=2, n_head=4, n_embd=96, block_size=64, batch_size=16, steps=280, lr=0.04, min_lr=0.002)
PRESETS = {  # nanogpt-*: nanoGPT's own settings, from its README and config/train_shakespeare_char.py
    "fast": FAST | dict(eval_every=140),
    "nanogpt-cpu": NANOGPT | dict(batch_size=12, dropout=0.0, steps=2000),
    "nanogpt-gpu": NANOGPT | dict(batch_size=64, dropout=0.2, steps=5000),
}
for _name in "nanogpt-cpu", "nanogpt-gpu":
    PRESETS[_name] |= {size: SIZES[_name][size] for size in SHAPE}

ROTARY: dict[str, Any] = {"positions": "rotary", "tied": False}
EMBEDDING_STD, UNEMBEDDING_STD = 0.7, 0.001  # std of the initial weights of both embeddings
REST_RATE = 0.3  # the learning rate of norms and the unembedding, as a share of lr
DECAY_SHARE = 0.6  # the share of the steps, at the end, in which the rate falls
FULL_TEXT = 10**6  # characters from which on a longer text changes no setting
DROPOUT = (500_000, 0.0), (50_000, 0.2), (0, 0.4)  # (least number of characters, dropout)
MOMENTUM = 0.85, 0.95, 150  # Muon's momentum at the first step and later, and the steps in between


def settings_for_length(characters: int) -> dict[str, Any]:
    """Return settings that suit a text of this length. Of a short text, the model would memorise parts: below FULL_TEXT
    there are fewer steps, below the lengths in DROPOUT more dropout, and below 2,560 characters shorter blocks."""
    share = min(1.0, characters / FULL_TEXT)
    steps = max(1, 10 * round(DEFAULTS["steps"] * share**0.4 / 10))
    dropout = next(dropout for least, dropout in DROPOUT if characters >= least)
    block_size = 2 ** min(7, max(0, (characters // 20).bit_length() - 1))
    return dict(steps=steps, eval_every=max(1, steps // 11), dropout=dropout, block_size=block_size)


def steps_to_keep(settings: dict[str, Any]) -> set[int]:
    """Return the steps whose checkpoints are kept: at most `keep`, from 0 to the last, evenly or doubling."""
    count, last = settings["keep"], settings["steps"]
    if count < 2:
        return {last} if count else set()
    if settings["keep_doubling"]:
        return {0} | {-(-last // 2**i) for i in range(count - 1)}
    return {round(last * i / (count - 1)) for i in range(count)}


def model(settings: dict[str, Any], vocab_size: int) -> GPT:
    """Return a GPT with these settings and new weights. Raises ValueError for sizes that do not fit together."""
    sizes = {name: settings[name] for name in (*SHAPE, "dropout")}
    if not settings["muon"]:
        return nn.GPT(nn.GPTConfig(vocab_size, bias=False, **sizes))
    gpt = nn.GPT(nn.GPTConfig(vocab_size, bias=False, **ROTARY, **sizes))
    first = dict(gpt.named_parameters())
    init.normal_(first["wte.weight"], std=EMBEDDING_STD)
    init.normal_(first["lm_head.weight"], std=UNEMBEDDING_STD)
    return gpt


def optimizer(gpt: GPT, settings: dict[str, Any]) -> Optimizer | Optimizers:
    """Return the GPT's optimizer. The 'lr' of its groups are shares of the learning rate: see set_rates."""
    weight_decay = settings["weight_decay"]
    if not settings["muon"]:
        return AdamW(gpt.parameter_groups(weight_decay), lr=1.0, betas=(0.9, 0.99))
    inside, rest = gpt.muon_groups(weight_decay)
    ends, norms = rest
    *embeddings, unembedding = ends["params"]
    ends = {"betas": (0.5, 0.95), "weight_decay": weight_decay}
    groups = [{"params": embeddings, "lr": 1.0, **ends}, {"params": [unembedding], **ends}, norms]
    return Optimizers(Muon(inside, lr=1.0), AdamW(groups, lr=REST_RATE, betas=(0.9, 0.99), eps=1e-10))


def rate(step: int, settings: dict[str, Any]) -> float:
    """Return the learning rate of a step, counted from 0."""
    schedule = {name: settings[name] for name in ("lr", "min_lr", "warmup")}
    if settings["muon"]:
        return warmup_linear(step, total=settings["steps"], fall=DECAY_SHARE, **schedule)
    return warmup_cosine(step, total=settings["steps"], **schedule)


def set_rates(optimizer: Optimizer | Optimizers, shares: list[float], step: int, lr: float) -> None:
    """Set each group's learning rate, its share of lr, and Muon's momentum for a step."""
    first, last, steps = MOMENTUM
    for group, share in zip(optimizer.param_groups, shares):
        group["lr"] = lr * share
        if "momentum" in group:
            group["momentum"] = first + (last - first) * min(1, step / steps)
