"""The HTML report of attention heads: see document.py."""

from .document import LIMIT, LayerView, page, visible, write
