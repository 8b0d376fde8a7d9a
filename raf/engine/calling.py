"""One call of a node's code, with its deadlines."""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from raf.engine.context import NodeContext
from raf.engine.result import Failure
from raf.errors import NodeTimeoutError, RafError
from raf.topology.workflow import NodeCode

_KEPT_TEXT = 2000  # characters of an error's text that are recorded


async def in_thread(pool: ThreadPoolExecutor, fn: Callable[..., Any], *args: Any) -> Any:
    """Call a sync function in a thread of the pool, with this task's context variables."""
    call = contextvars.copy_context().run
    return await asyncio.get_running_loop().run_in_executor(pool, call, _call, fn, args)


def _call(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Call a function; a future cannot carry its StopIteration, so that becomes another error."""
    try:
        return fn(*args)
    except StopIteration as error:
        raise RuntimeError("the function raised StopIteration") from error


async def call_node(
    code: NodeCode, context: NodeContext, payload: Any, pool: ThreadPoolExecutor
) -> Any:
    """What the node's function returns.

    Raises:
        NodeTimeoutError: It took longer than the node's limit, or than its idle limit without a
            heartbeat; it was cancelled.
    """
    args = (context, payload) if code.takes_context else (payload,)
    if not code.is_async:
        return await in_thread(pool, code.call, *args)
    if code.timeout_s is None and code.idle_timeout_s is None:
        return await code.call(*args)
    loop = asyncio.get_running_loop()
    whole, idle = asyncio.timeout(code.timeout_s), asyncio.timeout(code.idle_timeout_s)
    if (limit := code.idle_timeout_s) is not None:
        context.on_heartbeat = lambda: idle.reschedule(loop.time() + limit)
    try:
        async with whole, idle:
            return await code.call(*args)
    except TimeoutError as error:
        if whole.expired():
            raise NodeTimeoutError(code.name, code.timeout_s or 0.0) from error
        if idle.expired():
            raise NodeTimeoutError(code.name, code.idle_timeout_s or 0.0, idle=True) from error
        raise


def failure_of(error: BaseException) -> Failure:
    """An error as it is recorded: its type and text, never the object."""
    code = error.code if isinstance(error, RafError) else ""
    try:
        text = str(error).encode("utf-8", "replace").decode()
    except Exception as fault:  # noqa: BLE001 - the error's own code may fail as well
        text = f"its text cannot be made ({type(fault).__name__})"
    return Failure(type(error).__name__, text[:_KEPT_TEXT], code)
