"""The conformance suite of the store port: what every backend must do, as tests.

Subclass it in a test module, name the class `Test...`, and say how a store is made:

    class TestMyStore(StoreSuite):
        async def make_store(self, tmp_path: Path, clock: Clock) -> Store:
            return MyStore(tmp_path / "place", clock=clock)

It needs pytest and pytest-asyncio.
"""

from raf.testing.store_suite.adopting import AdoptingTests
from raf.testing.store_suite.concurrency import ConcurrencyTests
from raf.testing.store_suite.deletion import DeletionTests
from raf.testing.store_suite.due import DueTests
from raf.testing.store_suite.fencing import FencingTests
from raf.testing.store_suite.identity import IdentityTests
from raf.testing.store_suite.inbox import InboxTests
from raf.testing.store_suite.journal import JournalTests
from raf.testing.store_suite.leases import LeaseTests
from raf.testing.store_suite.lifecycle import LifecycleTests
from raf.testing.store_suite.log import LogTests
from raf.testing.store_suite.pruning import PruningTests
from raf.testing.store_suite.reading import ReadingTests


class StoreSuite(
    LifecycleTests,
    LeaseTests,
    FencingTests,
    LogTests,
    JournalTests,
    ReadingTests,
    InboxTests,
    PruningTests,
    DeletionTests,
    AdoptingTests,
    DueTests,
    IdentityTests,
    ConcurrencyTests,
):
    """Everything that the store port promises.

    Override `make_store`, which returns a store that is not opened and that lies at one place for
    one `tmp_path`.  Set `durable = False` when what is stored does not outlive `close`, and
    `shareable = False` when a second instance cannot see the same place.  A store that keeps leases
    and `now()` by a clock of its own, as a server does, sets `clock_of_its_own = True` and overrides
    `pass_time`.
    """


__all__ = ["StoreSuite"]
