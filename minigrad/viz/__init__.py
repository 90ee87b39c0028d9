"""Pictures for scripts and shells: graphs as DOT, SVG or PNG, curves and heat maps as PNG.

`import minigrad` does not import this package. Graphs need the Python package graphviz, and curves and heat maps need
matplotlib: pip install graphviz matplotlib.

Contents
    Graph        What `graph` returns: `source` is the DOT text, `digraph` the graphviz.Digraph (restyle it before …
    curves       Draw {label: (xs, ys)} as lines, a PNG at `path`; up to 60 points get dots
    graph        The graph behind one or several Tensors, as a Graph to save
    heads_grid   Draw what each head attends to, a PNG at `path`: a row per layer, a column per head, queries from …
    loss_curve   Draw training and validation loss against the step, as a PNG at `path`
"""

from typing import TYPE_CHECKING

from ..base.missing import listing
from .graph import Graph, graph  # now rather than on demand, so that viz.graph is the function and not the submodule

__all__ = ["Graph", "curves", "graph", "heads_grid", "loss_curve"]

__dir__ = listing(__name__)

if TYPE_CHECKING:
    from .heads import heads_grid
    from .plots import curves, loss_curve
else:

    def __getattr__(name):
        if name in __all__:
            from . import heads, plots

            return getattr(heads if name == "heads_grid" else plots, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
