"""The command `raf`: words to calls.

Rules of this room:
- Each command reads its words, calls the library, and shows the answer: no rule is decided here.
- Errors of `raf` become one sentence on standard error and an exit code (`exits`), never a
  traceback, unless `--debug` asks for it.
- What loads slowly (drawing, the demo) is loaded by the command that needs it.
"""

import io
import logging
import signal
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from raf.cli import (
    changing,
    checking,
    debug,
    drawing,
    looking,
    migrating,
    moving,
    options,
    recovering,
    running,
    screen,
    working,
)
from raf.cli.exits import ExitCode, code_of_error
from raf.errors import RafError

__all__ = ["app", "main"]

app = typer.Typer(
    name="raf",
    help="Durable workflows of agents: run them, look into them, resume them by session id.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(version("raf-engine"))
        raise typer.Exit


@app.callback()
def _raf(
    debugging: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks; also RAF_DEBUG=1.")
    ] = False,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    if debugging:
        debug.want()
    if debug.wanted():
        logging.basicConfig(level=logging.INFO)
    else:  # what matters of it is told once, by the command
        logging.getLogger("raf").addHandler(logging.NullHandler())


@app.command("demo")
def _demo(
    document: Annotated[
        Path | None,
        typer.Argument(
            metavar="DOCUMENT",
            help="A text or Markdown file; one that is in the public domain when left out.",
            show_default=False,
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="URL",
            help="Work in this store; one of its own, which goes at the end, when left out.",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the sessions, and say how to look at them.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Kill agents half-way, resume them, and compare.

    Nine agents review a document in a process of their own.  It is killed in mid-step, another
    process resumes the session, and what comes out is compared with an unbroken run.
    """
    from raf.cli.demo.story import demo  # noqa: PLC0415 - for this command only

    raise typer.Exit(demo(document, store, keep=keep, as_document=json))


app.command("run")(running.run)
app.command("resume")(running.resume)
app.command("cancel")(changing.cancel)
app.command("recover")(recovering.recover)
app.command("submit")(working.submit)
app.command("worker")(working.worker)
app.command("sessions")(looking.sessions)
app.command("show")(looking.show)
app.command("history")(looking.history)
app.command("diff")(looking.diff)
app.command("edit")(changing.edit)
app.command("fork")(changing.fork)
app.command("migrate")(migrating.migrate)
app.command("pin")(changing.pin)
app.command("unpin")(changing.unpin)
app.command("verify")(checking.verify)
app.command("repair")(checking.repair)
app.command("export")(moving.export)
app.command("import")(moving.import_)
app.command("prune")(changing.prune)
app.command("delete")(changing.delete)
app.command("graph")(drawing.graph)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process with its exit code.

    Args:
        arguments: What stands behind `raf`; those of the process when None.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what it cannot say is escaped, never an error
            stream.reconfigure(errors="backslashreplace")
    try:
        app(given, prog_name="raf")
    except RafError as error:
        code = _told(error, code_of_error(error), given)
    except KeyboardInterrupt:
        code = ExitCode.BY_SIGNAL + signal.SIGINT
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else ExitCode.OK
    except Exception as error:  # noqa: BLE001 - a fault of ours is told as one, too
        code = _told(error, ExitCode.FAULT, given)
    else:
        code = ExitCode.OK
    screen.flush()
    sys.exit(code)


def _told(error: Exception, code: ExitCode, given: Sequence[str]) -> int:
    """Tell a person, and a machine if one reads, what went wrong."""
    if debug.wanted():
        traceback.print_exception(error)
    what: dict[str, Any] = {"code": "fault", "message": str(error), "exit": int(code)}
    if isinstance(error, RafError):
        what["code"] = error.code
        screen.hint(f"raf: {error}")
    else:
        what["message"] = f"{type(error).__name__}: {error}"
        screen.hint(f"raf: a fault in raf itself: {what['message']} (raf --debug shows where)")
    if "--json" in given:
        screen.answer({"error": what}, as_document=True, show=lambda: None)
    return code
