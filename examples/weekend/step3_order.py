"""Step 3: everybody waits, and speaks once.

Step 2 is right, and hopeless: double a number twenty times by x = x + x, and a million paths lead back to the start. It
walks each of them. The way out is to wait. A node passes its slope on when all parts of it have arrived, which is when
everything made from it has had its turn. Backwards through a *topological order*, in which each node comes after its
parents, that is always so.

Predict before you run this file: who comes first is served first, as in a queue. That sounds fair. Which graph of three
operations does it get wrong?
"""

from step2_value import Value as Patient


def ordered(end):
    """All that `end` was made of, and `end` itself: each once, and after its parents."""
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
    """Give `end` the slope dy, and add to the grad of each node that it was made of."""
    nodes = ordered(end)
    for node in nodes:
        if node.parents:  # what is in between starts anew; at the leaves, slopes of several walks add up
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
    """The order of a queue, in which `walk` would go backward: wrong, but for which graph?"""
    found, waiting = [], [end]
    while waiting:
        node = waiting.pop(0)
        if node not in found:
            found.append(node)
            waiting += node.parents
    return found


if __name__ == "__main__":
    import time

    from pictures import draw

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
    draw(y, "order.svg", places=[[*reversed(ordered(y))], queue(y)])
    print("order.svg has two numbers in each node: when it speaks in your order, and when in that of a queue")
