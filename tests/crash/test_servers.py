"""The database dies or is not reached while sessions run on it: they end as unbroken ones."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from raf.errors import StoreUnavailableError
from tests.crash.backends import SERVERS, name_of
from tests.crash.crowd import Crowd, crowd_job, run_all
from tests.crash.small_parity import goes_on, small_model
from tests.crash.small_run import SmallJob, Teller, lines_of, output, run
from tests.servers import postgres, valkey
from tests.servers.proxy import Proxy, proxy

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(900)]

SESSIONS = {"short": 20, "long": 200}
RESTARTS = {"short": 3, "long": 12}
STRIDE = {"short": 5, "long": 1}  # each so many requests one is cut
MOST = 1000  # a small session makes fewer requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server of one test: where its stores are, and how it crashes and comes back."""

    url: str
    restart: Callable[[], None]

    @property
    def place(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port

    def behind(self, relay: Proxy) -> str:
        """The URL for who comes by a relay."""
        return self.url.replace(f":{self.place[1]}/", f":{relay.port}/")


def _postgres(until: ExitStack, folder: Path) -> Server:
    server = until.enter_context(postgres.running("fsync=on"))
    url = postgres.with_options(server.url, schema=name_of(folder))
    return Server(url=url, restart=server.restart)


def _redis(until: ExitStack, folder: Path) -> Server:
    server = until.enter_context(valkey.running())

    def restart() -> None:
        server.kill()
        server.start()

    return Server(url=f"{server.url}?prefix={name_of(folder)}", restart=restart)


@contextmanager
def server_of(backend: str, folder: Path) -> Iterator[Server]:
    """A server that the test has for itself."""
    with ExitStack() as until:
        yield {"postgres": _postgres, "redis": _redis}[backend](until, folder)


@asynccontextmanager
async def behind_a_relay(backend: str, folder: Path) -> AsyncIterator[tuple[Server, Proxy]]:
    """The same with a relay in front of it."""
    with server_of(backend, folder) as server:
        async with proxy(*server.place) as relay:
            yield server, relay


@pytest.mark.parametrize("backend", SERVERS)
async def test_the_server_crashes_every_few_seconds(
    backend: str, tmp_path: Path, campaign: str
) -> None:
    """Whatever the server had acknowledged stands; the runs wait for it, or are taken up again."""
    (tmp_path / "model").mkdir()
    with server_of(backend, tmp_path) as server:
        job = crowd_job(tmp_path, server.url, rounds=40)
        model = await small_model(tmp_path / "model", job)
        crowd = Crowd(job=job, sessions=SESSIONS[campaign], kills=0, seed=0)
        working = asyncio.ensure_future(run_all(job, range(crowd.sessions)))
        crashes = 0
        chance = random.Random(1)
        while crashes < RESTARTS[campaign] and not working.done():
            await asyncio.wait([working], timeout=chance.uniform(0.3, 1.5))
            await asyncio.to_thread(server.restart)
            crashes += 1
        await working
        await crowd.check(model)
    assert crowd.faults == []
    assert crashes


async def run_again(job: SmallJob) -> list[int]:
    """Run a job; a store that could not be opened is opened again."""
    try:
        return await run(job, Teller(job.told))
    except StoreUnavailableError:
        assert not lines_of(job)
        return await run(job, Teller(job.told))


@pytest.mark.parametrize("end", ["before", "after"])
@pytest.mark.parametrize("backend", SERVERS)
async def test_the_link_is_cut_at_a_request(
    backend: str, end: str, tmp_path: Path, campaign: str
) -> None:
    """Before the server has it, or behind it with the answer lost: nothing is lost or done twice."""
    (tmp_path / "model").mkdir()
    model = await small_model(tmp_path / "model", SmallJob(folder=str(tmp_path), url=""))
    met = 0
    async with behind_a_relay(backend, tmp_path) as (server, relay):
        for n in range(1, MOST, STRIDE[campaign]):
            folder = tmp_path / str(n)
            folder.mkdir()
            url = server.behind(relay).replace(name_of(tmp_path), name_of(folder))
            job = SmallJob(folder=str(folder), url=url)
            # The store is made before: how it is made under cuts is its own tests'.
            await run(replace(job, run=False), Teller(job.told))
            cut = relay.cut_before if end == "before" else relay.cut_after_forward
            here = cut(n)
            assert await run_again(job) == output(job)
            reached, here.n = here.n == 0, 0  # one that was not reached is not to wait any longer
            await goes_on(job, model)
            starts = [line["message"] for line in lines_of(job) if line["what"] == "start"]
            assert len(starts) == len(set(starts))
            if not reached:
                break
            met += 1
    assert met > 4
