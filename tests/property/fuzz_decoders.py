"""Coverage-guided fuzzing of the decoders: `make fuzz SECONDS=60`, where atheris is installed.

Each decoder gets an equal share of the time, with its samples as the first corpus.  What is found is
printed with the bytes that do it; a find belongs into `test_decoders.py` as an example.
"""

import argparse
import contextlib
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

MEMORY_MB = 2048
LONGEST = 4096


def fuzz_one(name: str, seconds: int, corpus: str) -> None:
    """Fuzz one decoder in this process, which atheris ends."""
    import atheris  # type: ignore[import-untyped, import-not-found, unused-ignore]

    with atheris.instrument_imports(include=["raf"]):
        from raf.errors import RafError
        from tests.property.decoders import DECODERS

    decoder = DECODERS[name]
    for number, sample in enumerate(decoder.samples):
        Path(corpus, f"sample-{number}").write_bytes(sample)

    def one(data: bytes) -> None:
        with contextlib.suppress(RafError):
            decoder.read(data)

    options = [
        f"-max_total_time={seconds}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-max_len={LONGEST}",
        f"-artifact_prefix={corpus}-found-",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *options, corpus], one)
    atheris.Fuzz()


def main() -> int:
    """Fuzz every decoder, each in a process of its own; the number of those that have a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="in all")
    parser.add_argument("--only", help="one decoder, in this process")
    parser.add_argument("--corpus", help="where its corpus is")
    given = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        print("atheris is not installed: pip install atheris")  # noqa: T201 - a script tells
        return 0
    if given.only:
        fuzz_one(given.only, given.seconds, given.corpus)
        return 0
    from tests.property.decoders import DECODERS

    faults = 0
    share = max(1, given.seconds // len(DECODERS))
    for name in DECODERS:
        with tempfile.TemporaryDirectory() as corpus:
            words = ["--only", name, "--seconds", str(share), "--corpus", corpus]
            ran = subprocess.run(
                [sys.executable, "-m", "tests.property.fuzz_decoders", *words],
                capture_output=True,
                text=True,
                check=False,
            )
            told = ran.stdout + ran.stderr
            runs = [line for line in told.splitlines() if "number_of_executed_units" in line]
            print(name, *runs, "FAULT" if ran.returncode else "ok")  # noqa: T201 - a script tells
            if ran.returncode:
                faults += 1
                lines = [line for line in told.splitlines() if not line.startswith("INFO:")]
                print("\n".join(lines[-60:]))  # noqa: T201 - a script tells
    return faults


if __name__ == "__main__":
    sys.exit(main())
