"""Pictures for scripts and shells: graphs as DOT, SVG or PNG, curves and heat maps as PNG.

`import minigrad` does not import this package. Graphs need the Python package graphviz, and curves and heat maps need
matplotlib: pip install graphviz matplotlib.
"""

from .heads import heads_grid
from .picture import Graph, graph
from .plots import curves, loss_curve, small_multiples

__all__ = ["Graph", "curves", "graph", "heads_grid", "loss_curve", "small_multiples"]
