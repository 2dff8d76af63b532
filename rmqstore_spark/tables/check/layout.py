"""Names, sizes, kinds and owners of a store's files, and what a broker that starts would do with them."""

import contextlib
import os
import stat
from collections import Counter
from collections.abc import Iterator

from rmqstore_spark.store.elsewhere import elsewhere
from rmqstore_spark.store.io.files import kind_of
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.layout import queue_id_of, start_in
from rmqstore_spark.store.structures.segments import damage_in
from rmqstore_spark.tables.check.lost import Hole, with_lost
from rmqstore_spark.tables.check.moment import RECOVERED_SEGMENTS
from rmqstore_spark.tables.check.problems import Finding

_TIMER = ("timerwheel", "timerlog")
_DIRECTORIES = ("consumequeue", "batchconsumequeue", "index", "config")
_FILES = ("checkpoint", "abort", "lock")
_LONG_TOPIC = 127  # bytes that version 1 of a unit has room for


def has_queues(store: Snapshot) -> bool:
    """Has the store ConsumeQueues? Empty directories are no queues."""
    return any(queue.in_files for queue in store.queues.every)


def check_layout(store: Snapshot) -> Iterator[Finding]:
    """Problems of names, sizes, kinds and owners of files; and abort."""
    yield from _segments(store)
    yield from _uncommitted(store)
    yield from _marks(store)
    yield from _parts(store)
    yield from _index_directory(store)
    yield from _entries(store)
    yield from not_looked_at(store)
    yield from _timer(store)
    for topic in sorted(store.queues.topics):
        if len(os.fsencode(topic)) > _LONG_TOPIC:
            yield Finding("longTopic", topic=topic, expected="at most 127 bytes", found=f"{len(os.fsencode(topic))}")


def _segments(store: Snapshot) -> Iterator[Finding]:
    before = None
    holes: list[Hole] = []
    for segment in store.segments:
        size = segment.end - segment.start
        if before is not None and segment.start != before:
            missing = Finding(
                "missingSegment",
                segment.path,
                position=before,
                expected=f"a file {before:020d} before it",
                found="none",
                count=(segment.start - before) // size,
            )
            holes.append(Hole(damage_in(segment, before, segment.start, "missing"), missing, segment.header))
        if segment.size != size:
            yield Finding(
                "wrongFileSize", segment.path, position=segment.start, expected=f"{size} bytes", found=f"{segment.size}"
            )
        before = segment.end
    yield from with_lost(store, holes)
    for path in store.layout.strays:
        is_directory = store.files.is_directory(path)
        yield Finding("strayFile", path, expected="a segment", found="a directory" if is_directory else "a file")
    if len(store.segments) > RECOVERED_SEGMENTS:
        yield Finding("longRecovery", expected=f"at most {RECOVERED_SEGMENTS} segments", found=f"{len(store.segments)}")


def _uncommitted(store: Snapshot) -> Iterator[Finding]:
    found = store.uncommitted
    if found is not None:
        yield Finding(
            "uncommitted",
            store.segments[-1].path,
            expected=f"committedIndex {found.last}",
            found=str(found),
            count=found.behind_committed,
        )


def _marks(store: Snapshot) -> Iterator[Finding]:
    path = os.path.join(store.root, "abort")
    if store.files.is_locked(store.layout.lock):
        yield Finding("brokerRuns", store.layout.lock, expected="no lock on the store", found="a lock")
    elif store.layout.abort:
        yield Finding("abort", path, expected="no file abort, which a clean stop removes", found="one")


def _parts(store: Snapshot) -> Iterator[Finding]:
    """Entries with the name of a part of the store that are something else."""
    for names, expected, is_right in ((_DIRECTORIES, "a directory", stat.S_ISDIR), (_FILES, "a file", stat.S_ISREG)):
        for name in names:
            path = os.path.join(store.root, name)
            found = _status_at(store, path)
            if found is not None and not is_right(found.st_mode) and not stat.S_ISLNK(found.st_mode):
                yield Finding("strayFile", path, expected=expected, found=kind_of(found))


