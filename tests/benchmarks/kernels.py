"""Each kernel on a GPU beside PyTorch's, and how near it comes to what the GPU can do.

    python tests/benchmarks/kernels.py [--rounds 10] [--only softmax matmul]

Both work on the same memory, in one process and on one stream, in turns of about 20 ms that take each other's place; so
what counts is the ratio within a round. Ceilings are measured in the same rounds: the copy of a gigabyte by PyTorch for
bytes, a product of 8192 × 8192 matrices by cuBLAS for floating-point operations. Float32 is multiplied as such but in
cases that name TF32 or bfloat16, to which both may round. Arrays of the cases that are bound by memory are far larger
than a GPU's cache.

Some rows on an H200, with PyTorch 2.11. cuBLAS uses Hopper's wgmma there, matmul_tensor.cu has mma.sync:

| | µs | PyTorch, µs | ratio | rate | of what the GPU can do |
|---|---|---|---|---|---|
| transpose | 486 | 933 | 1.92 | 2.2 TB/s | 53 % |
| add | 196 | 188 | 0.96 | 4.1 TB/s | 98 % |
| softmax, rows of 1024 | 209 | 200 | 0.95 | 3.8 TB/s | 91 % |
| layer_norm, rows of 768 | 219 | 353 | 1.61 | 3.7 TB/s | 87 % |
| cross_entropy, forward and backward | 751 | 948 | 1.27 | 2.9 TB/s | 68 % |
| AdamW, 85 million parameters in 400 arrays | 1286 | 824 | 0.64 | 1.9 TB/s | 44 % |
| matmul, 4096³ | 2865 | 2695 | 0.94 | 48 TFLOP/s | 94 % |
| attention, (16, 12, 1024, 64), causal | 905 | 880 | 0.97 | 28 TFLOP/s | 56 % |
| attention, backward | 2980 | 2246 | 0.75 | 22 TFLOP/s | 42 % |
| matmul, TF32 | 894 | 356 | 0.42 | 154 TFLOP/s | 41 % |
| attention, TF32 | 456 | 943 | 2.09 | 57 TFLOP/s | 14 % |
| matmul, bfloat16 | 747 | 377 | 0.52 | 184 TFLOP/s | 50 % |
| attention, bfloat16 | 310 | 927 | 3.06 | 83 TFLOP/s | 20 % |
| matmul, float16 | 415 | 194 | 0.48 | 331 TFLOP/s | 48 % |
| attention, float16 | 231 | 89 | 0.41 | 112 TFLOP/s | 15 % |
"""

import argparse
import functools
import importlib.util
import math
import statistics
import sys
from typing import NamedTuple

import numpy as np

import minigrad as mg
from minigrad import DeviceError, backend

TURN = 0.02  # seconds
UNTIMED = 3
G = 1 << 30


class Case(NamedTuple):
    """A case to measure: a function of ours and one of PyTorch's. They return the arrays to compare, or None."""

    ours: object
    torch: object
    moved: float = 0  # bytes that must be read or written at least
    flops: float = 0
    tolerance: float = 1e-4  # of the largest element
    dtype: str = "float32"
    precision: str = "highest"  # of what both multiply in float32


# ------------------------------------------------------------------------------------------------------------- cases


