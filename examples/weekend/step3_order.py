"""Step 3: each node waits, and passes its slope on once.

Step 2 is right and far too slow. Double a number twenty times by x = x + x: a million paths lead back to the start, and
step 2 walks each of them. The way out is to wait. A node passes its slope on when all parts of it have arrived. That is
so when every node made from it has had its turn. In a *topological order* each node comes after its parents; walk
through it backwards, and every node has its whole slope when its turn comes.

Predict before you run this file: a queue serves first the node that was found first. Which graph of three operations
does that get wrong?
"""

from step2_value import Value as Patient


def ordered(end):
    """Return the nodes that `end` was made of, and `end` itself: each once, and after its parents."""
    found, seen = [], set()

    def visit(node):
        # your turn: the first time you see a node, visit its parents, and only then append it to `found`
        if id(node) not in seen:
            seen.add(id(node))
            for parent in node.parents:
                visit(parent)
            found.append(node)
        # end

    visit(end)
    return found


def walk(end, dy):
    """Give `end` the slope dy, and add to the grad of each node that `end` was made of."""
    nodes = ordered(end)
    for node in nodes:
        if node.parents:  # nodes in between start from 0; at the leaves, slopes of several walks add up
            node.grad = 0 * node.grad
    end.grad = end.grad + dy
    # your turn: from the end to the leaves, each node with a back adds to the grads of its parents
    for node in reversed(nodes):
        if node.back:
            for parent, dx in zip(node.parents, node.back(node.grad)):
                parent.grad = parent.grad + dx
    # end


class Value(Patient):
    def backward(self, dy=1.0):
        walk(self, dy)


def queue(end):
    """Return the nodes in the order of a queue, for `walk` to go through: wrong, but for which graph?"""
    found, waiting = [], [end]
    while waiting:
        node = waiting.pop(0)
        if node not in found:
            found.append(node)
            waiting += node.parents
    return found


if __name__ == "__main__":
    import time

    from pictures import draw, stop_if_unfinished

    stop_if_unfinished()
    for kind, times in (Patient, (10, 14, 18)), (Value, (10, 14, 18, 200)):
        for n in times:
            y = x = kind(1.0)
            for _ in range(n):
                y = y + y
            began = time.perf_counter()
            y.backward()
            print(f"{n} doublings: slope {x.grad:.4g} in {time.perf_counter() - began:.4f} s")
    a = Value(1.0)
    b = a * 3
    y = b + b * 2
    y.backward()
    draw(y, "order.svg", orders=[[*reversed(ordered(y))], queue(y)])
    print("order.svg shows two places of each node: in your order, and in that of a queue. The queue serves b = 3a")
    print("before 2b, when only a part of b's slope has arrived.")
