"""A process that has loaded `raf`, and forks itself for each command it reads from standard input.

A line asks for one command: `[arguments, folder, environment, output, errors]` as JSON.  The answer
is its exit code on a line.  Starting Python and loading the library is most of what a short command
takes, so this makes a test of a hundred commands quick, with each still a process of its own.
"""

import json
import os
import sys

from raf.cli import main


def run(arguments: list[str], folder: str, env: dict[str, str], out: str, err: str) -> None:
    """Be the command, and never return."""
    os.chdir(folder)
    os.environ.update(env)
    for number, path in ((0, os.devnull), (1, out), (2, err)):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT
        os.dup2(os.open(path, flags, 0o600), number)
    sys.stdin = os.fdopen(0, "r", encoding="utf-8")
    sys.stdout = os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = os.fdopen(2, "w", encoding="utf-8")
    sys.path[0] = folder
    main(arguments)


def serve() -> None:
    """Answer until standard input ends."""
    for line in sys.stdin:
        if not os.fork():
            run(*json.loads(line))
        _, status = os.wait()
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