def cases(on, torch):
    """{name: function -> Case}; its arrays are made when it is called."""
    F = torch.nn.functional
    rng = np.random.default_rng(0)

    def normal(*shape, dtype="float32"):
        """A new array of ours, and PyTorch's view of it."""
        x = on.from_numpy(rng.standard_normal(shape, np.float32).astype(dtype))
        return x, torch.from_dlpack(x)

    def integers(high, *shape):
        x = on.from_numpy(rng.integers(0, high, shape))
        return x, torch.from_dlpack(x)

    def copy():
        x, tx = normal(16384, 8192)
        return Case(lambda: on.copy(x), tx.clone, 2 * x.nbytes)

    def transpose():
        x, tx = normal(16384, 8192)
        return Case(lambda: on.copy(x.transpose(1, 0)), tx.t().contiguous, 2 * x.nbytes)

    def concat():
        (x, tx), (y, ty) = normal(16384, 4096), normal(16384, 4096)
        return Case(lambda: on.cat([x, y], 1), lambda: torch.cat([tx, ty], 1), 2 * (x.nbytes + y.nbytes))

    def add():
        (x, tx), (y, ty) = normal(16384, 4096), normal(16384, 4096)
        return Case(lambda: on.add(x, y), lambda: tx + ty, 3 * x.nbytes)

    def bias_gelu():
        (x, tx), (b, tb) = normal(65536, 1536), normal(1536)
        return Case(lambda: on.gelu(on.add(x, b), "tanh"), lambda: F.gelu(tx + tb, approximate="tanh"), 4 * x.nbytes)

    def softmax():
        x, tx = normal(98304, 1024)
        return Case(lambda: on.softmax(x, -1), lambda: tx.softmax(-1), 2 * x.nbytes)

    def layer_norm():
        (x, tx), (w, tw), (b, tb) = normal(131072, 768), normal(768), normal(768)
        return Case(
            lambda: on.layer_norm(x, w, b, 1e-5)[0], lambda: F.layer_norm(tx, (768,), tw, tb, 1e-5), 2 * x.nbytes
        )

    def layer_norm_backward():
        (x, tx), (w, tw), (b, tb), (dy, tdy) = normal(131072, 768), normal(768), normal(768), normal(131072, 768)
        _, mean, rstd = on.layer_norm(x, w, b, 1e-5)
        tmean, trstd = torch.from_dlpack(mean), torch.from_dlpack(rstd)
        theirs = torch.ops.aten.native_layer_norm_backward
        return Case(
            lambda: on.layer_norm_backward(dy, x, w, mean, rstd, (True, True, True))[0],
            lambda: theirs(tdy, tx, (768,), tmean, trstd, tw, tb, (True, True, True))[0],
            3 * x.nbytes,
        )

    def cross_entropy():
        (x, tx), (target, ttarget), (one, _) = normal(8192, 16384), integers(16384, 8192), normal(8192)
        one, leaf = on.full((8192,), 1, np.float32), tx.detach().requires_grad_()

        def ours():
            _, p = on.cross_entropy(x, target, -100, 0.0)
            return on.cross_entropy_backward(one, p, target, -100, 0.0)

        def theirs():
            return torch.autograd.grad(F.cross_entropy(leaf, ttarget, reduction="sum"), leaf)[0]

        return Case(ours, theirs, 4 * x.nbytes)  # the logits twice, or logits and pattern; pattern and gradient

    def embedding_backward():
        (dy, tdy), (index, tindex) = normal(65536, 768), integers(50304, 65536)
        theirs = torch.ops.aten.embedding_dense_backward
        return Case(
            lambda: on.take_add(50304, index, dy),
            lambda: theirs(tdy, tindex, 50304, -1, False),
            dy.nbytes + 50304 * 768 * 4,
        )

    def adamw():
        shapes = [(65, 384), (256, 384)] + 6 * [(384,), (1152, 384), (384, 384), (384,), (1536, 384), (384, 1536)]
        shapes = 8 * shapes  # 85 million parameters
        pairs = [[normal(*shape) for shape in shapes] for _ in range(4)]
        ps, gs, ms, vs = ([x for x, _ in group] for group in pairs)
        for v in vs:
            on.copy_to(v, on.mul(v, v))
        parameters = [t.clone().requires_grad_() for _, t in pairs[0]]
        for p, (_, g) in zip(parameters, pairs[1]):
            p.grad = g
        optimizer = torch.optim.AdamW(parameters, 1e-3, (0.9, 0.99), 1e-8, 0.1, fused=True)
        slots = [(p, g, m, v, 0) for p, g, m, v in zip(ps, gs, ms, vs)]
        size = sum(math.prod(shape) for shape in shapes)
        return Case(
            lambda: on.adam_(slots, lambda: [(1e-3, 0.1, 10)], 0.9, 0.99, 1e-8, True), optimizer.step, 7 * 4 * size
        )

    def muon():
        """The matrices within GPT-2's blocks, in TF32; torch.optim.Muon multiplies in bfloat16. FLOPs are its own."""
        C, steps = 768, 5
        shapes = 12 * [(C, C)] * 4 + 12 * [(4 * C, C), (C, 4 * C)]
        pairs = [[normal(*shape) for shape in shapes] for _ in range(3)]
        parameters = [t.clone().requires_grad_() for _, t in pairs[0]]
        for p, (_, g) in zip(parameters, pairs[1]):
            p.grad = g
        optimizer = torch.optim.Muon(parameters, 1e-3)
        slots = [(p, g, m, 0, p.shape[0], 1.0) for (p, _), (g, _), (m, _) in zip(*pairs)]
        flops = sum(steps * (4 * min(s) ** 2 * max(s) + 2 * min(s) ** 3) for s in shapes)
        jordan = ((3.4445, -4.775, 2.0315),) * steps
        return Case(lambda: on.muon_(slots, lambda: [(1e-3, 0.1, 0.95)], True, jordan, 1e-7), optimizer.step, 0, flops,
                    precision="high")  # fmt: skip

    def matmul(dtype="float32", precision="highest", n=4096):
        (a, ta), (b, tb) = normal(n, n, dtype=dtype), normal(n, n, dtype=dtype)
        tolerance = 1e-4 if (dtype, precision) == ("float32", "highest") else 1e-2
        return Case(lambda: on.matmul(a, b), lambda: ta @ tb, 0, 2 * n**3, tolerance, dtype, precision)

    def linear(dtype="float32", precision="highest"):
        """nanoGPT's largest product: (64 · 256, 384) by (1536, 384) transposed."""
        (x, tx), (w, tw), (b, tb) = (normal(*shape, dtype=dtype) for shape in ((16384, 384), (1536, 384), (1536,)))
        work = lambda: on.linear(x, w, b), lambda: F.linear(tx, tw, tb), 0, 2 * 16384 * 384 * 1536
        return Case(*work, 1e-4 if (dtype, precision) == ("float32", "highest") else 1e-2, dtype, precision)

    def attention(dtype="float32", precision="highest", backward=False):
        B, nh, T, D = 16, 12, 1024, 64
        (q, tq), (k, tk), (v, tv), (do, tdo) = (normal(B, nh, T, D, dtype=dtype) for _ in range(4))
        scale, flops = D**-0.5, 2 * B * nh * T * T * D  # two products over half of T × T
        theirs = F.scaled_dot_product_attention
        if not backward:
            return Case(
                lambda: on.attention(q, k, v, None, None, scale, True)[0],
                lambda: theirs(tq, tk, tv, is_causal=True),
                0,
                flops,
                1e-2,
                dtype,
                precision,
            )
        o, lse = on.attention(q, k, v, None, None, scale, True)
        leaves = [t.detach().requires_grad_() for t in (tq, tk, tv)]
        y = theirs(*leaves, is_causal=True)
        return Case(
            lambda: on.attention_backward(do, q, k, v, None, None, o, lse, scale, True)[0],
            lambda: torch.autograd.grad(y, leaves, tdo, retain_graph=True)[0],
            0,
            2.5 * flops,
            1e-2,
            dtype,
            precision,
        )

    found = [copy, transpose, concat, add, bias_gelu, softmax, layer_norm, layer_norm_backward, cross_entropy]
    found += [embedding_backward, adamw, muon]
    named = {f.__name__: f for f in found}
    kinds = {"": ("float32", "highest"), "_tf32": ("float32", "high"), "_bfloat16": ("float32", "medium")}
    for how, kind in {**kinds, "_float16": ("float16", "highest")}.items():
        for f in (matmul, linear, attention):
            named[f.__name__ + how] = functools.partial(f, *kind)
        named["attention_backward" + how] = functools.partial(attention, *kind, backward=True)
    return named


