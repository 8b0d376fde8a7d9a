"""The inbox: anyone may append, nobody is forgotten, repeats are known."""

import asyncio

import pytest

from raf.errors import SessionNotFoundError
from raf.store.model import Request, Select
from raf.store.port import Store
from raf.testing.clock import ManualClock
from raf.testing.store_suite.base import SuiteBase, head_of, must_read, new_session

INBOX = Select(requests=True)


async def _open(store: Store) -> list[Request]:
    return list((await must_read(store, select=INBOX)).requests)


class InboxTests(SuiteBase):
    """request."""

    async def test_requests_keep_their_order(self, store: Store, clock: ManualClock) -> None:
        """Sequence numbers begin at 1 and have no gap; every field comes back."""
        await new_session(store)
        first = await store.request("s", "r1", "signal", b"one")
        await self.pass_time(store, clock, 1)
        second = await store.request("s", "r2", "answer", b"two")
        assert await _open(store) == [first, second]
        assert [request.seq for request in (first, second)] == [1, 2]
        assert (second.request_id, second.kind, second.body) == ("r2", "answer", b"two")
        assert second.created_at == first.created_at + 1 == clock.now()
        head = await head_of(store)
        assert (head.requests, head.consumed) == (second.seq, 0)

    async def test_a_repeat_returns_the_first(self, store: Store) -> None:
        """The same request id again returns what is there and appends nothing."""
        await new_session(store)
        first = await store.request("s", "r1", "signal", b"one")
        assert await store.request("s", "r1", "signal", b"one") == first
        assert await store.request("s", "r1", "other", b"changed") == first
        assert await _open(store) == [first]

    async def test_a_repeat_after_it_was_consumed(self, store: Store) -> None:
        """A consumed request is still known by its id and is not delivered again."""
        pen = await new_session(store)
        first = await store.request("s", "r1", "signal", b"one")
        await pen.write(consumed=1)
        await pen.write()
        assert await store.request("s", "r1", "signal", b"one") == first
        assert await _open(store) == []
        assert (await head_of(store)).requests == 1

    async def test_a_commit_consumes(self, store: Store) -> None:
        """Requests up to the commit's number are gone from the inbox, later ones stay."""
        pen = await new_session(store)
        requests = [await store.request("s", f"r{n}", "signal", b"") for n in range(4)]
        await pen.write(consumed=2)
        assert await _open(store) == requests[2:]
        head = await head_of(store)
        assert (head.consumed, head.requests) == (requests[1].seq, requests[3].seq)
        late = await store.request("s", "late", "signal", b"")
        assert late.seq == requests[3].seq + 1

    async def test_no_session_no_inbox(self, store: Store) -> None:
        """A request to a missing or deleted session is an error."""
        with pytest.raises(SessionNotFoundError):
            await store.request("s", "r1", "signal", b"")
        pen = await new_session(store)
        await store.delete(pen.lease)
        with pytest.raises(SessionNotFoundError):
            await store.request("s", "r1", "signal", b"")

    async def test_a_request_needs_no_lease(self, store: Store) -> None:
        """Free, held and finished sessions take requests; the log is untouched."""
        pen = await new_session(store, commits=1)
        before = (await must_read(store)).infos
        await store.request("s", "held", "signal", b"")
        await store.release(pen.lease)
        await store.request("s", "free", "signal", b"")
        assert (await must_read(store)).infos == before
        assert [request.request_id for request in await _open(store)] == ["held", "free"]

    async def test_many_senders_at_once(self, store: Store) -> None:
        """Concurrent senders get numbers of their own; equal ids meet in one request."""
        await new_session(store)
        ids = [f"r{n // 2}" for n in range(40)]
        answers = await asyncio.gather(*(store.request("s", i, "signal", b"") for i in ids))
        for left, right in zip(answers[::2], answers[1::2], strict=True):
            assert left == right
        assert sorted({answer.seq for answer in answers}) == list(range(1, 21))
        assert [request.seq for request in await _open(store)] == list(range(1, 21))

    async def test_senders_and_the_owner_at_once(self, store: Store) -> None:
        """Requests that arrive between commits are neither lost nor reordered."""
        pen = await new_session(store, commits=1)

        async def send() -> None:
            for n in range(20):
                await store.request("s", f"r{n}", "signal", b"")

        async def own() -> None:
            for _ in range(20):
                await pen.write()

        await asyncio.gather(send(), own())
        assert [request.request_id for request in await _open(store)] == [
            f"r{n}" for n in range(20)
        ]
        assert (await head_of(store)).commit == pen.number

    @pytest.mark.parametrize("text", ["\u00e9/\u2028", "a\x00b", "\ud800", "", "x" * 2000])
    async def test_ids_and_kinds_of_any_text(self, store: Store, text: str) -> None:
        """Whatever text names a request comes back as it was."""
        await new_session(store)
        first = await store.request("s", text, text, b"")
        assert (first.request_id, first.kind) == (text, text)
        assert await store.request("s", text, text, b"") == first
        assert await _open(store) == [first]
