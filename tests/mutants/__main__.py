"""Takes the guard of each promise away, and asks whether the tests that claim the promise notice.

    python -m tests.mutants                 all of them
    python -m tests.mutants P6 P9 -n 2      those of some promises, two at a time
    python -m tests.mutants -k postgres     those whose file or words hold a text
    python -m tests.mutants --list          only name them

Theory of operation.  `guards.toml` names for each promise the few lines that keep it, and what
stands there when the guard is gone.  The tree is copied once for each worker.  First the tests run
on an unchanged copy: they must be green, else red would prove nothing.  Then, guard by guard, its
lines are changed in a copy, the tests that `tests/claims.toml` maps to the promise run there, and
the lines are put back.  The tests must go red, while those of the table `works`, which ask for
nothing but normal work, stay green: what broke everything was no guard.

The last line counts the guards: `N passed, M failed`.  The exit code is 0 when none failed.
"""

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.guards import Guard, Project
from tests.mutants.trial import LONGEST_S, Copy, Verdict, copied, judge, run_tests

ROOT = Path(__file__).parents[2]


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Judge each chosen guard.

    Args:
        arguments: Of the command line.
        root: The project whose guards are judged.

    Returns:
        0 when each was noticed; 1 when one was not, or when a test is red with all in place;
        2 when nothing was chosen.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("promises", nargs="*", metavar="P1..P14")
    parser.add_argument("-k", dest="word", default="", help="only guards that hold this text")
    parser.add_argument("-n", dest="workers", type=int, default=1, help="guards at a time")
    parser.add_argument("--list", action="store_true", help="only name the guards")
    options = parser.parse_args(arguments)
    project = Project(root)
    chosen = [
        guard
        for guard in project.guards
        if (not options.promises or guard.promise in options.promises)
        and options.word in f"{guard.file} {guard.what}"
    ]
    if not chosen:
        print("no such guard")
        return 2
    if options.list:
        for guard in chosen:
            print(f"{guard.promise:4}{guard.file}: {guard.what}")
        return 0
    return judge_all(project, chosen, workers=max(1, options.workers))


def judge_all(project: Project, guards: Sequence[Guard], *, workers: int) -> int:
    """Judge guards, so many at a time; 1 when one of them failed or the tests were red before."""
    wanted = sorted({test for guard in guards for test in project.tests_to_run(guard)})
    with ExitStack() as stack:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for _ in range(min(workers, len(guards))):
            copies.put(stack.enter_context(copied(project.root)))
        copy = copies.get()
        print(f"all guards in place: {len(wanted)} tests ...", flush=True)
        before = run_tests(
            copy, wanted, workers=workers, stop_at_first=False, longest_s=12 * LONGEST_S
        )
        copies.put(copy)
        if before.code != 0:
            print(f"{before.said}\nall guards in place: RED")
            print("\n".join(before.red or [before.last]))
            print(f"0 passed, {len(guards)} failed")
            return 1
        print(f"all guards in place: green ({before.last})", flush=True)

        def judged(guard: Guard) -> bool:
            copy = copies.get()
            try:
                verdict, why = judge(project, copy, guard)
            finally:
                copies.put(copy)
            print(
                f"{guard.promise:4}{guard.file}: {guard.what}: {verdict.value} ({why})", flush=True
            )
            return verdict is Verdict.NOTICED

        with ThreadPoolExecutor(workers) as pool:
            passed = sum(pool.map(judged, guards))
    print(f"{passed} passed, {len(guards) - passed} failed")
    return 0 if passed == len(guards) else 1


if __name__ == "__main__":
    sys.exit(main())
