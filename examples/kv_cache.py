"""What keys and values cost in generation, and what it costs not to keep them: MHA, GQA and MQA.

    python examples/kv_cache.py [--tokens 255] [--batch 1]

nanoGPT's CPU model with a block of 256, random weights. One token at a time, a forward without a cache computes the
keys and values of all tokens before anew; with one, it computes those of the new token alone. Heads that share keys
and values (grouped-query: pairs; multi-query: all) need a smaller cache. Bytes are cost()'s and the cache's own.
"""

import argparse
import time

import minigrad as mg
from minigrad import nn

KINDS = {"MHA": 4, "GQA": 2, "MQA": 1}  # heads of keys and values, for four heads of queries


def tokens_per_second(model, batch, tokens, use_cache, repeats=2):
    """The best of some runs that each generate `tokens` tokens after one."""
    prompt, best = mg.zeros(batch, 1, dtype=mg.int64), float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        model.generate(prompt, tokens, temperature=0, use_cache=use_cache)
        best = min(best, time.perf_counter() - began)
    return batch * tokens / best


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=255, metavar="N", help="to generate (default: 255)")
    parser.add_argument("--batch", type=int, default=1, metavar="B", help="sequences at a time (default: 1)")
    args = parser.parse_args(argv)
    print("     parameters  cache, bytes   tokens/s with it   without   ratio")
    for name, n_kv_head in KINDS.items():
        mg.manual_seed(0)
        model = nn.GPT(nn.GPTConfig.preset("nanogpt-cpu", block_size=256, n_kv_head=n_kv_head))
        cost = model.cost(batch=args.batch)
        held = sum(layer.nbytes for layer in model.new_cache(args.batch))
        assert held == cost.kv_cache
        fast, slow = (tokens_per_second(model, args.batch, args.tokens, use_cache) for use_cache in (True, False))
        print(f"{name}  {cost.parameters:10,} {held:13,} {fast:18,.0f} {slow:9,.0f} {fast / slow:7.1f}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
