"""What `minigrad doctor --gpu` adds: every op on the GPU against the CPU, a short training on both, and how fast the
main kernels are, beside a copy and cuBLAS."""

import operator
from functools import partial

import numpy as np

from .. import backend, cuda, nn, optim
from ..autograd import no_grad, registry
from ..gradcheck.report import KINK, PASS, WARN
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


@no_grad()
def speeds(say):
    """{name: {"ms", and "GB/s" or "TFLOP/s"}} of the main kernels, and of cuBLAS where it is installed."""
    x, y, w = (randn(*shape, device="cuda") for shape in ((4 * SIDE, SIDE), (4 * SIDE, SIDE), (SIDE,)))
    found, moved = {}, 2 * 4 * x.numel() / 1e6  # bytes read and written, per ms in GB/s
    for name, function in {
        "copy": x.clone,
        "transpose": x.T.contiguous,
        "add": lambda: x + y,
        "softmax": lambda: x.softmax(-1),
        "layer_norm": lambda: F.layer_norm(x, (SIDE,), w, w),
    }.items():
        say(name)
        ms = milliseconds(function)
        found[name] = {"ms": ms, "GB/s": (1.5 if name == "add" else 1) * moved / ms}
    B, nh, T, hs = max(1, SIDE // 256), 12, SIDE // 4, 64
    before = cuda.get_float32_matmul_precision()
    for kind, (dtype, precision) in KINDS.items():
        if precision != "highest" and not backend.get("cuda").tensor_cores:
            continue
        say(kind)
        a, c, q = (randn(*shape, device="cuda").to(dtype) for shape in ((SIDE, SIDE), (SIDE, SIDE), (B, nh, T, hs)))
        cuda.set_float32_matmul_precision(precision)
        product, attention = 2 * SIDE**3 / 1e9, 2 * B * nh * T * T * hs / 1e9  # FLOPs, per ms in TFLOP/s
        try:
            ms = milliseconds(partial(operator.matmul, a, c))
            found[f"matmul, {kind}"] = {"ms": ms, "TFLOP/s": product / ms}
            ms = milliseconds(partial(F.scaled_dot_product_attention, q, q, q, is_causal=True))
            found[f"attention, {kind}"] = {"ms": ms, "TFLOP/s": attention / ms}
        finally:
            cuda.set_float32_matmul_precision(before)
        if precision == "highest":
            try:
                ms = milliseconds(partial(operator.matmul, a.array, c.array))
            except Exception:  # a machine may have no cuBLAS, which minigrad does not need
                continue
            found[f"cuBLAS, {kind}"] = {"ms": ms, "TFLOP/s": product / ms}
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


def report(say):
    """What the JSON holds beside the inventory."""
    checks, wrong = wrong_ops(say)
    say("training")
    ours, cpu = losses("cuda"), losses("cpu")
    if not np.allclose(ours, cpu, rtol=TOLERANCE, atol=0):
        wrong.append(f"a training: its losses are {ours}, and {cpu} on the CPU")
    return {"checks": checks, "wrong": wrong, "losses": ours, "speeds": speeds(say)}
