"""What the host asks of a GPU in a training step, eager and captured, counted on the rig."""

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


def trainer(captured, clip, **config):
    """A step of AdamW on a GPT: (function of the step's number, the model, the optimizer)."""
    mg.manual_seed(1)
    model = nn.GPT(nn.GPTConfig(**config)).to("cuda")
    optimizer = optim.AdamW(model.parameter_groups(0.1), lr=1e-2)
    tokens = np.random.default_rng(0).integers(0, config["vocab_size"], (40, 2, config["block_size"] + 1))

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
