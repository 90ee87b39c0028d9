"""A look inside attention heads: what they compute, which gradients come back to them, and how much they matter.

    with study.trace_heads(model) as trace:         q, k, v, scores, pattern, z of each head, and their gradients
        loss = loss_fn(model(x), y)
        loss.backward()
    print(trace.table())                            the statistics of study.STATS
    trace.to_html("heads.html")                     patterns beside their gradients, and bars for the statistics

    study.ledger(lambda: loss_fn(model(x), y), scope="blocks.1.attn", head=2)     backward, step by step
    study.flow(model, (x, y))                       from which later part a head's gradient comes, by Q, K or V
    study.head_scores(model)                        previous-token, duplicate-token, induction
    study.head_importance(model, [(x, y)])          by ablation, by gate gradients, or by their integral
    study.ablate_heads

`minigrad report`, flow, ledger and others do most of this for a character model's checkpoint, which
runs.load_char_model of minigrad.training loads in Python. README.md in this folder has a reading order.
"""

from .layers import attention_layers, head_weights
from .stats import STATS, HeadTable, Stat, attention_to, duplicate, entropy, induction, previous
from .trace import HeadTrace, LayerTrace, trace_heads
from .ledger import Ledger, ledger
from .scores import head_scores, repeated_tokens
from .models import AttentionOnly
from .stream import Node
from .flow import Edges, Flow, flow
from .cut import cut_gradient
from .importance import (
    METHODS, ablate_heads, grouped, head_importance, losses_without, mean_loss, ranked,
)  # fmt: skip

__all__ = [
    "attention_layers", "head_weights", "attention_to", "duplicate", "entropy", "induction", "previous", "STATS",
    "Stat", "HeadTable", "HeadTrace", "LayerTrace", "trace_heads", "Ledger", "ledger", "head_scores",
    "repeated_tokens", "AttentionOnly", "Node", "Edges", "Flow", "flow", "METHODS", "ablate_heads",
    "grouped", "head_importance", "losses_without", "mean_loss", "ranked", "cut_gradient",
]  # fmt: skip
