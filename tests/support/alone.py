"""Programs that nothing outside can be asked by, and that do not see all of the disk: Linux's namespaces.

All that such a program starts ends with it, however that comes about: it is the first process of its own system.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from support.patience import HANG

TESTS = Path(__file__).resolve().parents[1]
_CLOUDS = ("AWS_", "AZURE_", "GOOGLE_")

# `ip link set lo up`, where there is no iproute2: SIOCSIFFLAGS with IFF_UP (<net/if.h>, <linux/sockios.h>).
_WITH_LOOPBACK = """
import fcntl, os, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh", b"lo", 1))
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def entered(needs: list[str]) -> list[str]:
    """How a command is begun that has namespaces of its own. Skips the test where there are none.

    Args:
        needs: which, as unshare names them.
    """
    enter = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), *needs]
    try:
        tried = subprocess.run([*enter, "true"], capture_output=True, text=True, timeout=HANG, check=False)
    except FileNotFoundError as why:
        pytest.skip(f"no namespaces here: {why.strerror}: {why.filename}")
    if tried.returncode != 0:
        pytest.skip(f"no namespaces here: {tried.stderr.strip()}")
    return enter


def run(*arguments: object, seconds: float) -> str:
    """What Python prints that runs where there is no network but loopback. Skips the test where there are no
    namespaces. No cloud's credentials are there either, nor a home that may have some.

    Args:
        arguments: of Python, such as "-m" and a module of the tests.
        seconds: after so long it hangs.
    """
    enter = entered(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
    environment = {name: text for name, text in os.environ.items() if not name.startswith(_CLOUDS)}
    environment |= {"PYTHONPATH": os.pathsep.join(map(str, [TESTS, TESTS.parent])), "HOME": "/nonexistent"}
    environment["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")  # servers of ours
    done = subprocess.run(
        [*enter, sys.executable, "-c", _WITH_LOOPBACK, *map(str, arguments)],
        stdout=subprocess.PIPE,  # what goes wrong is told on stderr, which is the test's own
        text=True,
        env=environment,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def blind(command: list[str], directories: Iterable[Path]) -> list[str]:
    """A command that finds nothing in some directories, in a mount namespace that it has for itself."""
    hide = [f"mount -t tmpfs hidden {shlex.quote(str(directory))}" for directory in directories]
    script = " && ".join([*hide, 'exec "$@"'])
    return ["unshare", "--mount", "sh", "-c", script, "sh", *command]


def on_a_machine(
    name: str, disks: Mapping[Path, Path], hidden: Iterable[Path] = ()
) -> Callable[[list[str]], list[str]]:
    """What makes of a command one that runs on a machine with this name and disks of its own. Skips the test where
    there are no namespaces.

    Args:
        disks: what the machine has under a path.
        hidden: where it has nothing.
    """
    enter = entered(["--mount", "--uts"])
    steps = [f"mount --bind {shlex.quote(str(disk))} {shlex.quote(str(path))}" for path, disk in disks.items()]
    steps += [f"mount -t tmpfs hidden {shlex.quote(str(path))}" for path in hidden]
    script = " && ".join([*steps, f"hostname {shlex.quote(name)}", 'exec "$@"'])
    return lambda command: [*enter, "sh", "-c", script, "sh", *command]
