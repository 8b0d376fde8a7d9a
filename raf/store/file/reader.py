"""Reading sessions: try until one moment was seen whole."""

from collections.abc import Callable
from typing import TypeVar

from raf.errors import CheckpointError, StoreUnavailableError
from raf.store.file.moment import MissingError, Moment, VanishedError
from raf.store.file.names import folder_name
from raf.store.file.place import Place
from raf.store.model import Head, Reading, Select
from raf.store.order import damaged_head

Answer = TypeVar("Answer")

TRIES = 40
_CALM_TRIES = 5


class Reader:
    """Answers questions about sessions, each from one moment."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def ask(self, session_id: str, question: Callable[[Moment], Answer]) -> Answer | None:
        """Put a question to a session, also to one that has ended; None when there is none.

        Raises:
            CorruptRecordError: What the question needs is damaged or missing.
            StoreUnavailableError: The session changed too fast, each time.
        """
        lost: tuple[str, str] | None = None
        for turn in range(TRIES):
            folder = self._place.find(session_id).folder
            if folder is None:
                if self._place.stands():
                    return None
                raise StoreUnavailableError(self._place.url, "its root is gone")
            try:
                return question(Moment(folder, calm=turn < _CALM_TRIES))
            except (VanishedError, FileNotFoundError):
                lost = None
            except MissingError as missing:
                if lost == missing.signature:
                    raise missing.error from None
                lost = missing.signature
        raise StoreUnavailableError(
            self._place.url, f"session {session_id!r} changed faster than it could be read"
        )

    def look(self, session_id: str) -> Moment | None:
        """The session as it stands, also when it has ended."""
        return self.ask(session_id, _itself)

    def read(self, session_id: str, select: Select) -> Reading | None:
        """What is selected; None when there is no session or it has ended."""

        def question(moment: Moment) -> Reading | None:
            return None if moment.deleted else moment.reading(select)

        return self.ask(session_id, question)

    def scan(self, after: str, limit: int) -> list[Head]:
        """Heads in the order of their ids; one that cannot be read is listed as damaged."""
        heads: list[Head] = []
        for session_id, name in sorted(self._place.names()):
            if len(heads) >= limit:
                break
            if session_id <= after:
                continue
            if folder_name(session_id) != name:
                heads.append(damaged_head(session_id, "none of its records can be read"))
                continue
            try:
                moment = self.look(session_id)
            except (CheckpointError, StoreUnavailableError, OSError) as error:
                heads.append(damaged_head(session_id, str(error)))
                continue
            if moment is not None and not moment.deleted:
                heads.append(moment.head)
        return heads


def _itself(moment: Moment) -> Moment:
    return moment
