"""The table of ops, from their declarations."""

from ..autograd import registry

FAMILIES = {
    "elementwise": "Elementwise",
    "activation": "Activations",
    "select": "Selection, comparison and logic",
    "reduce": "Reductions and orderings",
    "movement": "Movement",
    "index": "Indexing and masks",
    "matmul": "Matrix products",
    "softmax": "Softmax and cross-entropy",
    "loss": "Losses",
    "attention": "Attention",
    "norm": "Norms",
    "dropout": "Dropout",
}


def table():
    """Markdown: each declared op or composite with the formula and derivative that its docstring states.

    Raises KeyError for an op of a family that has no title."""
    rows = {family: [f"| **{title}** | |"] for family, title in FAMILIES.items()}
    for d in sorted(registry.values(), key=lambda d: d.name):
        if d.builtin:
            formula = " ".join(d.doc.split("\n\n")[0].split())
            rows[d.family].append(f"| `{d.name}` | {formula.replace('|', chr(92) + '|')} |")
    head = ["| op | what it computes, and its derivative |", "|---|---|"]
    return "\n".join(sum(rows.values(), head))
