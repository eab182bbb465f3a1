"""Run as a program: runs scripts, each in a process of its own that has torch loaded already.

Loading torch takes longer than many of the scripts that the tests run. A request is a line of
standard input, as JSON: a script and its arguments, its environment, and the files for its output
and its errors. A fork of this process, which has imported torch and nothing of ours, goes on as
that script: as its main module, to the interpreter's own end. The answer is a line with the exit
status.
"""

import importlib
import json
import os
import runpy
import sys
from pathlib import Path

LOADED = ("torch", "torch._dynamo")  # the second by the first step of any of torch's optimisers


def wait_for_request() -> tuple[list[str], dict[str, str], list[str]]:
    """Answer requests, each in a fork, in which this returns."""
    for line in sys.stdin:
        child = os.fork()
        if not child:
            return json.loads(line)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    sys.exit()


def become(command: list[str], environment: dict[str, str], files: list[str]) -> None:
    """Run a script as the interpreter would, its streams led to files."""
    for stream, (path, mode) in enumerate(
        zip((os.devnull, *files), ("rb", "wb", "wb"), strict=True)
    ):
        with open(path, mode) as file:
            os.dup2(file.fileno(), stream)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = command
    sys.path[0] = str(Path(command[0]).parent.absolute())
    runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    for name in LOADED:
        importlib.import_module(name)
    become(*wait_for_request())
