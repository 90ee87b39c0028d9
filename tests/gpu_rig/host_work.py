"""What the host asks of a GPU in a training step, eager and captured, counted on the rig.

    make gpu-rig && PYTHONPATH=. .gpu-rig/run tests/gpu_rig/host_work.py [--layers 4] [--width 128] [--batch 12]

The step is nanoGPT's for a CPU: a GPT of 4 layers, 4 heads and 128 dims on 12 texts of 64 characters, with clipping,
AdamW and a schedule. x and y are uploaded by the caller, and nothing is read.
"""

import argparse
import ctypes
import os

import numpy as np

import minigrad as mg
from minigrad import nn, optim

WAITS = "cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize", "downloads"
LAUNCHES = "cuLaunchKernel", "cuLaunchKernelEx", "cudaLaunchKernel"
ASKED = {"launches": LAUNCHES, "graphs": ["cudaGraphLaunch"], "waits": WAITS, "uploads": ["uploads"]}


def calls():
    """{what the host has asked for since the program began: how often}"""
    count = ctypes.CDLL(os.path.join(os.environ["GPU_RIG"], "libgpurig.so")).gpu_rig_calls
    count.restype = ctypes.c_long
    return {name: sum(count(function.encode()) for function in functions) for name, functions in ASKED.items()}


def per_step(take, steps):
    """{what the host asks for: how often in each of some steps, after three in which it finds out what stays}"""
    for i in range(3):
        take(i)
    before = calls()
    for i in range(3, steps + 3):
        take(i)
    after = calls()
    return {name: (after[name] - before[name]) / steps for name in after}


def trainer(captured, clip=1.0, batch=2, **config):
    """A step of AdamW on a GPT: (function of the step's number, the model, the optimizer)."""
    mg.manual_seed(1)
    model = nn.GPT(nn.GPTConfig(**config)).to("cuda")
    optimizer = optim.AdamW(model.parameter_groups(0.1), lr=1e-2)
    tokens = np.random.default_rng(0).integers(0, config["vocab_size"], (40, batch, config["block_size"] + 1))

    def step(x, y):
        _, loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        return loss, norm

    run = mg.capture(step) if captured else step

    def take(i):
        for group in optimizer.param_groups:
            group["lr"] = optim.warmup_cosine(i, lr=1e-2, min_lr=1e-3, warmup=2, total=20)
        x, y = tokens[i, :, :-1], tokens[i, :, 1:]
        return run(*(mg.tensor(part.copy(), device="cuda") for part in (x, y)))

    return take, model, optimizer


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--batch", type=int, default=12)
    args = parser.parse_args()
    sizes = dict(vocab_size=65, block_size=64, n_layer=args.layers, n_head=4, n_embd=args.width, batch=args.batch)
    print(f"{'for a step':12}" + "".join(f"{name:>10}" for name in ASKED))
    for name, captured in (("eager", False), ("captured", True)):
        counts = per_step(trainer(captured, **sizes)[0], steps=2)
        print(f"{name:12}" + "".join(f"{counts[each]:10g}" for each in ASKED))


if __name__ == "__main__":
    main()
