"""The file store is killed, loses power, and is told by its disk that a call failed, at every place."""

import asyncio
import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from raf.clock import Clock
from raf.errors import SessionBusyError, StoreFullError, StoreUnavailableError
from raf.store.file import FileStore
from raf.store.port import Store
from raf.testing.clock import ManualClock
from raf.testing.crash import ENVIRONMENT, count_failpoints
from raf.testing.disk import CrashingDisk, FailingDisk, PowerLossError
from raf.testing.store_suite.base import LEASE_S, Pen, head_of, live_owner
from tests.crash.file_story import CLAIMS, SESSION, STORY, Hand, View, tell, told, view

pytestmark = pytest.mark.crash


async def goes_on(store: Store, clock: Clock, *, wait: bool) -> None:
    """Another owner takes the session, or makes it, and works."""
    owner = live_owner(clock, "heir")
    if wait and isinstance(clock, ManualClock):
        try:
            await store.claim(SESSION, owner, lease_s=LEASE_S, create=True)
        except SessionBusyError:
            clock.advance(LEASE_S + 1)
        else:
            return
    claimed = await store.claim(SESSION, owner, lease_s=LEASE_S, create=True)
    head = await head_of(store, SESSION)
    pen = Pen(store, claimed.lease, head)
    await pen.write(full=True, body=b"heir")
    await store.append(claimed.lease, [b"heir"])
    after = await view(store)
    assert after is not None
    assert after[0][1] == head.commit + 1
    sent = await store.request(SESSION, "heir", "signal", b"")
    assert sent.seq == head.requests + 1
    await store.prune(claimed.lease, [], events_before=head.events + 1)
    await store.delete(claimed.lease)
    assert await view(store) is None


def allowed(views: list[list[View]], done: int) -> list[View]:
    """What may stand after so many acknowledged steps and an interrupted next one."""
    following = views[done + 1] if done + 1 < len(views) else []
    return [views[done][-1], *following]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kept", "order"),
    [
        pytest.param(0.0, "in order", marks=pytest.mark.slow),
        pytest.param(0.5, "in order", marks=pytest.mark.slow),
        pytest.param(1.0, "in order", marks=pytest.mark.slow),
        (0.5, "in any order"),
    ],
)
async def test_power_loss_at_every_change(
    tmp_path: Path, campaign: str, kept: float, order: str
) -> None:
    """After a power loss every acknowledged step stands, and the one in flight wholly or not at all."""
    views = await told()
    chance = random.Random(1 if campaign == "short" else None) if order == "in any order" else None
    n = 1 + int(kept * 2) if campaign == "short" else 1
    stride = 5 if campaign == "short" else 1
    while True:
        done: list[int] = [0]
        place, clock = tmp_path / str(n), ManualClock(seed=1)
        disk = CrashingDisk(n, vault=place / "vault", kept=kept, chance=chance)
        with suppress(PowerLossError):
            await tell(FileStore(place / "store", clock=clock, disk=disk), clock, done.append)
        assert disk.crashed == (done[-1] < len(STORY))
        after = ManualClock(now=clock.now() + 60, boot_id="boot-2", seed=2)
        async with FileStore(place / "store", clock=after) as store:
            found = await view(store)
            assert found in allowed(views, done[-1]), f"change {n}, after step {done[-1]}"
            await goes_on(store, after, wait=True)
        shutil.rmtree(place)
        if not disk.crashed:
            break
        n += stride
    assert n > 150


async def try_again(hand: Hand, number: int, disk: FailingDisk, views: list[list[View]]) -> bool:
    """Do a step; when it fails, look, and do it again if it was not done.  Whether it failed."""
    step, _ = STORY[number - 1]
    try:
        await step(hand)
    except (StoreUnavailableError, StoreFullError):
        pass
    else:
        return False
    disk.heal()
    found = await view(hand.store)
    assert found in allowed(views, number - 1), f"step {number}"
    if found == views[number][-1] and found != views[number - 1][-1]:
        if hand.pen is not None and hand.pen.number + 1 == (found or [(0, -1)])[0][1]:
            await step(hand)  # a commit that stands is repeated: its owner must learn that
        elif number in CLAIMS:
            await claim_again(hand, number)
    elif number in CLAIMS:
        await claim_again(hand, number)
    elif found == views[number - 1][-1]:
        await step(hand)
    else:
        await STORY[number - 1][1][-1](hand)  # the second half of an append or a prune
    return True


