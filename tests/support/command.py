"""The command `rmqstore` as a process: with pipes, or at a terminal.

Most of what a command takes is to start Python and to import. One process has done both and waits; for each command it
makes a copy of itself, which runs what `python -m rmqstore_spark` runs. Only COMMAND shows that a command imports all
that it needs.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import pty
import re
import socket
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

COMMAND = [sys.executable, "-m", "rmqstore_spark"]
ESCAPE = re.compile("\x1b\\[[0-9;?]*[a-zA-Z]")  # what a terminal is told, and does not show
_HANGS = 300  # seconds after which a command is ended

# Standard input is a socket. Over it comes a request, with what is to be standard input, output and error; what goes
# back is the exit code.
_WAITING = """
import atexit, contextlib, gc, importlib, json, os, pkgutil, runpy, signal, socket, sys, threading
sys.path[:0] = json.loads(sys.argv[1])
import pyarrow.compute, pyarrow.csv, pyarrow.parquet
import rmqstore_spark
for module in pkgutil.walk_packages(rmqstore_spark.__path__, "rmqstore_spark."):
    if not module.name.startswith("rmqstore_spark.spark") and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
with contextlib.suppress(ImportError):
    import duckdb
gc.freeze()  # a copy shares the memory of what is not touched
requests = socket.socket(fileno=0)
while True:
    text, fds, *_ = socket.recv_fds(requests, 1 << 20, 3)
    if not text:
        sys.exit()
    process = os.fork()
    if process == 0:
        break
    for fd in fds:
        os.close(fd)
    requests.sendall(b"%d" % os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
requests.detach()
signal.alarm(int(sys.argv[2]))
for number, fd in enumerate(fds):
    os.dup2(fd, number)
    os.close(fd)
sys.stdin = sys.__stdin__ = open(0)
sys.stdout = sys.__stdout__ = open(1, "w")
sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, errors="backslashreplace")
told = json.loads(text)
if told["is_closed"]:
    sys.stdout.close()
    sys.stdout = sys.__stdout__ = None  # as Python begins where there is none
os.chdir(told["directory"])
os.environ.clear()
os.environ.update(told["environment"])
sys.argv[1:] = told["arguments"]
if told["ends_itself"]:
    runpy.run_module("rmqstore_spark", run_name="__main__", alter_sys=True)
    sys.exit()
try:
    runpy.run_module("rmqstore_spark", run_name="__main__", alter_sys=True)
    code = 0
except SystemExit as end:
    code = end.code or 0
threading._shutdown()
atexit._run_exitfuncs()
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)  # Python would touch, and so copy, all memory that is shared
"""


def nothing_found(asked: str, store: Path) -> str:
    """What a command that finds no message says: the store's log and its time span, as the tables have them."""
    from rmqstore_spark import Store

    rows = Store(store).segments(["startOffset", "endOffset", "firstStoreTimestamp", "lastStoreTimestamp"]).to_pylist()
    size = sum(row["endOffset"] - row["startOffset"] for row in rows if row["firstStoreTimestamp"] is not None)
    first, last = rows[0]["firstStoreTimestamp"], max(filter(None, (row["lastStoreTimestamp"] for row in rows)))
    amount = f"{size} bytes" if size < 1024 else f"{size / 1024:,.1f} KiB"
    end = f"{last:%H:%M:%S}" if first.date() == last.date() else f"{last:%Y-%m-%d %H:%M:%S}"
    return f"nothing found with {asked} in {amount} of log, stored {first:%Y-%m-%d %H:%M:%S} to {end} UTC, of {store}"


class Ran(NamedTuple):
    code: int
    out: str
    err: str


@cache
def _waiting() -> socket.socket:
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-c", _WAITING, json.dumps(sys.path), str(_HANGS)]
        process = subprocess.Popen(command, stdin=theirs.fileno())

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _begin(
    arguments: tuple[str | Path, ...],
    streams: list[int],
    environment: Mapping[str, str],
    is_closed: bool = False,
    ends_itself: bool = False,
) -> socket.socket:
    """Whoever calls this reads the exit code from the socket.

    Args:
        is_closed: there is no standard output.
        ends_itself: as Python does; else nothing is tidied up, which costs more than most commands.
    """
    told = {
        "arguments": [*map(str, arguments)],
        "directory": os.getcwd(),
        "environment": dict(environment),
        "is_closed": is_closed,
        "ends_itself": ends_itself,
    }
    waiting = _waiting()
    socket.send_fds(waiting, [json.dumps(told).encode()], streams)
    return waiting


def run(*arguments: str | Path) -> Ran:
    """With pipes."""
    ours, theirs = os.pipe()
    with open(os.devnull, "rb") as nothing, tempfile.TemporaryFile() as err:
        running = _begin(arguments, [nothing.fileno(), theirs, err.fileno()], os.environ)
        os.close(theirs)
        with open(ours, "rb") as pipe:
            out = pipe.read()
        code = int(running.recv(10))
        err.seek(0)
        return Ran(code, out.decode(), err.read().decode())


def run_without_output(*arguments: str | Path, is_closed: bool) -> Ran:
    """With a standard output that is closed, or full."""
    with open(os.devnull, "rb") as nothing, open("/dev/full", "wb") as full, tempfile.TemporaryFile() as err:
        running = _begin(
            arguments, [nothing.fileno(), full.fileno(), err.fileno()], os.environ, is_closed, ends_itself=True
        )
        code = int(running.recv(10))
        err.seek(0)
        return Ran(code, "", err.read().decode())


def at_terminal(columns: int, *arguments: str | Path) -> Ran:
    """At a terminal of a width; what goes to standard error is shown there, too."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    running = _begin(arguments, [theirs] * 3, {**os.environ, "TERM": "xterm-256color", "COLUMNS": "", "LINES": ""})
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # how Linux says that the other side is closed
            break
        if not part:
            break
        shown += part
    os.close(ours)
    return Ran(int(running.recv(10)), shown.decode().replace("\r\n", "\n"), "")
