"""Do several processes work together here? mpiexec starts it:

    mpiexec -n 2 minigrad distributed

A small GPT with dropout: the gradients that the processes agree on must be those of one, and the same on all.
"""

from .. import nn
from ..base import cli
from ..distributed import check, library, world
from ..random import manual_seed
from ..tensor import randint


@cli.command("distributed")
def main(argv=()):
    with world() as ranks:
        cli.Parser("minigrad distributed", description=__doc__).parse_args(argv)
        manual_seed(0)
        model = nn.GPT(nn.GPTConfig(vocab_size=13, block_size=8, n_layer=1, n_head=2, n_embd=16, dropout=0.2))
        x, y = (randint(0, 13, (4 * ranks.size, 8))[4 * ranks.rank : 4 * ranks.rank + 4] for _ in "xy")  # (4, 8)
        said = check(ranks, model, lambda x, y: model(x, y)[1], x, y)
        if ranks.rank == 0:
            print(f"{library()}: {said}" if ranks.size > 1 else said)
    return 0


if __name__ == "__main__":
    cli.run(main)
