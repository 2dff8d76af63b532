"""Stores on a disk, read as if they were in object storage: by way of RemoteFiles, in this process and without HTTP.

Paths stay as they are, so that rows are the same as those of a local read, to the last column.
"""

from __future__ import annotations

import bisect
import contextlib
import glob
import itertools
import os
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

from rmqstore_spark.errors import StorageError
from rmqstore_spark.store.io import read_ahead
from rmqstore_spark.store.io.remote import file as remote_file
from rmqstore_spark.store.io.remote import files as remote_files_module
from rmqstore_spark.store.io.remote import pages as remote_pages
from rmqstore_spark.store.io.remote.files import PRICES, RemoteFiles
from rmqstore_spark.store.io.remote.objects import Entry, Objects
from rmqstore_spark.store.io.remote.paged_list import PAGE, PagedList
from rmqstore_spark.store.io.storage import Storage
from support.rounds import rounds


class Directory:
    """Objects that are files on this disk; a key is a path without the first slash. What is asked for is written down.

    Attributes:
        asked: of each request what it was, and of which key.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    def _note(self, what: str, key: str) -> None:
        with self._lock:
            self.asked.append((what, key))

    def below(self, key: str, most: int | None = None) -> Iterator[Entry]:
        self._note("below", key)
        paths = (os.path.join(above, name) for above, _, names in os.walk(f"/{key}") for name in names)
        for path in itertools.islice(paths, most):
            yield Entry(path[1:], self._pin(path))

    def inside(self, key: str) -> tuple[list[str], list[Entry]]:
        self._note("inside", key)
        directories: list[str] = []
        entries: list[Entry] = []
        try:
            found = list(os.scandir(f"/{key}"))
        except OSError:
            return [], []
        for each in found:
            if each.is_dir():
                if any(True for _ in self.below(each.path[1:])):  # there are no empty directories
                    directories.append(each.path[1:])
            else:
                entries.append(Entry(each.path[1:], self._pin(each.path)))
        return directories, entries

    def look(self, key: str) -> Any:
        self._note("look", key)
        return self._pin(f"/{key}") if os.path.isfile(f"/{key}") else None

    def get(self, key: str, start: int, stop: int, pin: Any) -> memoryview:
        self._note("get", key)
        assert 0 <= start < stop <= pin.size, (key, start, stop, pin)
        if not os.path.exists(f"/{key}"):
            raise StorageError(f"{key}: the object is gone since the read was planned; load the store again")
        if self._pin(f"/{key}") != pin:
            raise StorageError(f"{key}: the object was replaced since the read was planned; load the store again")
        with open(f"/{key}", "rb") as file:
            data = os.pread(file.fileno(), stop - start, start)
        assert len(data) == stop - start
        return memoryview(data).toreadonly()

    @staticmethod
    def _pin(path: str) -> Any:
        from rmqstore_spark.store.io.files import Pin

        status = os.stat(path)
        return Pin(status.st_size, f"{status.st_ino}-{status.st_mtime_ns}")


DIRECTORY = Directory()


def bucket(path: str, storage: Storage) -> tuple[Objects, str]:
    return DIRECTORY, path.strip("/")


class Slow(Directory):
    """Each request takes `delay` seconds; when each was made is written down, and how much they brought.

    Attributes:
        files: by way of it, where requests cost as much as they do there.
    """

    def __init__(self, delay: float) -> None:
        super().__init__()
        self.begun: list[float] = []
        self.nbytes = 0
        self.files = RemoteFiles(replace(PRICES, request=2000), bucket=lambda path, _: (self, path.strip("/")))
        self._delay = delay

    def get(self, key: str, start: int, stop: int, pin: Any) -> memoryview:
        self.begun.append(time.monotonic())
        self.nbytes += stop - start
        time.sleep(self._delay)
        return super().get(key, start, stop, pin)

    def rounds(self) -> int:
        return rounds(self.begun, self._delay)


class InRounds(Directory):
    """Requests are answered in rounds: all together, whenever this process waits for nothing else. So the number of
    rounds is that of requests that wait for each other, on any machine. A context manager, in which uri() gives paths
    that are in object storage.

    Attributes:
        rounds, lists, nbytes: rounds, listings, and bytes of answers so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rounds = self.lists = self.nbytes = 0
        self._waiting = 0
        self._changed = threading.Condition()
        self._is_over = False
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._patch = mock.patch.object(remote_files_module, "bucket_of", _bucket_in_rounds)

    def __enter__(self) -> InRounds:
        _in_rounds.append(self)
        self._patch.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()
        _in_rounds.remove(self)
        self._is_over = True
        self._thread.join()

    @staticmethod
    def uri(path: os.PathLike[str]) -> str:
        """By which a directory is reached."""
        return f"s3:/{os.fspath(path)}"

    def below(self, key: str, most: int | None = None) -> Iterator[Entry]:
        """As S3 lists: a page after the other, or some side by side."""
        entries = {entry.key: entry for entry in super().below(key) if entry.key.startswith(f"{key}/")}
        keys, listed, found = sorted(entries), PagedList(key), 0
        while listed.parts and (most is None or found < most):
            self.lists += len(listed.parts)
            self._wait()
            pages = []
            for part in listed.parts:
                first = 0 if part.after is None else bisect.bisect_right(keys, part.after)
                pages.append(keys[first : first + PAGE])
            for page, count in zip(pages, listed.take(pages), strict=True):
                yield from (entries[name] for name in page[: count if most is None else min(count, most - found)])
                found += count
            for _ in listed.parts:
                self._note("below", key)

    def inside(self, key: str) -> tuple[list[str], list[Entry]]:
        self.lists += 1
        self._wait()
        found = [entry for entry in super().below(key) if entry.key.startswith(f"{key}/")]
        names = {entry.key[len(key) + 1 :].partition("/")[0] for entry in found}
        entries = [entry for entry in found if "/" not in entry.key[len(key) + 1 :]]
        return sorted(f"{key}/{name}" for name in names - {os.path.basename(e.key) for e in entries}), entries

    def look(self, key: str) -> Any:
        self._wait()
        return super().look(key)

    def get(self, key: str, start: int, stop: int, pin: Any) -> memoryview:
        self.nbytes += stop - start
        self._wait()
        return super().get(key, start, stop, pin)

    def _wait(self) -> None:
        with self._changed:
            self._waiting += 1
            now = self.rounds
            self._changed.wait_for(lambda: self.rounds > now)

    def _answer(self) -> None:
        idle = 0  # looks in a row: a thread that waits for Python's lock seems idle in one
        while not self._is_over:
            waiting, cpu = self._waiting, time.process_time() - time.thread_time()
            time.sleep(0.002)
            is_idle = time.process_time() - time.thread_time() - cpu < 0.0002 and not self._is_busy()
            with self._changed:
                idle = idle + 1 if waiting and waiting == self._waiting and is_idle else 0
                if idle == 2:
                    idle = 0
                    self.rounds += 1
                    self._waiting = 0
                    self._changed.notify_all()

    def _is_busy(self) -> bool:
        """Does another thread run, or could run?"""
        for task in os.listdir("/proc/self/task"):
            if int(task) != self._thread.native_id:
                with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/stat") as file:
                    if file.read().rpartition(")")[2].split()[0] in "RD":
                        return True
        return False


