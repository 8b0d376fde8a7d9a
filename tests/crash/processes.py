"""Starts and ends the processes of the campaigns.

Most are forked from a server process that has loaded the package already, which costs a tenth of a
fresh interpreter; each is a process of its own all the same, with its own pid and start time.  Where
the interpreter matters (a tracer, a frozen owner), a fresh one is started.
"""

import json
import os
import subprocess
import sys
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Final

from tests.crash.forking import FORKING
from tests.crash.script import Job, job_text, main

ROOT: Final = Path(__file__).parents[2]
SCRIPT: Final = Path(__file__).with_name("script.py")


def _in_fork(job: Job) -> None:
    errors = os.open(job.errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(errors, sys.stderr.fileno())
    os.close(errors)
    main(job)


def fork(job: Job) -> ForkServerProcess:
    """A new process that works on a job."""
    job.result.unlink(missing_ok=True)
    process = FORKING.Process(target=_in_fork, args=(job,), daemon=True)
    process.start()
    return process


def interpreter(job: Job, *tracer: str) -> subprocess.Popen[bytes]:
    """A fresh interpreter that works on a job, below a tracer if one is given."""
    job.result.unlink(missing_ok=True)
    python = os.path.realpath(sys.executable) if tracer else sys.executable
    return subprocess.Popen(
        [*tracer, python, str(SCRIPT), job_text(job)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def told(job: Job) -> dict[str, Any]:
    """What a process told of its end; empty when it was killed."""
    if not job.result.exists():
        return {}
    answer: dict[str, Any] = json.loads(job.result.read_text("utf-8"))
    return answer
