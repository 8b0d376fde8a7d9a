"""Drawings of a workflow: `mermaid` for documents, `svg` for pages and notebooks, `text` for terminals."""

from raf.graph.draw.as_mermaid import mermaid
from raf.graph.draw.as_svg import svg
from raf.graph.draw.as_text import text
from raf.graph.draw.picture import DrawState

__all__ = ["DrawState", "mermaid", "svg", "text"]
