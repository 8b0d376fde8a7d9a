"""The options that several commands share, each in one wording."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

DEFAULT_STORE = "sqlite:raf.db"


class Durability(StrEnum):
    """When a step is on disk."""

    SYNC = "sync"
    ASYNC = "async"
    EXIT = "exit"


Store = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="RAF_STORE",
        metavar="URL",
        help="Where the sessions are: sqlite:PATH, file:DIR, postgresql://... or redis://...  With "
        "RAF_KEYS or RAF_KEY_FILE set, they are encrypted there.",
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Answer with one JSON document, for a machine to read.")
]
Reference = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:WORKFLOW",
        help="A workflow, or a function that makes one: pkg.module:name or path/file.py:name.",
        show_default=False,
    ),
]
MaybeReference = Annotated[
    str | None,
    typer.Option(
        "--workflow",
        metavar="MODULE:WORKFLOW",
        help="The code to go by, instead of the graph that the session holds.",
        show_default=False,
    ),
]
Session = Annotated[
    str, typer.Argument(metavar="SESSION", help="The id of the session.", show_default=False)
]
Input = Annotated[
    str | None,
    typer.Argument(
        metavar="INPUT",
        help="The input: text, read as JSON where the start node takes no text.",
        show_default=False,
    ),
]
InputFile = Annotated[
    Path | None,
    typer.Option("--input-file", metavar="PATH", help="Take INPUT from a file; -: from a pipe."),
]
InputJson = Annotated[
    str | None, typer.Option("--input-json", metavar="JSON", help="The input as JSON.")
]
NewSession = Annotated[
    str | None,
    typer.Option("--session", metavar="ID", help="The session; a new one when left out."),
]
RunId = Annotated[
    str, typer.Option("--run", metavar="ID", help="Names this run within the session.")
]
WaitS = Annotated[
    float,
    typer.Option(
        "--wait-s", metavar="SECONDS", min=0.0, help="Wait so long for a live owner to let go."
    ),
]
DurabilityOption = Annotated[
    Durability | None,
    typer.Option(
        "--durability",
        help="sync: a step is on disk before the next begins; async: one commit is in flight; "
        "exit: one commit at outcomes and before effects.",
        show_default="sync",
    ),
]
MaxSteps = Annotated[
    int | None,
    typer.Option(
        "--max-steps",
        min=1,
        metavar="N",
        help="Pause as limited after so many steps; resume grants as many more.",
        show_default="10000",
    ),
]
Interval = Annotated[
    str,
    typer.Option(
        "--interval",
        metavar="N",
        help="A full snapshot every N checkpoints, or auto.",
    ),
]
Stream = Annotated[
    bool, typer.Option("--stream", help="Show each event as it happens; with --json, one a line.")
]
NoWait = Annotated[
    bool, typer.Option("--no-wait", help="Do not wait for a retry that is due later: pause.")
]
AllowCompatible = Annotated[
    bool,
    typer.Option(
        "--allow-compatible",
        help="Go on under a changed graph where nothing that the session holds can meet the change.",
    ),
]
Renamed = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="OLD=NEW",
        help="A node, or the id of a loop or barrier, has another name now.",
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(
        "--drop",
        metavar="NAME",
        help="What has no place any more at this old node, loop or barrier may be lost.",
    ),
]
