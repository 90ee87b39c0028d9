"""Pictures for scripts and shells: graphs as DOT, SVG or PNG, curves and heat maps as PNG.

`import minigrad` does not import this package. Graphs need the Python package graphviz, and curves and heat maps need
matplotlib: pip install graphviz matplotlib.
"""

from typing import TYPE_CHECKING

from .picture import Graph, graph

__all__ = ["Graph", "curves", "graph", "heads_grid", "loss_curve", "small_multiples"]

if TYPE_CHECKING:
    from .heads import heads_grid
    from .plots import curves, loss_curve, small_multiples
else:

    def __getattr__(name):
        if name in __all__:
            from . import heads, plots

            return getattr(heads if name == "heads_grid" else plots, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
