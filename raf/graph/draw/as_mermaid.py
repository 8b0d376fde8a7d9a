"""A workflow as a Mermaid flowchart; pure."""

from raf.graph.draw.picture import Box, Overlay, picture
from raf.topology.workflow import Workflow

_CLASSES = {
    "done": "fill:#e6f5ec,stroke:#1f8f55",
    "running": "fill:#e5effd,stroke:#2b6cd4,stroke-width:2px",
    "failed": "fill:#fde8e8,stroke:#cf3f3f,stroke-width:2px",
    "waiting": "fill:#fff4d9,stroke:#b97f00",
    "pending": "fill:#f1edfb,stroke:#7358c4",
    "idle": "fill:#fafafa,stroke:#b4bac4,color:#6b7280",
}
_ARROWS = {"plain": "-->", "loop": "-.->", "fallback": "-.->"}


def mermaid(workflow: Workflow, overlay: Overlay | None = None) -> str:
    """The graph as Mermaid text, for Markdown files and pages that draw it.

    Args:
        workflow: What to draw.
        overlay: How nodes of a session stand, by node name; names of other graphs are left out.

    Returns:
        A flowchart.  Names are escaped: none can change the drawing.

    Example:
        >>> from raf.graph.builder import WorkflowBuilder
        >>> one = WorkflowBuilder("w").add_node("a", str.upper).set_start("a").build()
        >>> print(mermaid(one))
        flowchart TD
          start((" ")) --> n0
          n0["a"]
          n0 --> output((("output")))
    """
    drawn = picture(workflow, overlay)
    said = ["flowchart TD"]
    for number, box in enumerate(drawn.boxes):
        if box.is_start:
            said.append(f'start((" ")) --> n{number}')
        said.append(f"n{number}{_shape(box)}")
        if box.is_output:
            said.append(f'n{number} --> output((("output")))')
    for line in drawn.lines:
        label = f'|"{_escaped(line.label)}"|' if line.label else ""
        said.append(f"n{line.source} {_ARROWS[line.style]}{label} n{line.target}")
    said += _overlay(drawn.boxes)
    return "\n  ".join(said)


def _shape(box: Box) -> str:
    words = [_escaped(box.label), *(f"<small>{_escaped(note)}</small>" for note in box.notes)]
    if box.state is not None and box.state.count > 1:
        words.append(f"<small>{box.state.count} times</small>")
    text = "<br/>".join(words)
    return f'{{{{"{text}"}}}}' if box.is_barrier else f'["{text}"]'


def _overlay(boxes: tuple[Box, ...]) -> list[str]:
    stands: dict[str, list[str]] = {}
    for number, box in enumerate(boxes):
        if box.state is not None:
            stands.setdefault(box.state.status, []).append(f"n{number}")
    said = [f"classDef {status} {_CLASSES[status]}" for status in stands]
    return said + [f"class {','.join(names)} {status}" for status, names in stands.items()]


def _escaped(text: str) -> str:
    """Text in which only letters, digits and harmless signs stand for themselves.

    Dots and dashes are no such signs: at the front of a text they would begin a list.
    """
    return "".join(c if c.isalnum() or c in " _,:?" else f"#{ord(c)};" for c in text)
