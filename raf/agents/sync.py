"""Running a workflow from code that is not async: scripts and notebooks."""

import asyncio
import threading
from pathlib import Path
from typing import Any

from raf.engine.engine import WorkflowEngine
from raf.engine.outcome import RunResult
from raf.store.port import Store
from raf.topology.workflow import Workflow


def run_sync(
    workflow: Workflow,
    input: Any,  # noqa: A002 - the word of the field
    *,
    store: Store | str | Path = "memory:",
    session_id: str | None = None,
    run_id: str = "main",
    check: bool = True,
    **options: Any,
) -> RunResult:
    """Run a workflow and wait for its outcome; inside a running event loop, in a thread of its own.

    Args:
        workflow: What `build()` returned.
        input: What the start node gets.
        store: A store or its URL.
        session_id: The durable identity; a new one when None.
        run_id: Names the run within the session.
        check: Raise `RunFailedError` when the run fails.
        options: As in `WorkflowEngine`.

    Raises:
        RafError: As `WorkflowEngine.run` does.

    Example:
        >>> from raf import WorkflowBuilder, run_sync
        >>> def greet(name: str) -> str:
        ...     return f"hello, {name}"
        >>> hello = WorkflowBuilder("hello").add_node("greet", greet).set_start("greet").build()
        >>> run_sync(hello, "reader").outputs
        ['hello, reader']
    """

    async def main() -> RunResult:
        async with WorkflowEngine(workflow, store=store, **options) as engine:
            return await engine.run(input, session_id, run_id=run_id, check=check)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main())
    return _in_thread(main)


def _in_thread(main: Any) -> RunResult:
    found: list[RunResult] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            found.append(asyncio.run(main()))
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread
            failed.append(error)

    thread = threading.Thread(target=work, name="raf-run-sync")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]
