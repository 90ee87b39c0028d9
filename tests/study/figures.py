"""How exactly the identities of study hold, on two models and in two dtypes. Not a test: it prints a table.

    python -m tests.study.figures

Errors are relative: of trace and flow to the sum of the terms' absolute values, of the others to the larger side."""

import numpy as np

import minigrad as mg
from minigrad import nn, study
from minigrad.study.importance import returned_loss
from minigrad.study.layers import WEIGHTS

V, T, B = 65, 32, 4


def models():
    """(name, model, batch)"""
    config = dict(vocab_size=V, block_size=T, n_layer=2, n_head=4, n_embd=64)
    x, y = (mg.randint(0, V, (B, T)) for _ in range(2))
    yield "char-LM", nn.GPT(nn.GPTConfig(**config)), (x, y)
    yield "GQA, rotary", nn.GPT(nn.GPTConfig(**config, n_kv_head=2, positions="rotary")), (x, y)


def relative(one, other):
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    return float(np.abs(one - other).max() / max(np.abs(one).max(), np.abs(other).max(), 1e-300))


def loss_without(model, batch, heads):
    with study.ablate_heads(model, heads):
        return study.mean_loss(model, [batch])


def figures(model, batch):
    """{identity: error}"""
    layers = study.attention_layers(model)
    with study.trace_heads(model) as trace:
        returned_loss(model, *batch).backward()
    found = {
        "trace: 13 identities of each head": trace.check().worst,
        "flow: both sums": study.flow(model, batch).check().worst,
    }
    errors = []
    for path, layer in layers.items():
        for head in trace[path].heads:
            parts = layer.head(head).parts
            for weight in WEIGHTS:
                p, index = parts[weight][0]
                if weight in ("W_K", "W_V") and list(layer.kv_of_head).count(layer.kv_of_head[head]) > 1:
                    continue  # only the sum over the heads that share it is in .grad: see the tests
                total = study.token_gradients(trace[path], head, weight).total
                errors.append(relative(total, p.grad.numpy()[index].T))
    found["token_gradients: Σ over tokens = .grad"] = max(errors)
    every = {path: range(layer.num_heads) for path, layer in layers.items()}
    lost = loss_without(model, batch, every) - study.mean_loss(model, [batch])
    shares = study.head_importance(model, [batch], "joint_path", steps=100)
    found["joint_path, 100 steps: Σ shares = L(no heads) - L"] = relative(sum(x.sum() for x in shares.values()), lost)
    return found


def main():
    mg.manual_seed(0)
    columns = {}
    for name, model, batch in models():
        for dtype in (mg.float64, mg.float32):
            model = model.to(dtype=dtype).eval()
            model.zero_grad()
            columns[f"{name}, {np.dtype(dtype).name}"] = figures(model, batch)
    for column, found in columns.items():
        print(f"\n{column}")
        for what, error in found.items():
            print(f"  {error:8.1e}  {what}")


if __name__ == "__main__":
    main()
