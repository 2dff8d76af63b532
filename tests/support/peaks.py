"""A process that runs commands of the command line, each in a fork of itself with one core, and says how much memory of
its own each of them had at most: with one core nothing is read ahead, so that the number is the same in every run.

It takes a line with a JSON list of words for each command, and answers with a line: exit code, and bytes. Pages of
files that are mapped, as those of libraries, do not count."""

from __future__ import annotations

import importlib
import json
import os
import sys

# What commands load: a fork has it already.
_LOADED = (
    "api",
    "cli.commands",
    "cli.screen",
    "cli.progress_bar",
    "jobs.copy",
    "tables.registry",
    "tables.check.table",
)


def of_this_process() -> int:
    """The most bytes of its own that this process has had until now."""
    with open("/proc/self/status") as status:
        found = {name: text.split() for name, _, text in (line.partition(":") for line in status)}
    return 1024 * (int(found["VmHWM"][0]) - int(found["RssFile"][0]))


def _run(words: list[str], answers: int) -> None:
    from rmqstore_spark.cli.main import exit_code

    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    code = exit_code(words)
    os.write(answers, f"{code} {of_this_process()}\n".encode())


def main() -> None:
    for name in _LOADED:
        importlib.import_module(f"rmqstore_spark.{name}")
    answers = os.dup(sys.stdout.fileno())
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                _run(json.loads(line), answers)
            finally:
                os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
