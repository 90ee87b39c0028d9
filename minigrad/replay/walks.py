"""Backward in a captured step: a walk is one Entry, unless user code runs in it."""

from ..autograd import Node, mode
from ..autograd.walk import backward, reachable, walked
from ..base.recording import CaptureError, user_line
from .binding import Binding
from .entries import GONE, Entry, parts


class Walks(Binding):
    """The part of a Follower that walks backward."""

    def walk(self, roots, cotangents, inputs, retain_graph, create_graph, inspect):
        """autograd.backward. A walk in which no user code runs is one Entry."""
        retain = create_graph or inspect is not None if retain_graph is None else retain_graph
        targets = None if inputs is None else [self.static.get(node, node) for node in inputs]
        roots = [self.static.get(node, node) for node in roots]
        looks = inspect is not None or mode.inspecting or mode.watch is not None
        hooks = self.hooked or any(given.hooks for given in self.static if type(given) is Node)
        if create_graph or looks or hooks or any(node.op is None for node in roots):
            return self._walk_in_python(roots, cotangents, targets, retain, create_graph, inspect)
        if any(node.op not in self.recording.ops and node.op is not GONE for node in roots):
            raise CaptureError(f"a graph that began before the captured step cannot be walked in it ({user_line()})")
        form = tuple(roots), targets, retain
        for e in self.at.next:
            if e.kind == "walk" and e.form == form and self._takes_gradients(e, cotangents):
                break
        else:
            e = self._record_walk(form, roots, cotangents, targets)
        self._pass(e, ())
        if not retain:
            self.spent.append(e.ops)
        for leaf, _, array, storage in e.leaves:
            self.real[leaf].grad = self._made(array, None, storage)
        return None if targets is None else [None if out is None else self._made(*out) for out in e.outs]

    def _takes_gradients(self, e, cotangents):
        mark = len(self.journal)
        if not self._takes(e, cotangents):
            return False
        for leaf, before, *_ in e.leaves:
            g = self.real[leaf].grad
            if g is None or before is None:
                fits = g is before
            else:
                fits = g.array is before or self._same_array(e, g.array, before, g)
            if not fits:
                self._undo(mark)
                return False
        return True

    def _record_walk(self, form, roots, cotangents, targets):
        e = Entry("walk", form)
        e.ops, mark = set(reachable(roots, 0)), len(self.journal)
        for op in e.ops:
            if op.spent or any(op in ops for ops in self.spent):
                raise op.already_spent()
        leaves = {node: None for op in e.ops for node in op.parents if node is not None and node.op is None}
        given = [self._proxy(e, g) for g in cotangents]
        e.inputs = [parts(g) for g in given]
        try:
            for leaf in leaves if targets is None else ():
                g = self.real[leaf].grad
                leaf.grad = leaves[leaf] = None if g is None else self._proxy(e, g)
            found = self._recorded(e, lambda: backward(roots, given, targets, True), mark)
            for leaf, before in leaves.items():
                g = leaf.grad
                if targets is None and g is not before:
                    e.leaves.append((leaf, None if before is None else before.array, g.array, g.storage))
                    self.recording.storages.add(g.storage)
        finally:
            for leaf in leaves:
                leaf.grad = None
        for g in found or ():
            e.outs.append(None if g is None else parts(g))
            self.recording.storages.update(() if g is None else [g.storage])
        self._last(e, [array for _, _, array, _ in e.leaves] + [out[0] for out in e.outs if out is not None])
        self.at.next.append(e)
        return e

    def _walk_in_python(self, roots, cotangents, targets, retain, create_graph, inspect):
        """A walk whose ops are followed one by one, with the hooks and gradients of the leaves outside."""
        ops = set(reachable(roots, 0))
        leaves = [node for node in self.real if type(node) is Node and node.op is None]
        spent = [op for gone in self.spent for op in gone]
        try:
            for op in spent:
                op.spent = True
            for leaf in leaves:
                leaf.grad, leaf.hooks = self.real[leaf].grad, self.real[leaf].hooks
            return walked(roots, cotangents, targets, True, create_graph, inspect)
        finally:
            for op in spent:
                op.spent = False
            for leaf in leaves:
                self.real[leaf].grad, leaf.grad, leaf.hooks = leaf.grad, None, None
            if not retain:
                self.spent.append(ops)
