"""A conversation: several runs of one session, each a turn."""

from typing import Any, Self

from raf.engine.engine import WorkflowEngine
from raf.engine.outcome import RunResult
from raf.errors import ConfigurationError, SessionNotFoundError
from raf.store.model import check_session_id

TURN = "turn-"


class AgentSession:
    """A durable conversation with a workflow; its state is kept from turn to turn.

    Args:
        session_id: The durable identity.
        engine: The engine that runs the turns; needed for `send` only.

    Example:
        >>> AgentSession.with_id("talk-1").session_id
        'talk-1'
    """

    def __init__(self, session_id: str, engine: WorkflowEngine | None = None) -> None:
        self.session_id = check_session_id(session_id)
        self._engine = engine

    @classmethod
    def with_id(cls, session_id: str, engine: WorkflowEngine | None = None) -> Self:
        """The conversation of that id."""
        return cls(session_id, engine)

    async def send(self, message: Any, key: str | None = None, **options: Any) -> RunResult:
        """Run one turn.

        Args:
            message: The input of the turn.
            key: Names the turn: sending it again returns what is recorded.  Scripts that are meant
                to be run again pass one.  Without a key it is the turn after the last finished one,
                and an unfinished turn is continued by an equal message.
            options: As in `WorkflowEngine.run`.

        Raises:
            RunInputMismatchError: A turn of that key, or the unfinished one, had another message.
        """
        if self._engine is None:
            raise ConfigurationError("give the session an engine: AgentSession(session_id, engine)")
        run_id = key if key is not None else await self._next_turn(self._engine)
        return await self._engine.run(message, self.session_id, run_id=run_id, **options)

    async def _next_turn(self, engine: WorkflowEngine) -> str:
        await engine.open()
        try:
            head = await engine.manager.head(self.session_id)
        except SessionNotFoundError:
            return f"{TURN}1"
        if head.summary.status not in ("completed", "cancelled"):
            return head.summary.run_id
        done = [
            int(info.finished_run.removeprefix(TURN))
            for info in await engine.history(self.session_id)
            if info.finished_run.startswith(TURN) and info.finished_run[len(TURN) :].isdigit()
        ]
        return f"{TURN}{max(done, default=0) + 1}"
