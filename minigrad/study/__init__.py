"""A look inside attention heads: what they compute, which gradients come back to them, and how much they matter.

    with study.trace_heads(model) as trace:         q, k, v, scores, pattern, z of each head, and their gradients
        loss = loss_fn(model(x), y)
        loss.backward()
    trace["1.2"].pattern_grad                       of head 2 of layer 1, (B, T, S)
    print(trace.table())                            the statistics of study.STATS
    trace.to_html("heads.html")                     patterns beside their gradients, and bars for the statistics

    study.ledger(lambda: loss_fn(model(x), y), head="1.2", names=model)     backward, step by step
    study.flow(model, (x, y))                       from which later part a head's gradient comes, by Q, K or V
    study.cut_gradient(model, "0.3", "1.2", "k")    a with-block in which no gradient flows along this edge
    study.lesson(model, (x, y), "0.3")              how one training step changes the head's scores, and through what
    study.history([(0, first), (9, last)], (x, y))  all this over a training, from the models of several steps
    study.head_scores(model)                        previous-token, duplicate-token, induction
    study.head_importance(model, [(x, y)])          by ablation, by gate gradients, or by their integral
    study.ablate_heads(model, ["0.3"])              a with-block in which these heads are silent

A head is named by its layer and its number, "1.2", everywhere. `minigrad report`, flow, importance and scores do this
for a checkpoint of a character model, which runs.load_char_model of minigrad.training loads in Python.
minigrad/study/README.md has examples, recipes and an order in which to read these files.
"""

from .layers import attention_layers, head_weights
from .stats import STATS, HeadTable, Stat, attention_to, duplicate, entropy, induction, previous
from .trace import HeadTrace, LayerTrace, OneHead, trace_heads
from .ledger import Ledger, ledger
from .scores import head_scores, repeated_tokens
from .models import AttentionOnly
from .names import Part
from .flow import Edges, Flow, flow
from .cut import cut_gradient
from .lesson import Lesson, lesson, lessons
from .history import History, history
from .importance import (
    METHODS, ablate_heads, grouped, head_importance, importance_table, losses_without, mean_loss, prediction_losses,
    ranked,
)  # fmt: skip

__all__ = [
    "attention_layers", "head_weights", "attention_to", "duplicate", "entropy", "induction", "previous", "STATS",
    "Stat", "HeadTable", "HeadTrace", "LayerTrace", "OneHead", "trace_heads", "Ledger", "ledger", "head_scores",
    "repeated_tokens", "AttentionOnly", "Part", "Edges", "Flow", "flow", "METHODS", "ablate_heads",
    "grouped", "head_importance", "importance_table", "losses_without", "mean_loss", "prediction_losses", "ranked",
    "cut_gradient", "Lesson", "lesson", "lessons", "History", "history",
]  # fmt: skip
