"""What `minigrad doctor --gpu` adds: every op on the GPU against the CPU, a short training on both, and how fast the
main kernels are, beside a copy and cuBLAS."""

import operator
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from .. import backend, cuda, nn, optim
from ..autograd import no_grad, registry
from ..backend.runners.cuda import first_line
from ..gradcheck.report import KINK, PASS, WARN, told
from ..gradcheck.sweep import check_op
from ..nn import functional as F
from ..random import manual_seed
from ..replay.captured import capture
from ..tensor import Tensor, randint, randn

SIDE = 4096  # of the arrays that are timed
TURN, TURNS = 20.0, 5  # ms of each turn; turns, of which the median counts
TOLERANCE = 1e-3  # of a loss
KINDS = {  # how matrices are multiplied: (dtype, precision)
    "float32": ("float32", "highest"),
    "TF32": ("float32", "high"),
    "bfloat16": ("float32", "medium"),
    "float16": ("float16", "highest"),
}


def wrong_ops(say):
    """(number of checks, [what is wrong]) of every op on each of its cases: values and gradients are those of the CPU
    in float64, and in float32 and float16 as near as their precision allows."""
    names = [name for name, declaration in registry.items() if declaration.builtin and declaration.cases]
    checks, wrong = 0, []
    for i, name in enumerate(names, 1):
        say(f"{i}/{len(names)} {name}")
        rows = check_op(name, "cuda", (1,), mode="directional", directions=1, probes=("device", "float32", "float16"))
        checks += len(rows)
        wrong += [f"{row.op}, {row.case}: {row.message}" for row in rows if row.verdict not in (PASS, KINK, WARN)]
    return checks, wrong


def losses(device):
    """Of a small GPT, trained for a few captured steps by Muon and AdamW."""
    manual_seed(0)
    model = nn.GPT(nn.GPTConfig(vocab_size=32, block_size=32, n_layer=2, n_head=2, n_embd=64)).to(device)
    inside, rest = model.muon_groups(weight_decay=0.1)
    optimizer = optim.Optimizers(optim.Muon(inside, lr=0.02), optim.AdamW(rest, lr=3e-3))

    @capture
    def step(x: Tensor, y: Tensor) -> Tensor:
        _, loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    tokens = randint(0, 32, (5, 4, 33))
    return [step(t[:, :-1].to(device), t[:, 1:].to(device)).item() for t in tokens]


class Timed(NamedTuple):
    """What is timed: a function, the bytes that it must move at least or its FLOPs, and the same by cuBLAS."""

    ours: Callable[[], object]
    moved: int = 0
    flops: int = 0
    cublas: Callable[[], object] | None = None
    precision: str = "highest"


def cases():
    """{name: Timed}"""
    x, y, w, b = (randn(*shape, device="cuda") for shape in ((4 * SIDE, SIDE), (4 * SIDE, SIDE), (SIDE,), (SIDE,)))
    once = 4 * x.numel()
    found = {
        "copy": Timed(x.clone, 2 * once),
        "transpose": Timed(x.T.contiguous, 2 * once),
        "add": Timed(lambda: x + y, 3 * once),
        "softmax": Timed(lambda: x.softmax(-1), 2 * once),
        "layer_norm": Timed(lambda: F.layer_norm(x, (SIDE,), w, b), 2 * once),
    }
    B, nh, T, hs = max(1, SIDE // 256), 12, SIDE // 4, 64
    for kind, (dtype, precision) in KINDS.items():
        if precision != "highest" and not backend.get("cuda").tensor_cores:
            continue
        a, c, q = (randn(*shape, device="cuda").to(dtype) for shape in ((SIDE, SIDE), (SIDE, SIDE), (B, nh, T, hs)))
        cublas = partial(operator.matmul, a.array, c.array) if precision == "highest" else None
        found[f"matmul, {kind}"] = Timed(partial(operator.matmul, a, c), 0, 2 * SIDE**3, cublas, precision)
        causal = partial(F.scaled_dot_product_attention, q, q, q, is_causal=True)
        found[f"attention, {kind}"] = Timed(causal, 0, 2 * B * nh * T * T * hs, None, precision)
    return found


def milliseconds(function):
    """What a call takes on the GPU."""
    import cupy

    def turn(times):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        for _ in range(times):
            function()
        end.record()
        end.synchronize()
        return cupy.cuda.get_elapsed_time(start, end) / times

    turn(2)
    times = max(1, round(TURN / max(turn(2), 1e-3)))
    return max(1e-6, float(np.median([turn(times) for _ in range(TURNS)])))


def speeds(say):
    """{name: {"ms", "GB/s" or "TFLOP/s", and of cuBLAS "cublas_ms", or "cublas", why there is no number}}, or "failed"
    with an error."""
    found: dict = {}
    before = cuda.get_float32_matmul_precision()
    for name, case in cases().items():
        say(name)
        row = found[name] = {}
        try:
            cuda.set_float32_matmul_precision(case.precision)
            with no_grad():
                ms = row["ms"] = milliseconds(case.ours)
            row["GB/s" if case.moved else "TFLOP/s"] = case.moved / ms / 1e6 if case.moved else case.flops / ms / 1e9
        except Exception as error:  # it must not cost the others their numbers
            row["failed"] = told(error)
            continue
        finally:
            cuda.set_float32_matmul_precision(before)
        if case.cublas:
            try:
                row["cublas_ms"] = milliseconds(case.cublas)
            except Exception as error:  # a machine may have no cuBLAS, which minigrad does not need
                row["cublas"] = f"none: {first_line(error)}"
    return found


def report(say):
    """What the JSON holds beside the inventory."""
    checks, wrong = wrong_ops(say)
    say("training")
    try:
        ours, cpu = losses("cuda"), losses("cpu")
        if not np.allclose(ours, cpu, rtol=TOLERANCE, atol=0):
            wrong.append(f"a training: its losses are {ours}, and {cpu} on the CPU")
    except Exception as error:
        ours = []
        wrong.append(f"a training: {told(error)}")
    found = speeds(say)
    wrong += [f"{name}: {row['failed']}" for name, row in found.items() if "failed" in row]
    return {"checks": checks, "wrong": wrong, "losses": ours, "speeds": found}
