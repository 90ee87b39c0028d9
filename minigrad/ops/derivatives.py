"""The derivative that an op's docstring states, for people to read, in the letters of attention."""

import inspect
import re


def derivative(op, outputs=None, letters=None):
    """The part of an op's docstring after "y = …;" that says what the gradients are, such as "dx = dy y", or "".

    With outputs, {index: node} of the op, and letters, {node: letter}, its values are called by their letters: a matmul
    of pattern and v says "dpattern = dz vᵀ, dv = patternᵀ dz"."""
    doc = " ".join((type(op).__doc__ or "").split("\n\n")[0].split())
    found = re.search(r"; ((?:each )?d.*)", doc)
    if found is None or not letters:
        return found[1] if found else ""
    known = {argument(op, i): letters[node] for i, node in enumerate(op.parents) if node in letters}
    if len(outputs) == 1 and not op.outputs:
        known["y"] = letters.get(outputs[0], "y")
    text = re.sub(r"\b(d?)([a-z])(?![a-zA-Z])", lambda m: m[1] + known.get(m[2], m[2]), found[1])
    return text.replace("ᵀᵀ", "")


def argument(op, i):
    """What forward calls input i of an op."""
    names = [p for p in inspect.signature(op.forward).parameters.values() if p.kind is not p.KEYWORD_ONLY]
    if i >= len(names) or names[i].kind is names[i].VAR_POSITIONAL:
        return f"{names[-1].name}[{i - len(names) + 1}]"
    return names[i].name


def letters_of(graph):
    """{node: letter} of what attention has letters for: q, k, v, qk, pattern, z. graph: {op: {index: node}}."""
    found = {}

    def call(letters, nodes):
        for letter, node in zip(letters, nodes):
            if node is not None:
                found.setdefault(node, letter)

    for op, outputs in graph.items():
        if op.name == "attention":
            call("qkvz", (*op.parents[:3], outputs.get(0)))
        elif op.name == "attention_pattern":
            qk = op.parents[0]
            while qk.op is not None and qk.op.name in ("add", "mul") and qk.op.parents[0] is not None:
                qk = qk.op.parents[0]  # before it was scaled, and a float mask added
            call(("qk", "pattern"), (qk, outputs.get(0)))
            if qk.op is not None and qk.op.name == "matmul":
                call(("q", "kᵀ"), qk.op.parents)
    for op, outputs in graph.items():
        letters = [found.get(node) for node in (*outputs.values(), *op.parents)]
        if op.name == "permute" and letters[0] == "kᵀ":
            call("k", op.parents)
        elif op.name == "matmul" and letters[1] == "pattern":
            call("vz", (op.parents[1], outputs.get(0)))
    return found
