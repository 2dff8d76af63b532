"""Processes of ours, none of which outlives the tests."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from support.patience import HANG

# A Java process with a small heap and a quick start.
SMALL_JVM = (
    "-Xms64m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Djava.net.preferIPv4Stack=true",
)

_START_SECONDS = HANG
_STOP_SECONDS = HANG


@dataclass(frozen=True)
class User:
    """Whom processes run as, instead of as root."""

    uid: int
    gid: int
    jars: Path  # a directory that everyone can enter, for copies


class ChildError(Exception):
    """A process of ours did not do its part."""


_alive: set[Process] = set()


@atexit.register
def _kill_all() -> None:
    for process in list(_alive):
        process.kill()


# Not even a killed pytest leaves a broker behind: PR_SET_PDEATHSIG, which Linux alone has, outlives the exec. (What
# subprocess offers for it, preexec_fn, is not for processes with threads. And with its user=, Python would have to be
# where that user can run it.) The system forgets it when the user changes, so that comes first.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
if sys.argv[1]:
    uid, gid = map(int, sys.argv[1].split(":"))
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
os.execv(sys.argv[2], sys.argv[2:])
"""


class Process:
    """A child in a process group of its own. Its output goes to a file, unless it is asked for."""

    def __init__(
        self,
        name: str,
        command: list[str],
        log: Path,
        environment: Mapping[str, str],
        user: User | None,
        pipes: bool = False,
    ):
        self.name = name
        self.log = log
        owner = f"{user.uid}:{user.gid}" if user else ""
        with log.open("ab") as out:
            self.popen = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, owner, *command],
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else out,
                stderr=out,
                env={**os.environ, **environment},
                cwd=log.parent,
                start_new_session=True,
            )
        _alive.add(self)

    def wait_for(self, text: str) -> None:
        end = time.monotonic() + _START_SECONDS
        while text not in self.log.read_text(errors="replace"):
            if self.popen.poll() is not None:
                raise ChildError(f"{self.name} ended with {self.popen.returncode} before it served:\n{self.tail()}")
            if time.monotonic() > end:
                raise ChildError(f"{self.name} did not serve within {_START_SECONDS} s:\n{self.tail()}")
            time.sleep(0.05)

    def tail(self, size: int = 4000) -> str:
        return self.log.read_text(errors="replace")[-size:]

    def stop(self) -> None:
        """Cleanly.

        Raises:
            ChildError: it had to be killed.
        """
        if self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
                raise ChildError(f"{self.name} did not stop within {_STOP_SECONDS} s:\n{self.tail()}") from None
        self._close()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        self._close()

    def _close(self) -> None:
        for stream in (self.popen.stdin, self.popen.stdout):
            if stream:
                with contextlib.suppress(OSError):
                    stream.close()
        _alive.discard(self)