async def claim_again(hand: Hand, number: int) -> None:
    """A claim whose answer was lost binds until its lease has run out."""
    step, _ = STORY[number - 1]
    try:
        await step(hand)
    except SessionBusyError:
        assert isinstance(hand.clock, ManualClock)
        hand.clock.advance(LEASE_S + 1)
        await step(hand)


@pytest.mark.parametrize(
    ("code", "late"),
    [
        pytest.param(errno.EIO, False, id="EIO", marks=pytest.mark.slow),
        pytest.param(errno.EIO, True, id="EIO after the work", marks=pytest.mark.slow),
        pytest.param(errno.ENOSPC, False, id="ENOSPC", marks=pytest.mark.slow),
    ],
)
async def test_every_call_fails_once(tmp_path: Path, campaign: str, code: int, late: bool) -> None:
    """A failed call is a typed error; the same owner looks, goes on, and the story ends the same."""
    views = await told()
    error = StoreFullError if code == errno.ENOSPC else StoreUnavailableError
    n, stride = (1 + late, 11) if campaign == "short" else (1, 1)
    failures = 0
    while True:
        place, clock = tmp_path / str(n), ManualClock(seed=n)
        disk = FailingDisk(n, code, late=late)
        store = FileStore(place, clock=clock, disk=disk)
        try:
            await store.open()
        except error:
            failures += 1
            await store.open()
        hand = Hand(store, clock)
        for number in range(1, len(STORY) + 1):
            failures += await try_again(hand, number, disk, views)
        disk.heal()
        assert await view(store) == views[-1][-1], f"call {n}: {disk.failed}"
        await store.close()
        shutil.rmtree(place)
        if not disk.failed:
            break
        n += stride
    assert failures > 20


@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
async def test_the_next_owner_works_after_a_dead_disk(tmp_path: Path, code: int) -> None:
    """When all calls fail from some moment on, what was acknowledged stands and another goes on."""
    views = await told()
    for n in range(5, 700, 23):
        place, clock = tmp_path / str(n), ManualClock(seed=1)
        disk = FailingDisk(n, code, forever=True)
        done = [0]
        try:
            await tell(FileStore(place, clock=clock, disk=disk), clock, done.append)
        except (StoreUnavailableError, StoreFullError):
            assert disk.failed
        clock = ManualClock(now=clock.now(), boot=clock.boot() + LEASE_S + 1, seed=2)
        async with FileStore(place, clock=clock) as store:
            assert await view(store) in allowed(views, done[-1])
            await goes_on(store, clock, wait=False)


async def points() -> dict[str, int]:
    """How often the story passes each failpoint."""
    clock = ManualClock()
    with tempfile.TemporaryDirectory() as folder, count_failpoints() as seen:
        await tell(FileStore(folder, clock=clock), clock, lambda _: None)
    return dict(seen)


POINTS = asyncio.run(points())
EVERY_DAY = {f"store.file.{at}" for at in ("commit.put.after", "fsync.after", "link.after")}


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(point, marks=() if point in EVERY_DAY else pytest.mark.slow)
        for point in sorted(POINTS)
    ],
)
async def test_sigkill_at_every_failpoint(tmp_path: Path, campaign: str, point: str) -> None:
    """A process killed at a failpoint leaves what it acknowledged, and its session free to take."""
    views = await told()
    count = POINTS[point]
    hits = range(1, count + 1) if campaign == "long" else [(count + 1) // 2]
    for hit in hits:
        place = tmp_path / str(hit)
        child = subprocess.run(  # noqa: ASYNC221 - nothing else runs meanwhile
            [sys.executable, "-m", "tests.crash.file_story", str(place)],
            env={**os.environ, ENVIRONMENT: f"{point}:{hit}:kill"},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=False,
        )
        assert child.returncode == -signal.SIGKILL, child.stderr
        done = len(child.stdout.split())
        async with FileStore(place) as store:
            assert await view(store) in allowed(views, done), f"hit {hit}, after step {done}"
            await goes_on(store, store.clock, wait=False)
