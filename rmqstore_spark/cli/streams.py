"""The standard streams, made safe: the shell may have closed them, they may be full, or be for ASCII only."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from rmqstore_spark.errors import OptionError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_IN, _OUT, _ERR = range(3)
_ASCII = "ascii"


class _Output(io.BufferedWriter):
    """Standard output. If it cannot be written, the user gets an error; a reader that has gone is no error."""

    # Not in FileIO.write: an interrupt there, after the system's write, would write the same bytes again.
    def write(self, data: "ReadableBuffer", /) -> int:
        with _in_words():
            return super().write(data)

    def flush(self) -> None:
        with _in_words():
            super().flush()


class _Messages(io.BufferedWriter):
    """Standard error. Texts that cannot be written there are dropped."""

    def write(self, data: "ReadableBuffer", /) -> int:
        with contextlib.suppress(OSError):
            super().write(data)
        return memoryview(data).nbytes

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            super().flush()


@contextlib.contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as why:
        raise OptionError(f"standard output: cannot be written: {why.strerror}; send it elsewhere") from None


def restart_in_utf8() -> None:
    """Start this process again in UTF-8 where Python was told to use ASCII: paths and topics have other characters."""
    if sys.getfilesystemencoding() == _ASCII:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


def open_streams() -> None:
    """Make sure that all three streams exist and that no character makes them fail. A closed stream is replaced, so
    that no file that is opened later takes its place; writing to a closed output is an error."""
    for fd, how in ((_IN, os.O_RDONLY), (_OUT, os.O_RDONLY), (_ERR, os.O_WRONLY)):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, how)  # takes the lowest free number, which is this one
    sys.stdout = _text(_Output(io.FileIO(_OUT, "w", closefd=False)), sys.stdout)
    sys.stderr = _text(_Messages(io.FileIO(_ERR, "w", closefd=False)), sys.stderr)


def _text(stream: io.BufferedWriter, before: TextIO | None) -> io.TextIOWrapper:
    encoding = before.encoding if before is not None else None
    is_direct = stream.fileno() == _ERR or stream.isatty()
    return io.TextIOWrapper(stream, encoding, "backslashreplace", line_buffering=is_direct)
