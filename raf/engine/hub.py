"""Shows events to readers in this process, and turns stored ones into what readers get.

Rules of this file:
- The store is the truth.  A reader keeps a cursor; what the hub hands over ahead of the store is
  taken when it is the next number, and a gap is filled from the store.
- A slow reader costs bounded memory: what does not fit its queue it reads from the store later.
- Live events have no number: they are shown at once, and lost for whoever does not keep up.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any, Final

from raf.checkpoint.restore import StoredEvent
from raf.checkpoint.writer import Committed
from raf.events import Event, Happening, Kind, steps_of
from raf.values.codec import decode
from raf.values.registry import TypeTable

QUEUE: Final = 1000


def shown_data(what: Happening, types: TypeTable) -> Mapping[str, Any]:
    """The details of an event for readers: outputs are decoded, digests left out."""
    if what.kind is not Kind.OUTCOME:
        return what.data
    data = {key: value for key, value in what.data.items() if key != "input"}
    if "outputs" in data:
        data["outputs"] = [decode(payload, types) for _, _, payload in data["outputs"]]
    return data


def shown_event(session_id: str, stored: StoredEvent, types: TypeTable) -> Event:
    """A stored event for readers."""
    what = stored.what
    return Event(
        session_id=session_id,
        run_id=stored.run_id,
        number=stored.number,
        kind=what.kind.text,
        step=stored.step,
        node=what.node,
        message=what.message,
        data=shown_data(what, types),
        value=decode(what.payload, types) if what.payload else None,
        at=stored.at,
    )


def stored_of(committed: Committed) -> list[StoredEvent]:
    """The events of a commit, as they will be read from the store."""
    steps = steps_of(committed.happenings, committed.step)
    return [
        StoredEvent(
            number=committed.first_event + place,
            commit=committed.commit,
            run_id=committed.run_id,
            step=step,
            at=committed.at,
            what=what,
        )
        for place, (what, step) in enumerate(zip(committed.happenings, steps, strict=True))
    ]


class Subscription:
    """One reader's queue."""

    def __init__(self, limit: int | None) -> None:
        self._queue: deque[Event] = deque(maxlen=limit)
        self._news = asyncio.Event()

    def put(self, event: Event) -> None:
        """Add an event; the oldest goes when the queue is full."""
        self._queue.append(event)
        self._news.set()

    def poke(self) -> None:
        """Wake the reader without an event."""
        self._news.set()

    def take(self) -> list[Event]:
        """All events that wait."""
        self._news.clear()
        events = list(self._queue)
        self._queue.clear()
        return events

    async def wait(self, seconds: float | None) -> None:
        """Return at the next news, or after so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return


class Hub:
    """Hands events of this engine's sessions to the readers in this process."""

    def __init__(self, types: TypeTable, *, limit: int | None = QUEUE) -> None:
        self._types = types
        self._limit = limit
        self._readers: dict[str, set[Subscription]] = defaultdict(set)

    def subscribe(self, session_id: str) -> Subscription:
        """A queue that gets the session's events from now on."""
        subscription = Subscription(self._limit)
        self._readers[session_id].add(subscription)
        return subscription

    def leave(self, session_id: str, subscription: Subscription) -> None:
        """End a subscription."""
        self._readers[session_id].discard(subscription)
        if not self._readers[session_id]:
            del self._readers[session_id]

    def watched(self, session_id: str) -> bool:
        """Whether anybody reads the session here."""
        return session_id in self._readers

    def show(self, session_id: str, committed: Committed) -> None:
        """Hand over the events of a commit that is durable."""
        if session_id not in self._readers:
            return
        for stored in stored_of(committed):
            event = shown_event(session_id, stored, self._types)
            for reader in self._readers[session_id]:
                reader.put(event)

    def show_live(self, event: Event) -> None:
        """Hand over a live event."""
        if event.session_id in self._readers:
            for reader in self._readers[event.session_id]:
                reader.put(event)