# --------------------------------------------------------------------------------------------------------- measuring


class Timer:
    """Seconds that a function takes on the GPU, as the median of turns."""

    def __init__(self, torch, function):
        self.torch, self.function, self.turns = torch, function, []
        for _ in range(UNTIMED):
            function()
        self.times = 1
        self.times = max(1, round(TURN / self.measure()))

    def measure(self):
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(self.times):
            self.function()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3 / self.times

    def turn(self):
        self.turns.append(self.measure())

    @property
    def seconds(self):
        return statistics.median(self.turns)


def apart(torch, case):
    """The largest difference of the results, in parts of the largest element; None if there is nothing to compare."""
    ours, theirs = case.ours(), case.torch()
    if ours is None:
        return None
    ours, theirs = torch.from_dlpack(ours).double(), theirs.detach().double()
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


def measure(torch, case, rounds):
    for lib in (mg, torch):
        lib.set_float32_matmul_precision(case.precision)
    error = apart(torch, case)
    size = 8192
    a = torch.randn(size, size, device="cuda", dtype=getattr(torch, case.dtype))
    big = torch.empty(G, dtype=torch.uint8, device="cuda")
    timers = {
        "minigrad": Timer(torch, case.ours),
        "torch": Timer(torch, case.torch),
        "ceiling": Timer(torch, (lambda: a @ a) if case.flops else big.clone),
    }
    for i in range(rounds):
        names = list(timers)
        for name in names[i % 3 :] + names[: i % 3]:  # so that none always follows the same one
            timers[name].turn()
    ours, theirs, best = (timers[name].seconds for name in ("minigrad", "torch", "ceiling"))
    done, most = (case.flops, 2 * size**3 / best) if case.flops else (case.moved, 2 * G / best)
    return {
        "us": 1e6 * ours,
        "torch_us": 1e6 * theirs,
        "ratio": statistics.median(t / o for o, t in zip(timers["minigrad"].turns, timers["torch"].turns)),
        "unit": "TFLOP/s" if case.flops else "GB/s",
        "rate": done / ours / (1e12 if case.flops else 1e9),
        "of_ceiling": done / ours / most,
        "error": error,
        "right": error is None or error < case.tolerance,
    }


