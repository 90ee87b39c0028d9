"""Shared by all plots: matplotlib, which is optional and imported only for drawing, and its colours."""

import io
import warnings

from ..base.files import atomic_write

# Told apart with any colour vision (Okabe and Ito 2008), and by brightness on white. Pictures of study.flow use the
# first three for Q, K and V, and the grey for other readers.
COLOURS = "#0072b2", "#d55e00", "#009e73", "#666666", "#cc79a7", "#e69f00", "#56b4e9"
DPI = 120


def new_figure(what, size):
    """A matplotlib Figure of (width, height) inches, or an ImportError that says how to install it."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # needs no display
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(f"{what} needs matplotlib: pip install matplotlib") from None
    figure = Figure(figsize=size, dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure, path):
    """Write a PNG."""
    image = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # characters that the font lacks are drawn as boxes
        figure.savefig(image, format="png")
    atomic_write(path, image.getvalue())
