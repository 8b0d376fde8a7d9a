"""What all tests share: a place for a store, the length of a campaign, profiles, and no skips in CI."""

import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from tests.servers.places import place

__all__ = ["place"]

# The suite lives in the package, so its asserts must be asked to explain themselves.
pytest.register_assert_rewrite("raf.testing.store_suite")

# CI looks at the same examples each time, so that a red run is about its change; people and
# campaigns draw new ones.
settings.register_profile(
    "small",
    max_examples=20,
    deadline=None,
    print_blob=True,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],  # a busy machine is no fault of the code
)
settings.register_profile("medium", settings.get_profile("small"), max_examples=50)
settings.register_profile(
    "large",
    max_examples=2_000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--campaign`, the length of crash campaigns and property tests."""
    parser.addoption(
        "--campaign",
        choices=("short", "long"),
        default="long" if os.environ.get("RAF_CRASH") == "long" else "short",
        help="short for every day, long for `make crash` (also RAF_CRASH=long)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose the Hypothesis profile by the campaign, unless one was asked for by name."""
    if not config.getoption("--hypothesis-profile"):
        settings.load_profile("large" if config.getoption("--campaign") == "long" else "small")


@pytest.fixture(scope="session")
def campaign(pytestconfig: pytest.Config) -> str:
    """`"short"` or `"long"`: how far a crash campaign goes."""
    return str(pytestconfig.getoption("--campaign"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With RAF_CI=1 a skip is a failure: CI has every server and browser that a test wants."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("RAF_CI") == "1":
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and RAF_CI=1 allows none: {call.excinfo}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a module that skips itself as a whole."""
    report = yield
    if report.skipped and os.environ.get("RAF_CI") == "1":
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} was skipped, and RAF_CI=1 allows none"
    return report
