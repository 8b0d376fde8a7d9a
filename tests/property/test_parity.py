"""A run is what the rules say it is: unbroken, crashed and resumed, kept in any way, in any order.

Random workflows run for real beside the oracle, a second interpreter of the rules.  What an example
exercised is counted; a feature that too few examples reach fails the test, so that it cannot rot away.
"""

import ast
import itertools
import json
import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, assume, event, given, settings
from hypothesis import strategies as st

from tests.property.description import Data, Message
from tests.property.lives import Crash, How, Settings, Story, digests
from tests.property.oracle import Oracle
from tests.property.workflows import DOINGS, SHAPES, descriptions

pytestmark = pytest.mark.timeout(3600)  # a long campaign takes its time

ROOT: Final = Path(__file__).parents[2]
MOST_INVOCATIONS: Final = 80
LEAST_SHARE: Final = 0.05
ENOUGH: Final = 15  # examples, before a share says anything

FEATURES: Final = (
    "loop",
    "loop in loop",
    "barrier in loop",
    "quorum",
    "quiescent",
    "late",
    "conflict",
    "retry",
    "put off",
    "fallback",
    "skip",
    "effect",
    "switch",
    "chosen",
    "dead letter",
    "parked",
    "failed and resumed",
    "second run",
)
PHASES: Final[dict[str, tuple[tuple[str, ...], dict[str, Any]]]] = {
    # with the graphs that are crashed there, and the settings that make it likely
    "claim": (("late", "switch"), {}),
    "entry": (("barrier in loop", "chosen"), {}),
    "before run": (("loop in loop", "conflict"), {}),
    "in a node": (("late", "barrier in loop"), {}),
    "beside a finished node": (("quorum", "quiescent", "conflict"), {}),
    "effect": (("stop", "switch"), {}),
    "journal": (("conflict", "late"), {"durability": "sync"}),
    "before commit": (("late", "chosen"), {}),
    "after commit": (("late", "fallback"), {}),
    "compaction": (("loop in loop", "barrier in loop"), {"interval": 2, "most": 1000}),
    "prune": (("barrier in loop", "loop in loop", "stop"), {"interval": 1, "most": 1}),
    "outcome": (("late", "quorum"), {"interval": 50, "most": 1000}),
}
POINTS: Final = {
    "step.before_run": "before run",
    "step.after_run": "before commit",
    "commit.before": "before commit",
    "commit.after": "after commit",
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Thousands of nodes fail on purpose."""
    log = logging.getLogger("raf")
    level = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(level)


def phase_of(point: str) -> str:
    """The phase that a point of a life belongs to."""
    return POINTS.get(point, point.split(".", maxsplit=1)[0])


def examples(factor: float) -> settings:
    """As many examples as the profile says, times a factor."""
    count = max(1, int(settings().max_examples * factor))
    return settings(max_examples=count, suppress_health_check=[HealthCheck.too_slow])


class Watched(Oracle):
    """An oracle that keeps what was called and which barriers fired."""

    def __init__(self, d: Data, *, keeps: bool = True) -> None:
        super().__init__(d, keeps=keeps)
        self.visits: list[Message] = []
        self.fired: list[tuple[Data, Any]] = []

    def apply(self, todo: list[Message]) -> None:
        self.visits += todo
        assume(len(self.visits) <= MOST_INVOCATIONS)  # some workflows run on and on
        super().apply(todo)

    def fire(self, keys: list[Any]) -> None:
        self.fired += [(self.shape.named[name], path) for name, path in keys]
        super().fire(keys)

    def results(self) -> list[tuple[str, list[Any], int]]:
        """Status, outputs and steps of the run at each outcome but sleeping."""
        found: list[tuple[str, list[Any], int]] = []
        outputs, steps = list[Any](), 0
        for word, *told in self.events:
            outputs += told[1:] if word == "output" else []
            steps += word == "step_committed"
            if word == "outcome" and told[0] != "sleeping":
                found.append((told[0], list(outputs), steps))
            if told[:1] == ["completed"]:
                outputs, steps = [], 0
        return found


def interpreted(d: Data, *, keeps: bool = True) -> Watched:
    """What the oracle says."""
    return Watched(d, keeps=keeps).tell()


def check(story: Story, oracle: Watched) -> None:
    """The events, state and result are those of the oracle, and no node did what it must not."""
    events, state = story.seen()
    assert events == oracle.events
    expected = {place: v for place, v in oracle.flow.state.items() if v is not None}
    assert state == expected
    assert {k: list(v) for k, v in state.items() if isinstance(v, dict)} == {
        k: list(v) for k, v in expected.items() if isinstance(v, dict)
    }
    for result in story.results[-1:]:  # none, if the last crash came behind the last outcome
        assert (result.status, result.outputs, result.steps) == oracle.results()[-1]
    assert story.world.wrongs == []


# -- what an example has exercised ---------------------------------------------------------------


def features_of(story: Story, oracle: Watched) -> list[str]:
    """What really happened in a run, not what its description merely holds."""
    words = {word for word, *_ in oracle.events}
    outcomes = [told[1:] for told in oracle.events if told[0] == "outcome"]
    passes = [tuple(m.path.values()) for m in oracle.visits]
    leaving = [edge for m in oracle.visits for edge in oracle.shape.leaving[m.node]]
    waits = [edge["wait"] for edge, _ in oracle.fired]
    found = {
        "loop": any(max(turns, default=0) > 1 for turns in passes),
        "loop in loop": any(len(turns) > 1 and max(turns) > 1 for turns in passes),
        "barrier in loop": any(path for _, path in oracle.fired),
        "quorum": any(isinstance(wait, int) for wait in waits),
        "quiescent": "quiescent" in waits,
        "late": "late" in words,
        "conflict": any("conflict" in why for _, *why in outcomes),
        "retry": bool(story.world.unwell),
        "put off": ("sleeping",) in outcomes,
        "fallback": "fallback" in words,
        "skip": "node_skipped" in words,
        "effect": bool(story.world.acted),
        "switch": any(edge["kind"] == "switch" for edge in leaving),
        "chosen": any(edge["kind"] == "fan_out" and edge["choose"] for edge in leaving),
        "dead letter": "dead_letter" in words,
        "parked": any(status == "limited" and why != ["steps"] for status, *why in outcomes),
        "failed and resumed": any(status == "failed" for status, *_ in oracle.results()[:-1]),
        "second run": any(status == "completed" for status, *_ in oracle.results()[:-1]),
    }
    return [name for name, is_there in found.items() if is_there]


@contextmanager
def counted(*features: str) -> Iterator[Counter[str]]:
    """Counts features by example; of enough examples each must have had its share."""
    seen: Counter[str] = Counter()
    yield seen
    if seen["examples"] < ENOUGH:
        return
    rare = {name: seen[name] for name in features if seen[name] < LEAST_SHARE * seen["examples"]}
    assert not rare, f"too rare among {seen['examples']} examples: {rare}"


def count(seen: Counter[str], found: list[str]) -> None:
    """Count one example."""
    seen["examples"] += 1
    for name in dict.fromkeys(found):
        seen[name] += 1
        event(name)


def test_the_oracle_is_small_and_owes_nothing_to_raf() -> None:
    """At most 150 lines of code; neither it nor the language it speaks imports anything of raf."""
    for name in ("oracle.py", "description.py"):
        module = ast.parse((ROOT / "tests" / "property" / name).read_text(encoding="utf-8"))
        origins = [node.module for node in ast.walk(module) if isinstance(node, ast.ImportFrom)]
        names = [a.name for n in ast.walk(module) if isinstance(n, ast.Import) for a in n.names]
        assert not [m for m in [*origins, *names] if (m or "").split(".")[0] == "raf"]
    text = (ROOT / "tests" / "property" / "oracle.py").read_text(encoding="utf-8")
    docs = [
        range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and ast.get_docstring(node) is not None
    ]
    lines = enumerate(text.splitlines(), 1)
    code = [n for n, line in lines if line.strip() and not any(n in doc for doc in docs)]
    assert len(code) <= 150


# -- unbroken ------------------------------------------------------------------------------------


def test_an_unbroken_run_is_what_the_rules_say() -> None:
    """Events, state, outputs and steps of a run equal the oracle's; every effect happens once."""
    with counted(*FEATURES) as seen:
        for shape, doing in zip(
            [*SHAPES, "late", "conflict", "stop"], itertools.cycle(DOINGS), strict=False
        ):

            @examples(2.8 / len(SHAPES))
            @given(descriptions(shape, doing), st.sampled_from(["sync", "async", "exit"]))
            def holds(d: Data, durability: Any) -> None:
                oracle = interpreted(d, keeps=durability != "exit")
                story = Story(d=d, settings=Settings(durability=durability, journals=False))
                assert story.live()
                check(story, oracle)
                assert set(story.world.acted.values()) <= {1}
                count(seen, features_of(story, oracle))

            holds()


# -- crashed -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """A workflow, how it is kept, and how its lives end: phase, how far into it in per cent, how."""

    d: Data
    settings: Settings
    ends: list[tuple[str, int, How]]
    by_resume: list[bool]


@st.composite
def fates(draw: st.DrawFn, first: str, shape: str, doing: str) -> Fate:
    """A workflow that is crashed in one phase, and perhaps again in others."""
    _, wanted = PHASES[first]
    d = draw(descriptions(shape, doing))
    options: dict[str, Any] = {
        "interval": draw(st.sampled_from([1, 2, 3, 50, "auto"])),
        "most": draw(st.sampled_from([1, 4, 1000])),
        "durability": draw(st.sampled_from(["sync", "sync", "sync", "async", "exit"])),
        "journals": draw(st.sampled_from([True, True, False])) or first == "journal",
    }
    # Three losses would give an invocation up: at most two of the lives are killed.
    kills: list[list[How]] = [["kill", "kill"], ["kill", "cancel"], ["cancel", "kill"]]
    hows: list[How] = [*draw(st.sampled_from(kills)), "cancel"]
    phases = [first, *draw(st.lists(st.sampled_from(["", *PHASES]), max_size=2))]
    ends = [(p, draw(st.integers(0, 99)), how) for p, how in zip(phases, hows, strict=False)]
    by_resume = draw(st.lists(st.booleans(), min_size=4, max_size=4))
    return Fate(d=d, settings=Settings(**options | wanted), ends=ends, by_resume=by_resume)


def point(passed: list[str], phase: str, share: int) -> tuple[str, int]:
    """A point of this phase that another life has passed, so far into it; else any point."""
    names = [name for name in passed if phase_of(name) == phase]
    if not names:
        return "", 1 + share * len(passed) // 100
    name = names[share * len(names) // 100]
    return name, 1 + share % passed.count(name)


def lived(story: Story, fate: Fate, passed: list[str]) -> list[str]:
    """Live through all crashes until the session is settled; returns the phases of the crashes."""
    phases: list[str] = []
    for (phase, share, how), by_resume in zip(fate.ends, fate.by_resume, strict=False):
        name, nth = point(passed, phase, share)
        if story.live(Crash(phase=name, nth=nth, how=how), by_resume=by_resume):
            return phases
        phases.append(phase_of(story.world.crashed_at))
    assert story.live(by_resume=fate.by_resume[-1])
    return phases


def resumed(fate: Fate, path: Path | None = None) -> tuple[Story, Watched, list[str]]:
    """Run it unbroken and crashed, and hold both against the oracle."""
    oracle = interpreted(fate.d, keeps=fate.settings.durability != "exit")
    unbroken = Story(d=fate.d, settings=fate.settings)
    assert unbroken.live()
    check(unbroken, oracle)
    story = Story(d=fate.d, settings=replace(fate.settings, path=path))
    phases = lived(story, fate, list(unbroken.world.passed))
    check(story, oracle)
    assert len(story.world.acted) == len(unbroken.world.acted)
    assert story.restored().items() <= story.live_digests.items()
    return story, oracle, phases


def cases() -> list[tuple[str, str, str]]:
    """Phases, shapes and doings, each as often as it needs to be reached."""
    pairs = [(phase, shape) for phase, (shapes, _) in PHASES.items() for shape in shapes]
    doings = itertools.cycle(DOINGS)
    return [(p, s, "effect" if p == "effect" else next(doings)) for p, s in pairs]


def test_a_resumed_run_is_the_unbroken_one() -> None:
    """Killed or cancelled anywhere, once or more, and continued: the same events, state, outputs.

    Effects whose result was recorded are not repeated, none is left out, no node whose result was
    kept runs again, and what is stored is sound.
    """
    with counted(*FEATURES, *PHASES) as seen:
        for example in cases():

            @examples(4.2 / len(cases()))
            @given(fates(*example))
            def holds(fate: Fate) -> None:
                story, oracle, phases = resumed(fate)
                count(seen, [*features_of(story, oracle), *phases])

            holds()


def test_a_run_resumed_from_a_file_is_the_unbroken_one(tmp_path: Path) -> None:
    """The same with SQLite: each life opens the file anew."""
    files = itertools.count()

    @examples(0.25)
    @given(st.sampled_from(cases()).flatmap(lambda case: fates(*case)))
    def holds(fate: Fate) -> None:
        resumed(fate, tmp_path / f"{next(files)}.db")

    holds()


# -- kept and ordered in any way -----------------------------------------------------------------


@examples(0.5)
@given(descriptions())
def test_a_replayed_chain_is_the_snapshot_that_ran(d: Data) -> None:
    """At every commit, what is restored equals the live snapshot, whatever the interval of fulls."""
    oracle = interpreted(d)
    kept: list[dict[int, bytes]] = []
    intervals: list[Any] = [1, 3, "auto"]
    for interval in intervals:
        story = Story(d=d, settings=Settings(interval=interval))
        assert story.live()
        restored = story.restored()
        assert restored == story.live_digests
        assert len(restored) > len(oracle.results())
        kept.append(restored)
    assert kept[0] == kept[1] == kept[2]


@examples(0.6)
@given(descriptions(), st.integers(0, 999))
def test_the_order_of_completion_never_matters(d: Data, seed: int) -> None:
    """However the nodes of a step are delayed, every commit holds the same bytes."""
    interpreted(d)
    assert digests(d) == digests(d, seed) == digests(d, seed + 1)


def test_the_hash_seed_of_the_process_never_matters() -> None:
    """Other processes with other hash seeds commit the same bytes."""
    described: list[Data] = []

    @settings(max_examples=24, derandomize=True, database=None, phases=[Phase.generate])
    @given(descriptions())
    def collect(d: Data) -> None:
        interpreted(d)
        described.append(d)

    collect()
    here = [digests(d) for d in described]
    for seed in ("1", "4242"):
        told = subprocess.run(
            [sys.executable, "-c", "from tests.property.lives import main; main()"],
            input=json.dumps(described),
            capture_output=True,
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            text=True,
        )
        assert json.loads(told.stdout) == here