def report(name, r):
    note = "" if r["right"] else f"   WRONG: off by {r['error']:.1e}"
    print(
        f"{name:28}{r['us']:11.1f}{r['torch_us']:11.1f}{r['ratio']:9.2f}{r['rate']:10.1f} {r['unit']:8}"
        f"{100 * r['of_ceiling']:6.0f} %{note}",
        flush=True,
    )
    return r["right"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="cases whose names begin with one of these")
    args = parser.parse_args()
    try:
        on = backend.get("cuda")
    except DeviceError as error:
        print(error)
        return 1
    if importlib.util.find_spec("torch") is None:
        print("PyTorch, to compare with, is not installed")
        return 1
    import torch

    if not torch.cuda.is_available():
        print("this PyTorch cannot use the GPU: it was built without CUDA, or for another driver")
        return 1
    print(
        f"{torch.cuda.get_device_name()}; PyTorch {torch.__version__}; a ratio above 1 means that minigrad is faster\n"
    )
    print(f"{'':28}{'µs':>11}{'torch µs':>11}{'ratio':>9}{'rate':>10} {'':8}{'of ceiling':>8}")
    right = True
    for name, make in cases(on, torch).items():
        if args.only and not name.startswith(tuple(args.only)):
            continue
        try:
            right &= report(name, measure(torch, make(), args.rounds))
        except Exception as error:  # one case that fails must not cost the others their results
            print(f"{name:28}{type(error).__name__}: {error}")
            right = False
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
