"""How `minigrad train` trains a character model: the model's form, initial weights, optimizers and learning rates.

There are two recipes. Muon's is the default: rotary positions, untied embeddings, Muon for the matrices within blocks
and AdamW for the rest, and a learning rate that is constant, then falls linearly. nanoGPT's has learned positions, tied
embeddings, AdamW for everything, and half a cosine.
"""

from typing import Any

from .. import nn
from ..nn import init
from ..nn.gpt.model import GPT
from ..optim import AdamW, Muon, warmup_cosine, warmup_linear
from ..optim.optimizer import Optimizer, Optimizers

FORM: dict[str, Any] = {"positions": "rotary", "tied": False}
EMBEDDED, UNEMBEDDED = 0.7, 0.001  # std of the initial weights of both embeddings
OTHERS = 0.3  # of the learning rate, for norms and the unembedding
FALL = 0.6  # the final share of the steps, in which the rate falls
ENOUGH = 10**6  # characters: a longer text changes nothing
DROPOUT = (500_000, 0.0), (50_000, 0.2), (0, 0.4)  # (least number of characters, share)
MOMENTUM = 0.85, 0.95, 150  # Muon's at the first step, later, and the number of steps until then


def suited(characters: int, steps: int) -> dict[str, Any]:
    """Settings for a text of this length; `steps` suit one of ENOUGH characters. A shorter one needs fewer
    steps, and dropout, or it is memorised. A very short one gets shorter blocks."""
    share = min(1.0, characters / ENOUGH)
    steps = max(1, 10 * round(steps * share**0.4 / 10))
    dropout = next(dropout for least, dropout in DROPOUT if characters >= least)
    block_size = 2 ** min(7, max(0, (characters // 20).bit_length() - 1))
    return dict(steps=steps, eval_every=max(1, steps // 11), dropout=dropout, block_size=block_size)


def model(settings: dict[str, Any], vocab_size: int) -> GPT:
    """A GPT with the SETTINGS of runner.py, initialised."""
    sizes = {name: settings[name] for name in ("block_size", "n_layer", "n_head", "n_embd", "dropout")}
    if not settings["muon"]:
        return nn.GPT(nn.GPTConfig(vocab_size, bias=False, **sizes))
    gpt = nn.GPT(nn.GPTConfig(vocab_size, bias=False, **FORM, **sizes))
    first = dict(gpt.named_parameters())
    init.normal_(first["wte.weight"], std=EMBEDDED)
    init.normal_(first["lm_head.weight"], std=UNEMBEDDED)
    return gpt


def optimizer(gpt: GPT, settings: dict[str, Any]) -> Optimizer | Optimizers:
    """Its optimizer. The rates of its groups are shares of the learning rate."""
    weight_decay = settings["weight_decay"]
    if not settings["muon"]:
        return AdamW(gpt.parameter_groups(weight_decay), lr=1.0, betas=(0.9, 0.99))
    inside, rest = gpt.muon_groups(weight_decay)
    ends, norms = rest
    *embeddings, unembedding = ends["params"]
    ends = {"betas": (0.5, 0.95), "weight_decay": weight_decay}
    groups = [{"params": embeddings, "lr": 1.0, **ends}, {"params": [unembedding], **ends}, norms]
    return Optimizers(Muon(inside, lr=1.0), AdamW(groups, lr=OTHERS, betas=(0.9, 0.99), eps=1e-10))


def rate(step: int, settings: dict[str, Any]) -> float:
    """The learning rate of step 0, 1, …"""
    schedule = {name: settings[name] for name in ("lr", "min_lr", "warmup")}
    if settings["muon"]:
        return warmup_linear(step, total=settings["steps"], fall=FALL, **schedule)
    return warmup_cosine(step, total=settings["steps"], **schedule)


def set_rates(optimizer: Optimizer | Optimizers, shares: list[float], step: int, lr: float) -> None:
    """Set what changes from step to step: each group's share of the learning rate, and Muon's momentum."""
    first, last, steps = MOMENTUM
    for group, share in zip(optimizer.param_groups, shares):
        group["lr"] = lr * share
        if "momentum" in group:
            group["momentum"] = first + (last - first) * min(1, step / steps)
