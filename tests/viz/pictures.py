"""Helpers for the tests of pictures."""

import re

import pytest

import minigrad as mg

needs_dot = pytest.mark.needs("dot")


def leaf(*shape, **kwargs):
    return mg.randn(*shape, requires_grad=True, **kwargs)


def boxes(graph):
    """{id: (attributes as text, its label without markup)} of every node."""
    found = {}
    for id, attributes in re.findall(r"^\t+(n\d+) \[(.*)\]$", graph.source, re.M):
        label = re.search(r"label=<(.*?)>(?: \w+=|$)", attributes)
        found[id] = (attributes, re.sub(r"<[^>]*>", "\n", label[1]).split("\n") if label else [])
    return {id: (attributes, [line for line in lines if line]) for id, (attributes, lines) in found.items()}
