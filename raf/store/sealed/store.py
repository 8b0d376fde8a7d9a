"""A store that encrypts what crosses its port and keeps the result in another store.

Theory of operation.  The store beneath does all the work: leases, order, atomicity, durability.  This
one seals every part on its way down and opens it on its way up (`raf.store.sealed.parts`).  What an
owner writes under one epoch is numbered, and the numbers are inside the envelopes: a record of the
journal, which has no public number, cannot be moved, doubled or put into another step's journal.

What stays readable beneath: ids (session, run, workflow, graph, request, queue, the session that
one was forked from), owners, statuses, numbers, times and sizes.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

from raf.store.adopted import check_adoptable
from raf.store.model import (
    Claimed,
    Commit,
    Due,
    Head,
    Kind,
    Lease,
    Owner,
    Reading,
    Request,
    Salvage,
    Select,
)
from raf.store.port import Store
from raf.store.sealed import envelope, parts
from raf.store.sealed.cipher import Cipher
from raf.store.sealed.envelope import Part
from raf.store.sealed.keys import KeyRing, ring_of_environment

_PAGE = 256


@dataclass(slots=True)
class _Pen:
    """How many records were written under one lease; held while one is on its way down."""

    written: int
    held: asyncio.Lock = field(default_factory=asyncio.Lock)


class SealedStore(Store):
    """Encrypts the sessions of another store; its URL is that store's.

    Args:
        inner: The store that keeps the sealed records.  It opens and closes with this one.
        keys: The current key seals; every key of the ring opens.

    Guarantees: nothing that a workflow put in reaches `inner` in clear; a record that was changed,
    or moved to another session, commit, epoch or part, is refused.  What `inner` promises of
    durability, order and fencing holds as it is.

    Raises:
        ConfigurationError: The extra `crypto` is not installed.

    Example:
        >>> from raf import InMemoryCheckpointStore, KeyRing, SealedStore
        >>> ring = KeyRing({"2026-01": bytes(32)}, current="2026-01")
        >>> SealedStore(InMemoryCheckpointStore(), ring).url
        'memory:'
    """

    def __init__(self, inner: Store, keys: KeyRing) -> None:
        super().__init__(clock=inner.clock)
        self.inner = inner
        self._keys = keys
        self._cipher = Cipher(keys)
        self._pens: dict[tuple[str, int], _Pen] = {}
        self._writing: set[asyncio.Future[None]] = set()

    @property
    def url(self) -> str:
        return self.inner.url

    async def open(self) -> None:
        await self.inner.open()

    async def close(self) -> None:
        if self._writing:
            await asyncio.wait(self._writing)
        await self.inner.close()

    @property
    def beneath(self) -> Store:
        return self.inner.beneath

    def over(self, beneath: Store) -> Store:
        return SealedStore(beneath, self._keys)

    async def now(self) -> float:
        return await self.inner.now()

    # -- leases ------------------------------------------------------------------------------------

    async def claim(
        self, session_id: str, owner: Owner, *, lease_s: float, create: bool = False
    ) -> Claimed:
        claimed = await self.inner.claim(session_id, owner, lease_s=lease_s, create=create)
        self._begin(claimed.lease)
        return claimed

    async def claim_due(
        self, owner: Owner, due: Due, *, lease_s: float, limit: int
    ) -> list[Claimed]:
        claims = await self.inner.claim_due(owner, due, lease_s=lease_s, limit=limit)
        for claimed in claims:
            self._begin(claimed.lease)
        return claims

    async def renew(self, leases: Sequence[Lease]) -> list[bool]:
        return await self.inner.renew(leases)

    async def release(self, lease: Lease) -> None:
        pen = self._pens.pop((lease.nonce, lease.epoch), None)
        async with pen.held if pen else nullcontext():
            await self.inner.release(lease)

    async def delete(self, lease: Lease) -> None:
        await self.inner.delete(lease)
        self._pens.pop((lease.nonce, lease.epoch), None)

    def _begin(self, lease: Lease) -> None:
        self._pens[lease.nonce, lease.epoch] = _Pen(0)

    async def _pen(self, lease: Lease) -> _Pen:
        """How far the records of a lease are numbered; of one that was claimed elsewhere, read."""
        pen = self._pens.get((lease.nonce, lease.epoch))
        if pen is None:
            select = Select(chain=True, journal=True)
            reading = await self.inner.read(lease.session_id, select)
            records = () if reading is None else (*reading.chain, *reading.journal)
            written = parts.newest_number(records, lease.epoch)
            pen = self._pens.setdefault((lease.nonce, lease.epoch), _Pen(written))
        return pen

    # -- writing -----------------------------------------------------------------------------------

    async def commit(self, lease: Lease, commit: Commit) -> None:
        async def write(pen: _Pen) -> None:
            pen.written += 1
            sealed = parts.seal_commit(self._cipher, lease, commit, pen.written)
            await self.inner.commit(lease, sealed)

        await self._in_turn(lease, write)

    async def append(self, lease: Lease, bodies: Sequence[bytes]) -> None:
        place = envelope.journal_place(lease.session_id, lease.nonce, lease.epoch)

        async def write(pen: _Pen) -> None:
            numbered = enumerate(bodies, pen.written + 1)
            pen.written += len(bodies)
            seal = self._cipher.seal
            await self.inner.append(
                lease, [seal(Part.JOURNAL, place, body, number) for number, body in numbered]
            )

        await self._in_turn(lease, write)

    async def _in_turn(self, lease: Lease, write: Callable[[_Pen], Awaitable[None]]) -> None:
        """Write when what was begun before has ended, so that numbers rise with positions.

        A write whose caller is cancelled goes on to its end, and the caller waits for that: the store
        beneath may be in the middle of it, and the next one must not overtake it.
        """
        pen = await self._pen(lease)
        await pen.held.acquire()
        writing = asyncio.ensure_future(write(pen))
        self._writing.add(writing)

        def ended(done: asyncio.Future[None]) -> None:
            pen.held.release()
            self._writing.discard(done)
            if not done.cancelled():
                done.exception()  # whoever left it does not ask

        writing.add_done_callback(ended)
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait([writing])
            raise

    async def request(self, session_id: str, request_id: str, kind: str, body: bytes) -> Request:
        reading = await self.inner.read(session_id, Select())
        nonce = (
            reading.head.nonce if reading else ""
        )  # then the store beneath says that it is missing
        sealed = parts.seal_request(
            self._cipher, session_id, nonce, request_id, kind=kind, body=body
        )
        stored = await self.inner.request(session_id, request_id, parts.SEALED, sealed)
        return parts.open_request(self._cipher, session_id, nonce, stored)

    async def prune(
        self, lease: Lease, bodies: Sequence[int], *, events_before: int | None = None
    ) -> None:
        await self.inner.prune(lease, bodies, events_before=events_before)

    async def adopt(self, session: Reading) -> None:
        await self.inner.scan(limit=0)  # first of all it must be open
        check_adoptable(session)  # what is sealed has other sizes: the store beneath cannot compare
        head, written = session.head, Counter[int]()
        log = []
        for record in session.log:
            if record.info.kind is not Kind.CLAIM:
                written[record.info.epoch] += 1
            number = written[record.info.epoch]
            log.append(parts.seal_record(self._cipher, head, record, number))
        await self.inner.adopt(
            Reading(
                head=parts.seal_head(self._cipher, head),
                log=tuple(log),
                inbox=tuple(parts.sealed(self._cipher, head, request) for request in session.inbox),
            )
        )

    # -- reading -----------------------------------------------------------------------------------

    async def read(self, session_id: str, select: Select) -> Reading | None:
        # A write here takes turns of the loop, also over a store that needs none: a reader that reads
        # on and on must leave it some.
        await asyncio.sleep(0)
        reading = await self.inner.read(session_id, select)
        if reading is None:
            return None
        head = reading.head
        opener = parts.Opener(self._cipher, head)
        opened = Reading(
            head=parts.open_head(self._cipher, head),
            chain=opener.open(reading.chain),
            journal=opener.open(reading.journal),
            requests=self._requests(head, reading.requests),
            events=opener.open(reading.events),
            infos=tuple(map(parts.open_info, reading.infos)),
            kept=tuple(map(parts.open_info, reading.kept)),
            run=opener.open([reading.run])[0] if reading.run else None,
            log=opener.open(reading.log),
            inbox=self._requests(head, reading.inbox),
        )
        opener.check_order()
        return opened

    async def salvage(self, session_id: str) -> Salvage | None:
        found = await self.inner.salvage(session_id)
        return None if found is None else parts.open_salvage(self._cipher, found)

    def _requests(self, head: Head, requests: Sequence[Request]) -> tuple[Request, ...]:
        return tuple(
            parts.open_request(self._cipher, head.session_id, head.nonce, request)
            for request in requests
        )

    async def scan(self, *, after: str = "", limit: int = 1000) -> list[Head]:
        heads = await self.inner.scan(after=after, limit=limit)
        return [parts.open_head(self._cipher, head) for head in heads]


async def keys_in_use(store: Store) -> dict[str, int]:
    """How many stored parts each key seals; under the empty id, how many are not sealed.

    Args:
        store: A sealed store, or the store beneath one; open.  Every record in it is read.

    Returns:
        Parts by key id.  A key that is not named may be taken out of the ring.

    Raises:
        CorruptRecordError: A record cannot be read, so its key is not known.
    """
    raw = store.beneath
    found = Counter[str]()
    after = ""
    while heads := await raw.scan(after=after, limit=_PAGE):
        for head in heads:
            reading = await raw.read(head.session_id, Select(log=True, inbox=True))
            if reading is not None:
                stored = parts.parts_of(reading.head, reading.log, reading.inbox)
                found.update(
                    envelope.key_id_of(part) if envelope.is_envelope(part) else ""
                    for part in stored
                )
        after = heads[-1].session_id
    return dict(found)


def sealed_by_environment(store: Store) -> Store:
    """The store, sealed when `RAF_KEYS` or `RAF_KEY_FILE` says so: what the command line does.

    Raises:
        ConfigurationError: The keys cannot be read, or the extra `crypto` is not installed.
    """
    ring = ring_of_environment()
    return store if ring is None else SealedStore(store, ring)