def _status_at(store: Snapshot, path: str) -> os.stat_result | None:
    """The status of a path: of a link's target, or of the link itself if its target does not exist. None if the path
    does not exist."""
    for look in (store.files.status, store.files.lstat):
        with contextlib.suppress(OSError):
            return look(path)
    return None


def _index_directory(store: Snapshot) -> Iterator[Finding]:
    directory = store.layout.index
    for name in names_in(store, directory):
        if directory is None:
            continue
        path = os.path.join(directory, name)
        if not (name.isascii() and name.isdigit()):
            yield Finding("harmlessStray", path, expected="an index file", found="another name")
        elif (found := _status_at(store, path)) is not None and not stat.S_ISREG(found.st_mode):
            yield Finding("brokenIndexFile", path, expected="a file", found=kind_of(found))


def names_in(store: Snapshot, directory: str | None) -> list[str]:
    """The names in a directory; none if the path is not a directory."""
    try:
        return [] if directory is None else sorted(store.files.names(directory))
    except OSError:
        return []


def _entries(store: Snapshot) -> Iterator[Finding]:
    """Links and foreign owners among the store's own entries and the files of its log and index."""
    owner = store.files.lstat(store.root).st_uid
    paths = [
        os.path.join(store.root, name) for name in names_in(store, store.root) if not name.startswith(".rmqstore-")
    ]
    paths += [segment.path for segment in store.segments]
    paths += [
        os.path.join(store.layout.index, name) for name in names_in(store, store.layout.index) if store.layout.index
    ]
    yield from kinds(store, paths, owner)


def kinds(store: Snapshot, paths: list[str], owner: int) -> Iterator[Finding]:
    """The paths that are links, a row for each; and one row for all paths with another owner than the store's."""
    foreign: list[tuple[str, int]] = []
    for path in paths:
        try:
            found = store.files.lstat(path)
        except OSError:
            continue
        if stat.S_ISLNK(found.st_mode):
            yield Finding("link", path, expected="a file or directory", found="a link")
        elif found.st_uid != owner:
            foreign.append((path, found.st_uid))
    for uid, count in Counter(uid for _, uid in foreign).items():
        path = next(path for path, of in foreign if of == uid)
        yield Finding("foreignOwner", path, expected=f"user {owner}", found=f"user {uid}", count=count)


def check_queue_directories(store: Snapshot, above: str, topics: list[str]) -> Iterator[Finding]:
    """Entries of some topics' queue directories that are not files of a queue; and links and foreign owners there.

    Args:
        above: the directory of these directories.
    """
    owner = store.files.lstat(store.root).st_uid
    paths: list[str] = []
    for topic in topics:
        directory = os.path.join(above, topic)
        paths.append(directory)
        if not store.files.is_directory(directory):
            yield Finding("harmlessStray", directory, expected="a topic's directory", found="a file")
            continue
        for name in names_in(store, directory):
            queue = os.path.join(directory, name)
            paths.append(queue)
            if queue_id_of(name) is None or not store.files.is_directory(queue):
                yield Finding("harmlessStray", queue, expected="a queue's directory", found="something else")
                continue
            for file in names_in(store, queue):
                path = os.path.join(queue, file)
                paths.append(path)
                found = _status_at(store, path)
                is_file = found is None or stat.S_ISREG(found.st_mode)
                if start_in(file) is None or not is_file:
                    what = "another name" if found is None or is_file else kind_of(found)
                    yield Finding("strayFile", path, topic=topic, expected="a file of a queue", found=what)
    yield from kinds(store, paths, owner)


def not_looked_at(store: Snapshot) -> Iterator[Finding]:
    """A row for each part that only RocksDB or a tiered store has."""
    for place in elsewhere(store):
        if not place.is_checked:
            yield Finding("notLookedAt", place.path, expected="nothing that only this has", found=place.what)


def _timer(store: Snapshot) -> Iterator[Finding]:
    paths = [os.path.join(store.root, name) for name in _TIMER]
    found = [path for path in paths if store.files.exists(path)]
    if found:
        yield Finding("timerNotLookedAt", found[0], expected="none of these", found=", ".join(found), count=len(found))
