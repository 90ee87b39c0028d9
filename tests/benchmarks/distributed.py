"""Two processes with a thread each beside one process with two, and what the exchange of gradients costs.

    python tests/benchmarks/distributed.py [--rounds 5]

For each size of model: the median time of a training step of char_lm's model, measured in turns; the time of the
exchange alone; and from these, what N machines on a network of 10 Gbit/s would take, on paper: computation / N, and
2 (1 - 1/N) times the bytes of the gradients over the network, which nothing hides.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

import numpy as np

import minigrad as mg
from minigrad import distributed, nn, optim
from minigrad.distributed.tree import exchange

SIZES = {  # name: (shape, batch size, steps)
    "char_lm's default": (dict(n_layer=2, n_head=4, n_embd=128, block_size=64), 16, 30),
    "40 MB of gradients": (dict(n_layer=6, n_head=6, n_embd=372, block_size=64), 16, 4),
}
MPIEXEC = shutil.which("mpiexec", path=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])
NETWORK = 10e9 / 8, 50e-6  # bytes per second, seconds per message


def measure(name):
    """{what: median seconds} of this process, which has as many threads and companions as it has been given."""
    shape, B, steps = SIZES[name]
    with distributed.world() as world:
        mg.manual_seed(0)
        model = nn.GPT(nn.GPTConfig(vocab_size=100, bias=False, **shape))
        parameters = list(model.parameters())
        optimizer = optim.AdamW(parameters, lr=1e-3)
        shards = distributed.Shards(world, 2)

        def gradient(x, y):
            return distributed.gathered(model(x, y)[1], parameters)

        def update(total):
            loss = distributed.scattered(total / 2, parameters)
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            return loss

        gradient, update = mg.capture(gradient), mg.capture(update)
        x, y = (mg.randint(0, 100, (B, shape["block_size"])) for _ in "xy")
        flat = np.zeros(model.num_parameters() + 1, np.float32)
        seconds = {"step": [], "exchange": []}
        for _ in range(3 + steps):
            began = time.perf_counter()
            update(shards.sum(gradient, x, y)).item()
            seconds["step"].append(time.perf_counter() - began)
            if world.size > 1:
                world.comm.Barrier()  # so that it is the exchange, and not waiting for the other
            began = time.perf_counter()
            if world.size > 1:
                exchange(flat, world.comm)
            seconds["exchange"].append(time.perf_counter() - began)
        found = {what: statistics.median(times[3:]) for what, times in seconds.items()}
        if world.rank == 0:
            print(json.dumps(found | {"bytes": flat.nbytes}))


def measured(name, processes):
    environment = {**os.environ, "OMP_NUM_THREADS": str(2 // processes), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [MPIEXEC, "-n", str(processes)] if processes > 1 else []
    command += [sys.executable, __file__, "--measure", name]
    return json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--measure", choices=SIZES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        return measure(args.measure)
    for name in SIZES:
        rounds = [(measured(name, 1), measured(name, 2)) for _ in range(args.rounds)]
        one = statistics.median(a["step"] for a, _ in rounds)
        two = statistics.median(b["step"] for _, b in rounds)
        ratio = statistics.median(b["step"] / a["step"] for a, b in rounds)
        alone = statistics.median(b["exchange"] for _, b in rounds)
        nbytes = rounds[0][0]["bytes"]
        print(f"{name}, {nbytes / 1e6:.1f} MB of gradients:")
        print(
            f"  1 process × 2 threads {one * 1e3:.1f} ms, 2 processes × 1 thread {two * 1e3:.1f} ms: {ratio:.2f} of it"
        )
        print(f"  exchange {alone * 1e3:.2f} ms, {alone / two:.1%} of the step")
        speed, latency = NETWORK
        for n in (2, 4, 8):
            sent = 2 * (1 - 1 / n) * nbytes / speed + 2 * np.log2(n) * latency
            print(
                f"  on paper, {n} machines: {1e3 * (one / n + sent):.1f} ms, {one / (one / n + sent):.2f} times as fast"
            )


if __name__ == "__main__":
    main()
