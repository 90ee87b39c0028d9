"""What a cache of keys and values costs in generation, and what doing without it costs: MHA, GQA and MQA.

    python examples/kv_cache.py [--prompt 192] [--tokens 64]

The model is nanoGPT's for the CPU, with a block of 256 and random weights. Without a cache, adding a token means
computing the keys and values of all tokens again; with one, only those of the new token. Heads that share keys and
values (grouped-query: in pairs; multi-query: all of them) need a smaller cache.
"""

import time

import minigrad as mg
from minigrad import nn
from minigrad.base import cli

KINDS = {"MHA": 4, "GQA": 2, "MQA": 1}  # heads of keys and values, for four heads of queries
BATCHES = 1, 8


def tokens_per_second(model, prompts, tokens, use_cache, repeats=3):
    """The best of several runs, each of which adds `tokens` tokens to prompts (B, T)."""
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        model.generate(prompts, tokens, temperature=0, use_cache=use_cache)
        best = min(best, time.perf_counter() - began)
    return prompts.shape[0] * tokens / best


@cli.command("kv_cache")
def main(argv=()):
    parser = cli.Parser(description=__doc__)
    length = cli.number(int, at_least=1, at_most=10**5)
    parser.add_argument("--prompt", type=length, default=192, metavar="N", help="tokens to begin with (default: 192)")
    parser.add_argument("--tokens", type=cli.COUNT, default=64, metavar="N", help="tokens to add (default: 64)")
    args = parser.parse_args(argv)
    print("     batch  parameters  cache, bytes   tokens/s with it   without   ratio")
    for name, n_kv_head in KINDS.items():
        mg.manual_seed(0)
        model = nn.GPT(nn.GPTConfig.preset("nanogpt-cpu", block_size=256, n_kv_head=n_kv_head))
        for batch in BATCHES:
            cache = sum(layer.nbytes for layer in model.new_cache(batch))
            prompts = mg.randint(0, model.config.vocab_size, (batch, args.prompt))
            fast, slow = (tokens_per_second(model, prompts, args.tokens, use_cache) for use_cache in (True, False))
            sizes = f"{name} {batch:6} {model.num_parameters():11,} {cache:13,}"
            print(f"{sizes} {fast:18,.0f} {slow:9,.0f} {fast / slow:7.1f}", flush=True)
    return 0


if __name__ == "__main__":
    cli.run(main)
