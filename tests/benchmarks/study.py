"""The tools of minigrad.study on a model of GPT-2 small's size: seconds and memory of each.

    python tests/benchmarks/study.py              12 layers of 12 heads, C 768, 50,257 tokens, T 256, B 1
    python tests/benchmarks/study.py --size small 2 layers of 4 heads, to try it
    python tests/benchmarks/study.py --only page,flow

The weights are random: time and memory do not depend on them. Each tool runs in a process of its own, after the model
is made. Memory is the peak of that process, the model's weights and Python included ("model alone" has these only).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from workers import peak_memory

SIZES = {
    "gpt2": dict(vocab_size=50_257, block_size=256, n_layer=12, n_head=12, n_embd=768),
    "small": dict(vocab_size=500, block_size=32, n_layer=2, n_head=4, n_embd=32),
}
CUT = 50  # edges that are cut


def model_alone(study, model, batch):
    """Nothing."""


def trace(study, model, batch):
    """A trace with gradients."""
    with study.trace_heads(model) as traced:
        model(*batch)[1].backward()
    return traced


def table(study, model, batch):
    """A trace, and its table."""
    trace(study, model, batch).table()


def page(study, model, batch):
    """A trace, its flow, and the page with both."""
    flow_of_all = study.flow(model, batch)
    traced = trace(study, model, batch)
    with tempfile.TemporaryDirectory() as folder:
        path = traced.to_html(Path(folder) / "heads.html", flow=flow_of_all)
        return f"{path.stat().st_size / 1e6:.1f} MB"


def flow(study, model, batch):
    """All edges, to first order."""
    return f"{len(study.flow(model, batch).all):,} edges"


def cut_flow(study, model, batch):
    """The same, and the largest edges cut."""
    return f"{len(study.flow(model, batch, method='cut', top=CUT).all)} edges"


def by_prediction(study, model, batch):
    """A head's gradients by prediction, for the last 16 predictions."""
    with study.trace_heads(model, heads=["0.3"]) as traced:
        traced.backward(study.prediction_losses(model, *batch)[:, -16:])


def importance(study, model, batch):
    """Ablation of every head."""
    study.head_importance(model, [batch])


def joint_path(study, model, batch):
    """The integral of the gate gradients."""
    study.head_importance(model, [batch], "joint_path")


def lesson(study, model, batch):
    """The lesson of one head."""
    study.lesson(model, batch, "1.3")


def lessons(study, model, batch):
    """The lessons of all heads."""
    return f"{len(study.lessons(model, batch))} heads"


def scores(study, model, batch):
    """The scores of all heads."""
    study.head_scores(model)


TOOLS = {
    each.__name__: each
    for each in (
        model_alone, trace, table, page, flow, cut_flow, by_prediction, importance, joint_path, lesson, lessons, scores,
    )
}  # fmt: skip


def work(name, size):
    """Run one tool in this process, and print its numbers."""
    import minigrad as mg
    from minigrad import nn, study

    mg.manual_seed(0)
    sizes = SIZES[size]
    model = nn.GPT(nn.GPTConfig(bias=True, **sizes))
    x, y = (mg.randint(0, sizes["vocab_size"], (1, sizes["block_size"])) for _ in range(2))
    model(x[:, :2], y[:, :2])[1].backward()  # compiles the kernels
    model.zero_grad()
    began = time.perf_counter()
    about = TOOLS[name](study, model, (x, y))
    seconds = time.perf_counter() - began
    print(
        json.dumps({"seconds": seconds, "GB": peak_memory() / 2**10, "about": about if isinstance(about, str) else ""})
    )


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="gpt2")
    parser.add_argument("--only", metavar="TOOL,TOOL", help=f"of {', '.join(TOOLS)}")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.worker:
        return work(args.worker, args.size)
    print(f"{'tool':15}{'seconds':>9}{'GB':>7}   what", flush=True)
    for name in args.only.split(",") if args.only else TOOLS:
        command = [sys.executable, __file__, "--worker", name, "--size", args.size]
        done = subprocess.run(command, env=os.environ, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            print(f"{name:15}failed")
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        what = " ".join(TOOLS[name].__doc__.split())
        print(f"{name:15}{found['seconds']:9.1f}{found['GB']:7.2f}   {what} {found['about']}", flush=True)
    return None


if __name__ == "__main__":
    main()
