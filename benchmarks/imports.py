"""What `import raf` costs beside the libraries that it stands on, each in fresh interpreters."""

import os
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks.rows import Row, Size

FLOOR = "import asyncio, pydantic, msgpack, zstandard"
CASES = {
    FLOOR: FLOOR,
    "import raf": "import raf",
    "every public name of raf": "import raf\nfor name in raf.__all__: getattr(raf, name)",
}


def seconds(statement: str, environment: dict[str, str]) -> float:
    """How long an interpreter takes from its start to its end."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True, env=environment)
    return time.perf_counter() - began


def measure(size: Size) -> list[Row]:
    """Whole processes in milliseconds; the cases take turns, so that they share the machine's moods."""
    with tempfile.TemporaryDirectory() as folder:
        # Compiled modules are kept and used, as on a user's machine.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for statement in CASES.values():
            seconds(statement, environment)
        taken: dict[str, list[float]] = {case: [] for case in CASES}
        for _ in range(size.processes):
            for case, statement in CASES.items():
                taken[case].append(seconds(statement, environment))
    return [
        Row(
            concern="imports",
            case=case,
            value=statistics.median(times) * 1e3,
            unit="ms",
            floor="" if case == FLOOR else FLOOR,
        )
        for case, times in taken.items()
    ]
