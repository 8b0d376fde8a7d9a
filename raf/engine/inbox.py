"""The inbox of a running session: what others asked of it and no commit consumed yet."""

from collections.abc import Sequence

from raf.engine.keeper import Watch
from raf.store.model import Request, Select
from raf.store.port import Store


class Inbox:
    """Requests in arrival order; reads the store again when the keeper has heard of more."""

    def __init__(
        self, store: Store | None, session_id: str, watch: Watch, requests: Sequence[Request]
    ) -> None:
        self._store = store
        self._session_id = session_id
        self._watch = watch
        self._requests = list(requests)

    async def take(self) -> list[Request]:
        """All requests that wait; the caller consumes them with its next commit."""
        if self._watch.requests_wait and self._store is not None:
            self._watch.requests_wait = False
            reading = await self._store.read(self._session_id, Select(requests=True))
            self._requests = list(reading.requests) if reading else []
        requests, self._requests = self._requests, []
        return requests
