"""Pictures of autograd graphs, as DOT, SVG or PNG. They need the Python package graphviz.

`import minigrad` does not import this package.
"""

from .picture import Graph, graph

__all__ = ["Graph", "graph"]
