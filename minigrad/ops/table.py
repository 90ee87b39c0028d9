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
    "softmax": "Softmax and losses",
    "attention": "Attention",
    "norm": "Norms",
    "dropout": "Dropout",
}


def table():
    """Markdown: each declared op or composite with the formula and derivative that its docstring states."""
    lines = ["| op | what it computes, and its derivative |", "|---|---|"]
    for family, title in FAMILIES.items():
        lines.append(f"| **{title}** | |")
        for d in sorted((d for d in registry.values() if d.builtin and d.family == family), key=lambda d: d.name):
            formula = " ".join(d.doc.split("\n\n")[0].split())
            lines.append(f"| `{d.name}` | {formula.replace('|', chr(92) + '|')} |")
    return "\n".join(lines)
