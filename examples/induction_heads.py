"""Train two layers of attention until they form induction heads, and show which gradients form them.

    python examples/induction_heads.py              about five seconds
    python examples/induction_heads.py --controls   also two trainings in which no induction can, or need, appear
    python examples/induction_heads.py --out runs   also writes runs/induction.html: the heads, their gradients, and the
                                                    flow

Each sequence is random tokens that repeat, with a period from 5 to 15 that differs from sequence to sequence. To
predict the next token, a head has to find where the current token stood before, and copy what followed it there. That
takes two layers (Elhage et al. 2021, Olsson et al. 2022). A head in the first writes to each position the token that
precedes it, and a head in the second looks for positions preceded by the current token. A period that was never trained
on, 16, shows whether the heads learned this or distances. (Expect 15 right predictions of 16 there. The last one must
look at position 16, counted from 0; in training, with periods up to 15, an earlier position always served as well.)

The script also shows why they form. At first no part of the model uses a previous-token head. Then the keys of the
second layer begin to use one. study.flow splits the gradient of that head by the part that reads it, and by Q, K or V.
The script prints these edges for the whole training, and names the strongest.

The controls: a single layer cannot do it; and with a single period, 12, the heads learn to look 11 tokens back.
"""

import argparse
from pathlib import Path

import minigrad as mg
from minigrad import optim, study

V = T = 32  # the vocabulary, and the tokens that the model sees
SEEN, UNSEEN = (5, 15), 16  # periods
STEPS, EVERY = 600, 50


def new_model(seed, n_layer=2):
    mg.manual_seed(seed)
    return study.AttentionOnly(V, T, n_layer)


def train(model, seed, periods=SEEN, steps=STEPS, watch=None, B=32, lr=1e-2):
    """Train on sequences whose periods are drawn uniformly from periods[0] to periods[1]. Return the model.

    watch(step, loss) is called after each step."""
    generator = mg.Generator(seed + 1000)
    optimizer = optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.98), weight_decay=1e-3)

    @mg.capture
    def update(idx, targets):
        _, loss = model(idx, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for step in range(1, steps + 1):
        tokens = study.repeated_tokens(generator.integers(periods[0], periods[1] + 1, (B,)), V, T + 1, generator)
        loss = update(tokens[:, :-1], tokens[:, 1:])
        if watch is not None:
            watch(step, loss.item())
    return model


@mg.no_grad()
def accuracy(model, period, n=256, seed=12345):
    """Return the share of right predictions on n new sequences, from the second period on."""
    tokens = study.repeated_tokens([period] * n, V, T + 1, mg.Generator(seed))
    logits, _ = model(tokens[:, :-1])  # (n, T, V)
    return (logits.argmax(-1) == tokens[:, 1:])[:, period:].float().mean().item()


def batches(period, n=64, seed=54321):
    """Return [(tokens, targets)] for study.head_importance. Only targets from the second period on count."""
    tokens = study.repeated_tokens([period] * n, V, T + 1, mg.Generator(seed))
    targets = tokens[:, 1:].clone()
    targets[:, : period - 1] = -100  # cross_entropy ignores it
    return [(tokens[:, :-1], targets)]


def induction(model, *periods):
    """Return the largest induction score of any head."""
    return study.head_scores(model, ["induction"], periods).best("induction")[2]


def report(title, model, seen):
    for period in seen, UNSEEN:
        score, right = induction(model, period), accuracy(model, period)
        print(f"{title}, period {period}: induction {score:.2f}, {right:.0%} right")


READERS = {"q": "Q", "k": "K", "v": "V", "": "the logits"}


def edges_by_input(flows, head):
    """Return {input: [the sum of a first-layer head's edges to it, at each step]}. The inputs are Q, K and V, over all
    heads of the second layer, and the logits."""
    return {p: [sum(edge for *_, by, edge in flow.out_of(head) if by == p) for _, flow in flows] for p in READERS}


def strongest(flows, head):
    """Return (edge, index of the flow, input) of the most negative sum."""
    return min((edge, i, p) for p, edges in edges_by_input(flows, head).items() for i, edge in enumerate(edges))


def explanation(flows, head):
    """Return edges_by_input as a table, and in words the strongest: its step, its heads, and the other inputs then."""
    if not flows:
        return f"(nothing yet: the flow is computed every {EVERY} steps)"
    steps, each = [step for step, _ in flows], edges_by_input(flows, head)
    lines = ["step  " + "".join(f"{'by ' + name if p else name:>12}" for p, name in READERS.items())]
    lines += [f"{step:4}  " + "".join(f"{each[p][i]:+12.4f}" for p in READERS) for i, step in enumerate(steps)]
    edge, i, p = strongest(flows, head)
    others = [f"{name} {each[o][i]:+.4f}" for o, name in READERS.items() if o != p]
    lines += [
        "",
        f"The strongest was at step {steps[i]}, by {READERS[p]}: {edge:+.4f}. The others then: {', '.join(others)}.",
    ]
    if p:
        readers = [f"{v} {x:+.4f}" for _, v, by, x in flows[i][1].out_of(head) if by == p]
        lines.append(f"It is the sum over these heads of the second layer: {', '.join(readers)}.")
    return "\n".join(lines)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--controls", action="store_true", help="also train a single layer, and on a single period")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="write induction.html there")
    args = parser.parse_args(argv)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)

    model, steps, scores, flows = new_model(args.seed), [], {"previous": [], "induction": []}, []

    def watch(step, loss):
        if step % EVERY == 0:
            table = study.head_scores(model, list(scores), [UNSEEN])
            steps.append(step)
            flows.append((step, study.flow(model, *batches(9))))
            for kind, values in scores.items():
                values.append(table.best(kind)[2])
            latest = ", ".join(f"{kind} {values[-1]:.2f}" for kind, values in scores.items())
            print(f"step {step}: loss {loss:.3f}, {latest}", flush=True)

    train(model, args.seed, steps=args.steps, watch=watch)
    emerged = [step for step, score in zip(steps, scores["induction"]) if score > 0.5]
    print(f"\nInduction {f'was there at step {emerged[0]}' if emerged else 'has not appeared'}. On period {UNSEEN}:\n")
    print(study.head_scores(model, periods=[UNSEEN]).sorted("induction"))
    head = study.head_scores(model, ["previous"], [UNSEEN]).best("previous")[:2]
    print(f"\nThe edges of head 0.{head[1]}, the previous-token head. If a number is negative, more of what the head")
    print(f"sends to the second layer's Q, K or V lowers the loss:\n\n{explanation(flows, head)}")
    importance = study.HeadTable({m: study.head_importance(model, batches(9), m) for m in study.METHODS})
    print(f"\nHow much the loss on period 9 rises without a head, in nats:\n\n{importance.sorted('ablate')}\n")
    report("two layers", model, 9)
    if args.controls:
        report("one layer", train(new_model(args.seed, n_layer=1), args.seed, steps=args.steps), 9)
        report("one period", train(new_model(args.seed), args.seed, (12, 12), args.steps), 12)
    if args.out:
        with study.trace_heads(model) as trace:
            model(*batches(9, n=2)[0])[1].backward()
        print("wrote", trace.to_html(args.out / "induction.html", flow=study.flow(model, *batches(9, n=2))))


if __name__ == "__main__":
    main()
