"""Why backward walks the graph in topological order: the smallest graph on which another order goes wrong.

    python examples/why_topological_order.py [--out order.svg]

b is used twice, by c and by d. So its gradient is a sum of two contributions, and the backward of b must not run before
both have arrived. With fewer than three ops there is only one order: the op that made the result runs first. A leaf
cannot run too early, since it has no backward.
"""

import argparse

import minigrad as mg
from minigrad import viz

GREY, RED, GREEN = "#7d8590", "#dc3a42", "#238b45"
FORMULAS = {"b": "b = 3a", "c": "c = 2b", "d": "d = b + c"}


def f(a):
    b = 3 * a
    c = 2 * b
    d = b + c
    return b, c, d


def first_come(waiting):
    return waiting[0]


def newest_first(waiting):
    """Return the newest op. An op is newer than the ops whose outputs it uses, so this order is topological."""
    return max(waiting, key=lambda op: op.serial)


@mg.no_grad()
def walk(root, choose):
    """Walk backward from root. choose() picks the next of the ops that a gradient has reached; each runs once.

    Return {op or leaf: its final gradient} and the steps [(op, its gradient at that step, [(receiver, contribution),
    …])]."""
    gradients, waiting, steps, ran = {root.op: mg.ones_like(root)}, [root.op], [], set()
    while waiting:
        op = choose(waiting)
        waiting.remove(op)
        ran.add(op)
        parts, dxs = [], op.backward(gradients[op])
        for node, dx in zip(op.parents, dxs if isinstance(dxs, tuple) else (dxs,)):
            if node is None:  # an input that needs no gradient: the 2 and the 3
                continue
            to = node.op or node
            gradients[to] = gradients[to] + dx if to in gradients else dx
            parts.append((to, dx.item()))
            if node.op is not None and node.op not in ran and node.op not in waiting:
                waiting.append(node.op)
        steps.append((op, gradients[op].item(), parts))
    return gradients, steps


def print_walk(title, gradients, steps, names):
    """Print a walk, and mark each op that ran before its whole gradient had arrived."""
    print(f"\n{title}")
    ran = set()
    for number, (op, dy, parts) in enumerate(steps, 1):
        ran.add(op)
        sends = ", ".join(f"{dx:g} to {names[to]}" + (", too late" if to in ran else "") for to, dx in parts)
        early = f"   <- too early: in the end it has {gradients[op].item():g}" if dy != gradients[op].item() else ""
        print(f"  {number}. {names[op]} has {dy:g} and sends {sends}{early}")


def draw(walks, names):
    """Draw the walks side by side. Each op shows the number of its step."""
    import graphviz  # optional

    text = {"fontname": "Helvetica,Arial,sans-serif", "fontsize": "11"}
    dot = graphviz.Digraph("order", graph_attr={**text, "bgcolor": "transparent", "nodesep": "0.35", "ranksep": "0.35"})
    dot.attr("node", **text, shape="box", style="filled", color="#7f9cc4", fillcolor="#e6eef8", fontcolor="#1f2937")
    dot.attr("edge", **text, color=GREY, fontcolor=GREY, arrowsize="0.6")
    for title, (gradients, steps, colour) in walks.items():
        ids = {key: f"{title} {name}" for key, name in names.items()}
        ran = set()
        with dot.subgraph(name=f"cluster {title}") as panel:
            panel.attr(label=f"\u00a0{title}\u00a0", fontcolor=colour, margin="12")
            panel.attr(style="rounded,filled", color=GREY + "80", fillcolor=GREY + "14")
            for number, (op, dy, parts) in enumerate(steps, 1):
                ran.add(op)
                border = {"color": RED, "penwidth": "2"} if dy != gradients[op].item() else {}
                panel.node(ids[op], f"{FORMULAS[names[op]]}\nstep {number}: has {dy:g}", **border)
                for to, dx in parts:
                    late = {"color": RED, "fontcolor": RED, "style": "dashed"} if to in ran else {}
                    panel.edge(ids[op], ids[to], f"\u00a0{dx:g}{', too late' if late else ''}", **late)
            (leaf,) = gradients.keys() - ran
            border = {"color": colour, "penwidth": "2", "fillcolor": "#fbf0d5", "style": "filled,rounded"}
            panel.node(ids[leaf], f"a\ngets {gradients[leaf].item():g}", **border)
    return viz.Graph(dot)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", metavar="FILE", help="draw them: .svg, .png or .dot")
    args = parser.parse_args(argv)

    a = mg.tensor(1.0, requires_grad=True, dtype=mg.float64)
    b, c, d = f(a)
    names = {a.node: "a", b.op: "b", c.op: "c", d.op: "d"}
    print("b = 3a,  c = 2b,  d = b + c = 9a,  so dd/da = 9")
    wrong, right = (*walk(d, first_come), RED), (*walk(d, newest_first), GREEN)
    walks = {"first come, first served (wrong)": wrong, "newest first (right)": right}
    for title, (gradients, steps, _) in walks.items():
        print_walk(title, gradients, steps, names)

    d.backward()
    difference = (f(a + 1e-3)[-1] - f(a - 1e-3)[-1]).item() / 2e-3
    found = {title: gradients[a.node].item() for title, (gradients, _, _) in walks.items()}
    print("\ndd/da")
    for title, value in {**found, "minigrad's backward": a.grad.item(), "finite difference": difference}.items():
        print(f"  {title:<35}{value:.6f}")
    if args.out:
        print("\nwrote", *draw(walks, names).save(args.out))


if __name__ == "__main__":
    main()