_in_rounds: list[InRounds] = []


def _bucket_in_rounds(path: str, storage: Storage) -> tuple[Objects, str]:
    return _in_rounds[-1], path.partition("://")[2]


class Globbing(RemoteFiles):
    """Paths without a scheme have patterns without one, too."""

    def matching(self, pattern: str) -> list[str]:
        return [path for path in sorted(glob.glob(pattern)) if self.exists(path)]


@contextlib.contextmanager
def small_pages(rng: random.Random | None = None) -> Iterator[None]:
    """Pages and blocks so small that stores of a few kilobytes have many of them, as real ones have."""
    page = rng.choice((64, 256, 1024)) if rng is not None else 256
    sizes = {"BLOCK": 10 * page, "_LARGEST": 10 * page, "_BACKWARDS": 5 * page, "PROBE_BYTES": page // 16}
    small = (
        (remote_file, sizes),
        (remote_pages, {"PAGE_BYTES": page, "MOST_PAGES": 64}),
        (remote_files_module, {"PROBE_BYTES": page // 16}),
        (read_ahead, {"BLOCK": 10 * page}),
    )
    with contextlib.ExitStack() as patched:
        for module, names in small:
            for name, size in names.items():
                patched.enter_context(mock.patch.object(module, name, size))
        yield


def remote_files(prices: Any = None, manners: Any = None) -> RemoteFiles:
    """Files in the one bucket that this disk is. Without prices those of a local disk count, so that the same ways are
    chosen."""
    from rmqstore_spark.store.io.files import Prices

    return Globbing(replace(prices or Prices(), concurrency=4), manners, bucket=bucket)
