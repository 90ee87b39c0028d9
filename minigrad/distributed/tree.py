"""Sums along a fixed binary tree: the same bits, however many processes share the work.

Floating-point addition is commutative but not associative, and MPI promises no order for the sums of Allreduce. So the
order is fixed here: ((g0 + g1) + (g2 + g3)) + ((g4 + g5) + (g6 + g7)) for eight shards. A process that has 2^k shards
side by side computes a subtree, and the levels above are the exchanges between processes.
"""

import numpy as np


def is_power_of_two(n):
    return n > 0 and n & (n - 1) == 0


def tree_sum(parts):
    """The sum of 2^k parts, which come one by one: k + 2 of them are in memory at most.

    Raises ValueError for another number of parts."""
    stack, n = [], 0
    for part in parts:
        n += 1
        for _ in range((n & -n).bit_length() - 1):  # as a binary counter carries: two sums of one size become one
            part = stack.pop() + part
        stack.append(part)
    if not is_power_of_two(n):
        raise ValueError(f"a tree has 2, 4, 8, … parts, not {n}")
    return stack.pop()


def exchange(x, comm):
    """Replace x, a contiguous array (n,), by the sum over the 2^k ranks of comm, along the tree, the same on all.

    Each sends and receives 2 n (1 - 2^-k) numbers in 2 k messages. First, pairs at distances 1, 2, 4, … halve what they
    sum: one adds the first half, the other the second. Then they return the halves in the opposite order. (Rabenseifner
    and Träff, "More efficient reduction algorithms for non-power-of-two number of processors in message-passing
    parallel systems", 2004, call it recursive halving and doubling; the distances here grow, so that neighbours
    are summed first.)"""
    received = np.empty(-(-x.size // 2), x.dtype)
    done, distance, part = [], 1, x
    while distance < comm.size:
        partner, half = comm.rank ^ distance, len(part) // 2
        mine, theirs = (part[half:], part[:half]) if comm.rank & distance else (part[:half], part[half:])
        comm.Sendrecv(theirs, partner, recvbuf=received[: len(mine)], source=partner)
        mine += received[: len(mine)]  # a + b = b + a to the bit, so it does not matter which of the two adds
        done.append((partner, mine, theirs))
        part, distance = mine, 2 * distance
    for partner, mine, theirs in reversed(done):
        comm.Sendrecv(mine, partner, recvbuf=theirs, source=partner)
