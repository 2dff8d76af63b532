"""The command `rmqstore` as a process: with pipes, or at a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import NamedTuple

COMMAND = [sys.executable, "-m", "rmqstore_spark"]


class Ran(NamedTuple):
    code: int
    out: str
    err: str


def run(*arguments: str | Path, stdin: bytes = b"") -> Ran:
    """With pipes."""
    ran = subprocess.run([*COMMAND, *map(str, arguments)], input=stdin, capture_output=True, check=False, timeout=120)
    return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())


def at_terminal(columns: int, *arguments: str | Path) -> Ran:
    """At a terminal of a width; what goes to standard error is shown there, too."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {**os.environ, "TERM": "xterm-256color"} | {"COLUMNS": "", "LINES": ""}
    with subprocess.Popen(
        [*COMMAND, *map(str, arguments)], stdin=theirs, stdout=theirs, stderr=theirs, env=env, close_fds=True
    ) as process:
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
    return Ran(process.returncode, shown.decode().replace("\r\n", "\n"), "")
