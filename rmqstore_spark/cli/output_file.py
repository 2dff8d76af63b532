"""The file that a command writes its rows to. It appears only when it is complete, and never in a store."""

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from typing import IO

from rmqstore_spark.errors import OptionError, one_line

_IN_A_STORE = {"commitlog", "consumequeue"}
_SEGMENT = re.compile(r"[0-9]{20}")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def output_file(path: str, is_forced: bool) -> Iterator[IO[bytes]]:
    """A file to write to, which gets this path when everything was written; an older file stays until then.

    Args:
        is_forced: whether there may be an older file.

    The file is made beside the path under a random name, so nobody can have put a link there. A link at the path
    itself is followed, as a shell does. A pipe or a device at the path is written to directly.

    Raises:
        OptionError: the path is a directory, lies in a store, or cannot be written; the text says why.
    """
    target = os.path.realpath(path)
    try:
        there = os.stat(target) if os.path.lexists(target) else None
        if there is not None and not stat.S_ISREG(there.st_mode):
            with os.fdopen(os.open(target, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY), "wb") as sink:
                yield sink
            return
        refuse_in_store(path, target)
        if there is not None and not is_forced:
            raise OptionError(
                f"--output {one_line(path)}: this file exists; give another name, or --force to replace it"
            )
        with _in_place_of(target, there) as sink:
            yield sink
    except IsADirectoryError:
        raise OptionError(f"--output {one_line(path)}: this is a directory; give a file's name") from None
    except BrokenPipeError:
        raise
    except OSError as why:  # of this file: errors of a store are RmqStoreErrors
        raise OptionError(f"--output {one_line(path)}: cannot be written: {why.strerror}") from None


def refuse_in_store(path: str, target: str) -> None:
    """Refuse a file in a store: reading a store never changes it."""
    above = os.path.dirname(target)
    while True:
        with contextlib.suppress(OSError):
            names = os.listdir(above)
            if not _IN_A_STORE.isdisjoint(names) or any(map(_SEGMENT.fullmatch, names)):
                raise OptionError(
                    f"--output {one_line(path)}: {one_line(above)} is a store, or in one, and nothing is written into "
                    "stores; give a path elsewhere"
                )
        if above == os.path.dirname(above):
            return
        above = os.path.dirname(above)


@contextlib.contextmanager
def _in_place_of(target: str, there: os.stat_result | None) -> Iterator[IO[bytes]]:
    directory, name = os.path.split(target)
    part = os.path.join(directory, f".{name[:50]}.{secrets.token_hex(8)}")
    try:
        fd = os.open(part, _NEW, 0o600)
        with os.fdopen(fd, "wb") as sink:
            yield sink
            os.fchmod(fd, 0o666 & ~_umask() if there is None else stat.S_IMODE(there.st_mode))
        os.replace(part, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def _umask() -> int:
    now = os.umask(0o077)
    os.umask(now)
    return now
