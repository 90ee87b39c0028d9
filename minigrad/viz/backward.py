"""The picture of the backward pass: arrows run from the loss to the leaves and carry gradients."""

import math
import textwrap

from ..ops.derivatives import derivative
from .fold import START, common_place, place, uses
from .labels import DARK
from .picture import Picture


class Backward(Picture):
    between_boxes = True
    meanings = {
        "start": "where backward starts: the gradient of the result",
        "op": "backward of an op: its derivative",
        "module": "backward of a module, its ops folded into one box",
        "middle": "the middle of the graph, left out",
        "plus": "a value was used more than once: its gradients are added",
        "leaf": "the .grad of a leaf: a parameter, or another tensor with requires_grad=True",
        "number": "|gradient|, its Euclidean norm",
        "shape": "shape of the gradient, which is that of the value",
        "output": "which output of the op it belongs to",
    }

    def others(self, box):
        return 1 + sum(len(found) > 1 for found in uses(self.ops, self.roots, box).values())  # the start, and each "+"

    def draw(self):
        scalar = all(math.prod(root.shape) == 1 for root in self.roots)
        self.add(START, "start", (), "the gradient of the result", "1" if scalar else "dy")
        for op in reversed(self.ops):
            key = self.box[op]
            if key not in self.ids:
                self._op(op) if key is op else self.add_folded(key, f"{self.module(key)} backward")
            for _, node in sorted(self.found[op].items()):
                self._gradient(node, key)
        for node in reversed(self.uses):
            if node.op is None:
                if self.box[node] is node:
                    self.add_leaf(node, ".grad")
                self._gradient(node, self.box[node])

    def _op(self, op):
        text = derivative(op, self.found[op], self.letters)
        self.add_op(op, f"{op.name} backward", [(row, DARK) for row in textwrap.wrap(text, 40)])

    def _gradient(self, node, head):
        """The edge that carries a value's gradient to its box; several edges meet in a "+"."""
        places = self.uses.get(node, [])
        if not places:  # the value is used only within its own box
            return
        if self.shapes:
            self.kinds.add("shape")
        name = f"d{self.names[node]}" if node.op is not None and node in self.names else self.output_of(node)
        label = name, str(node.shape) if self.shapes else "", self.norm_of(node)
        if len(places) > 1:
            plus = ("+", node)
            self.add(plus, "plus", common_place([place(key) for key, _ in places]), "a sum of gradients", "+")
            for key, i in places:
                self.add_edge(key, plus, i, self.norm_of((node, (key, i))))
            self.add_edge(plus, head, None, *label)
        else:
            ((key, i),) = places
            self.add_edge(key, head, i, *label)
