"""How `minigrad train` trains a character model: its form, its first weights, its optimizers and their rates.

There are two recipes. Muon's is the default: rotary positions, an unembedding of its own, embeddings that begin as
large as a norm makes them; Muon for the matrices within blocks, and AdamW for the rest, with as high a rate for the
embedding; a rate that is flat, and falls along a line at the end. nanoGPT's has learned positions, one matrix for both
ends, AdamW for all, and half a cosine. tests/benchmarks/recipes.py measures what each part is worth.
"""

from typing import Any

from .. import nn
from ..nn import init
from ..nn.gpt.model import GPT
from ..optim import AdamW, Muon, warmup_cosine, warmup_linear
from ..optim.optimizer import Optimizer, Optimizers

FORM: dict[str, Any] = {"positions": "rotary", "tied": False}
EMBEDDED, UNEMBEDDED = 0.7, 0.001  # std of the first weights at both ends
OTHERS = 0.3  # of the learning rate, for norms and the unembedding
FALL = 0.6  # of the steps, at the end, in which the rate falls
ENOUGH = 10**6  # characters, from which on a longer text changes nothing
DROPOUT = (500_000, 0.0), (50_000, 0.2), (0, 0.4)  # (least number of characters, share)
MOMENTUM = 0.85, 0.95, 150  # Muon's at the first step, later, and the number of steps until then


def suited(characters: int, steps: int) -> dict[str, Any]:
    """Settings for a text of this length; `steps` suit one of ENOUGH characters. A shorter one needs fewer
    steps, and dropout, or it is learned by heart. A very short one has no room for long blocks."""
    share = min(1.0, characters / ENOUGH)
    steps = max(1, 10 * round(steps * share**0.4 / 10))
    dropout = next(dropout for least, dropout in DROPOUT if characters >= least)
    block_size = 2 ** min(7, max(0, (characters // 20).bit_length() - 1))
    return dict(steps=steps, eval_every=max(1, steps // 11), dropout=dropout, block_size=block_size)


def model(settings: dict[str, Any], vocab_size: int) -> GPT:
    """A GPT for the SETTINGS of runner.py, with its first weights."""
    sizes = {name: settings[name] for name in ("block_size", "n_layer", "n_head", "n_embd", "dropout")}
    if not settings["muon"]:
        return nn.GPT(nn.GPTConfig(vocab_size, bias=False, **sizes))
    gpt = nn.GPT(nn.GPTConfig(vocab_size, bias=False, **FORM, **sizes))
    first = dict(gpt.named_parameters())
    init.normal_(first["wte.weight"], std=EMBEDDED)
    init.normal_(first["lm_head.weight"], std=UNEMBEDDED)
    return gpt


def optimizer(gpt: GPT, settings: dict[str, Any]) -> Optimizer | Optimizers:
    """What trains it. The rates of its groups are shares of the learning rate."""
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
    """The learning rate of a step, counted from 0."""
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
