"""The derivatives that the docstrings of ops state, as text for reports; values of attention have its letters."""

import inspect
import re


def derivative(op, outputs=None, letters=None):
    """Return the gradients as an op's docstring states them after "y = …;", such as "dx = dy y", or "".

    outputs: {index: node} of the op. letters: {node: letter}. With both, values have their letters: a matmul of pattern
    and v says "dpattern = dz vᵀ, dv = patternᵀ dz"."""
    doc = " ".join((type(op).__doc__ or "").split("\n\n")[0].split())
    match = re.search(r"; ((?:each )?d.*)", doc)
    if match is None or not letters:
        return match[1] if match else ""
    names = {argument(op, i): letters[node] for i, node in enumerate(op.parents) if node in letters}
    if len(outputs) == 1 and not op.outputs:
        names["y"] = letters.get(outputs[0], "y")
    text = re.sub(r"\b(d?)([a-z]+)(?![a-zA-Z])", lambda m: m[1] + names.get(m[2], m[2]), match[1])
    return text.replace("ᵀᵀ", "")


def argument(op, i):
    """The name of input i in an op's forward, or in the formula of a FormulaOp."""
    function = getattr(op, "formula", op.forward)
    names = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.KEYWORD_ONLY]
    if i >= len(names) or names[i].kind is names[i].VAR_POSITIONAL:
        return f"{names[-1].name}[{i - len(names) + 1}]"
    return names[i].name


def letters_of(graph):
    """Return {node: letter} of the values of attention in a graph, {op: {index of an output: node}}.

    The letters are those of head hooks and study.trace_heads: q, k, v, qk, pattern, z. With a float mask there are also
    scores = scale · qk, and masked, the scores plus the mask. k_shared and v_shared are read by several heads."""
    names = {}

    def name(letters, nodes):
        for letter, node in zip(letters, nodes):
            if node is not None:
                names.setdefault(node, letter)

    for op, outputs in graph.items():
        if op.name == "attention":
            q, k, v = op.parents[:3]
            shared = None not in (q, k, v) and k.shape[1] != q.shape[1]
            name(("q", "k_shared", "v_shared", "z") if shared else "qkvz", (q, k, v, outputs.get(0)))
        elif op.name == "attention_pattern":
            qk = op.parents[0]
            if op.scale == 1.0 and _made_by("add", qk) and _made_by("mul", qk.op.parents[0]):  # a float mask was added
                name(("masked", "scores"), (qk, qk.op.parents[0]))
                qk = qk.op.parents[0].op.parents[0]
            name(("qk", "pattern"), (qk, outputs.get(0)))
            while _made_by("add", qk) or _made_by("mul", qk):  # a head hook did this
                qk = qk.op.parents[0]
            if _made_by("matmul", qk):
                name(("q", "kᵀ"), qk.op.parents)
    dropped = {y: op.parents[0] for op, ys in graph.items() if op.name == "dropout" for y in ys.values()}
    for op in sorted(graph, key=lambda op: op.serial, reverse=True):
        outputs = graph[op]
        letter, parents = names.get(outputs.get(0)), op.parents
        if op.name == "permute" and letter == "kᵀ":
            name("k", parents)
        elif op.name == "matmul" and names.get(dropped.get(parents[0], parents[0])) == "pattern":
            name("vz", (parents[1], outputs.get(0)))
        elif op.name == "getitem" and letter in ("k", "v") and parents[0].shape[1] != outputs[0].shape[1]:
            name((f"{letter}_shared",), parents)
    return names


def _made_by(op_name, node):
    """True if an op of that name made the node."""
    return node is not None and node.op is not None and node.op.name == op_name
