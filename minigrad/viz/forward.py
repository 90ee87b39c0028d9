"""The picture of the forward pass: arrows run from leaves to results."""

from .fold import place
from .labels import DARK, DIM, parameter
from .picture import Picture


class Forward(Picture):
    between_boxes = False
    meanings = {
        "op": "an op with its parameters",
        "leaf": "a leaf: a parameter, or another tensor with requires_grad=True",
        "module": "a module, its ops folded into one box",
        "middle": "the middle of the graph, left out",
        "dot": "a dot is an input without a gradient: data, a number, or none given",
        "number": "|gradient| of the value: its Euclidean norm",
        "output": "which output of an op it is",
    }

    def others(self, box):
        return sum(op.parents.count(None) for op in self.ops if box[op] is op)  # dots

    def draw(self):
        self.leaving = {key: [] for key in self.sizes}  # box -> the values in it that are used outside
        for node in self.uses:
            if node.op is not None:
                self.leaving[self.box[node.op]].append(node)
        for op in self.ops:
            key = self.box[op]
            if key not in self.ids:
                self._op(op) if key is op else self.add_folded(key, self.module(key), self._outputs(key))
            for i, node in enumerate(op.parents):
                if node is None:
                    if key is op:
                        self.add((op, i), "dot", place(op), "an input without a gradient")
                        self.add_edge((op, i), key, i)
                    continue
                tail = self.box[node.op or node]
                if tail is node and node not in self.ids:
                    self.add_leaf(node)
                if tail != key:
                    label = " ".join(filter(None, (self.output_of(node), self.norm_of(node))))
                    self.add_edge(tail, key, i if key is op else None, label)  # by input, so x * x has two edges
        for node in self.roots:
            if self.box.get(node) is node and node not in self.ids:  # a leaf that no op uses
                self.add_leaf(node)

    def _op(self, op):
        dull = ["None", "False", *(str(node.shape) for node in self.leaving[op] if self.shapes)]
        shown = [f"{key}={parameter(value)}" for key, value in op.params.items() if parameter(value) not in dull]
        self.add_op(op, op.name, [(", ".join(shown), DARK)] * bool(shown) + self._outputs(op))

    def _outputs(self, key):
        """A line for each value that leaves the box and has a name or a shape to show."""
        lines = []
        for node in sorted(self.leaving[key], key=lambda node: (node.op.serial, node.index)):
            shape = f"{node.shape} {node.dtype}" if self.shapes else ""
            if text := ": ".join(filter(None, (self.names.get(node), shape))):
                lines.append((f"{self.output_of(node)} {text}".strip(), DIM))
        return lines[:5] + [(f"and {len(lines) - 5} more", DIM)] * (len(lines) > 5)
