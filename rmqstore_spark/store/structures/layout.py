"""Directories and names: what lies where in a store, and what only looks like one.

    <root>/commitlog/<20 digits>                       all messages; the name is the physical offset of the first byte
    <root>/dledger-<id>/data/<20 digits>               the same in a log of DLedger (dledger.py)
    <root>/consumequeue/<topic>/<queueId>/<20 digits>  accelerator; a RocksDB may be here or in consumequeue_rocksdb/
    <root>/batchconsumequeue/...                       the same for topics whose batches stay together
    <root>/index/<17 digits>                           accelerator; the name is when the file was made
    <root>/checkpoint, <root>/abort                    timestamps; a mark that the broker runs or crashed
Source: org.apache.rocketmq.store.config.StorePathConfigHelper, store.MappedFileQueue, store.MultiPathMappedFileQueue.
"""

import contextlib
import functools
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from urllib.parse import unquote, urlsplit

from native_io import Wrapping
from rmqstore_spark.errors import (
    DamagedStoreError,
    DeletedMeanwhileError,
    NotAStoreError,
    OptionError,
    one_line,
    quoted,
)
from rmqstore_spark.store.io.files import Files, Pin, cannot_read, file_status, kind_of, say_if_denied
from rmqstore_spark.store.io.storage import location, plain_uri, scheme_of
from rmqstore_spark.store.structures.kinds import HEAD, WrappedLog, is_rocksdb, wrapped_log_of, wrapped_logs

_ENTRIES_TO_TRY = 20  # entries of a directory that is no store, to find one below
SEGMENT_NAME = re.compile(r"[0-9]{20}")
_MOST_START = 1 << 62  # so that a file's end fits an i64, too
_QUEUE_ID = re.compile(r"0|[1-9][0-9]{0,9}")
_MOST_QUEUE_ID = (1 << 31) - 1
_MOST_NAME = 255  # bytes
_LONGEST_PATH = 4096  # Linux' PATH_MAX
_STORE = "the broker's store directory"
_QUEUES = "consumequeue"  # ends the name of each directory of queues in files
_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".zip", ".gz", ".zst", ".bz2", ".xz", ".lz4", ".7z")
_LAST_SEGMENTS, _INDEX_FILES = 3, 64  # files that are read early
_SMALL = (  # too, as most reads need some of them, and each would be waited for
    ("config", "topics.json"),
    ("config", "consumerOffset.json"),
    ("config", "subscriptionGroup.json"),
    ("config", "delayOffset.json"),
    (".rmqstore-spark", "times.json"),
)
_MOST_EARLY, _NEAR = 1024 * 1024, 64 * 1024  # bytes of one of them that is read early, and between its places
_GLOB = re.compile(r"[*?\[]")
_TIERED_NAME = re.compile(r"[0-9a-f]{8}[0-9]{20}")


def name_of(start: int) -> str:
    """The name of a file of a MappedFileQueue, from the offset that the file begins with."""
    return f"{start:020d}"


def start_in(name: str) -> int | None:
    """The offset that a file of a MappedFileQueue begins with, by its name; None for a name that no broker gives."""
    start = int(name) if SEGMENT_NAME.fullmatch(name) else None
    return None if start is None or start > _MOST_START else start


@functools.lru_cache(maxsize=1 << 14)  # there are few queueIds, and millions of names
def queue_id_of(name: str) -> int | None:
    """The queueId of a directory in a topic's directory, by its name; None for a name that no broker gives."""
    queue_id = int(name) if _QUEUE_ID.fullmatch(name) else None
    return None if queue_id is None or queue_id > _MOST_QUEUE_ID else queue_id


def queue_path(topic: str, queue_id: int) -> str | None:
    """The path of a queue's directory, below consumequeue/; None for a queue that cannot have one.

    Only this function makes paths of names from a store. A topic is any printable name of a single directory; brokers
    accept fewer names (TopicValidator), but an old store may have more.
    """
    return f"{topic}{os.sep}{queue_id}" if 0 <= queue_id <= _MOST_QUEUE_ID and _is_name(topic) else None


@functools.lru_cache(maxsize=1 << 12)  # queues are asked for topic by topic
def _is_name(topic: str) -> bool:
    """Is a topic the name of a single directory?"""
    if topic in ("", ".", "..") or "/" in topic or one_line(topic) != topic:
        return False
    return len(os.fsencode(topic)) <= _MOST_NAME


@dataclass(frozen=True)
class SegmentFile:
    """A commitlog file: `start` is the physical offset in its name, `size` its length in bytes, `pin` the remote
    object, `wrapping` the bytes before each of its units."""

    path: str
    start: int
    size: int
    pin: Pin | None = None
    wrapping: Wrapping | None = None


@dataclass(frozen=True)
class Layout:
    """The places of the parts of one store.

    Large because each part is a field.

    Attributes:
        root: the store directory, absolute.
        segments: the commitlog's files of all its directories, by start.
        strays: entries of the commitlog directories that no broker writes.
        consumequeue: the directory of that name with queues in files; None where there are none.
        queues_beside: the directories of queues of other forms, as batchconsumequeue/; their names tell which
            (queues.FORMS).
        index: the directory of that name, or None.
        abort: whether the broker runs, or did not stop cleanly.
        queues_in_rocksdb: the directory of a RocksDB with queues, beside those in files or instead of them; or None.
        queue: the topic and queueId of the only queue that has messages in this log, which is that queue's own
            (store/queue_log.py); None for a commitlog.
        units: the directory with the queue units of that queue, if it has one of its own.
        commitlog_inode: of commitlog/ in the store directory, before its files were listed: a write may exchange it
            (write/publish). None where there is none, or files stay as they were first seen.
    """

    root: str
    segments: tuple[SegmentFile, ...]
    strays: tuple[str, ...]
    consumequeue: str | None
    queues_beside: tuple[str, ...]
    index: str | None
    abort: bool
    queues_in_rocksdb: str | None = None
    queue: tuple[str, int] | None = None
    units: str | None = None
    commitlog_inode: int | None = None

    def commitlog_inode_now(self, files: Files) -> int | None:
        """commitlog_inode as of now."""
        return _inode(self.root, files)

    @property
    def queues(self) -> str | None:
        """A directory of queues, for texts."""
        return self.consumequeue or self.queues_in_rocksdb

    @property
    def checkpoint(self) -> str:
        """The checkpoint file's path, whether it exists or not."""
        return os.path.join(self.root, "checkpoint")

    @property
    def lock(self) -> str:
        """The path of the file whose lock a running broker holds, whether it exists or not."""
        return os.path.join(self.root, "lock")


def expand(paths: list[str], files: Files, option: str | None = None) -> list[str]:
    """Paths and globs as absolute directories, each once, globs sorted.

    Args:
        option: the option that names the paths, for error texts.

    Raises:
        OptionError: a URI of another scheme than `file`, a `~name` of nobody, or no text.
        NotAStoreError: a glob that matches nothing.
    """
    found: dict[str, str] = {}  # by real path: a store named twice is still one store
    for path in paths:
        _as_text(path, option)
        if scheme_of(path) is not None:
            uri = plain_uri(path)
            matches = files.matching(uri) if _GLOB.search(uri) else [uri]
            if not matches:
                raise NotAStoreError(f"{path}: nothing matches this pattern")
            found.update(zip(matches, matches, strict=True))
            continue
        local = local_path(path, files)
        matches = files.matching(local) if _GLOB.search(local) and not files.exists(local) else [local]
        if not matches:
            raise NotAStoreError(f"{path}: nothing matches this pattern")
        for match in matches:
            found.setdefault(os.path.realpath(match), _as_text(os.path.abspath(match)))
    return list(found.values())


def place_to_write(path: str, option: str | None = None) -> str:
    """A path or `file:` URI as the absolute path of the one directory that it names.

    Args:
        option: the option that names the path, for error texts.

    Raises:
        OptionError: a URI of another scheme, a `~name` of nobody, a glob, or no text.
    """
    refuse_remote(_as_text(path, option))
    files = Files()
    local = local_path(path, files)
    if _GLOB.search(local) and not files.exists(local):
        raise OptionError(
            f"{path}: only one store can be written to, and this is a pattern; give the store's own directory "
            "(make it first, if this is its name)"
        )
    return _as_text(os.path.abspath(local))


def _as_text(path: str, option: str | None = None) -> str:
    """A path as text, as columns show paths.

    Args:
        option: which one it is of.

    Raises:
        OptionError: the path is empty, or no text.
    """
    what = "" if option is None else f"option {option!r}: "
    if not path or "\0" in path or len(path) > _LONGEST_PATH:
        raise OptionError(f"{what}expected the path of a directory, found {quoted(path)}")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise OptionError(
            f"{what}{path}: expected a path in UTF-8, as columns have paths as text; give a link to it with another"
            " name"
        ) from None
    return path


def refuse_remote(path: str) -> None:
    """Refuse a path that cannot be written to.

    Raises:
        OptionError: the path is a remote store's URI.
    """
    if scheme_of(path) is not None:
        location(path)  # a URI with a secret in it is refused without being shown
        raise OptionError(
            f"{path}: a store there can only be read; write to a local or mounted directory, and copy that"
        )


def local_path(path: str, files: Files) -> str:
    """A path or `file:` URI as a path, with `~` and `~name` replaced as a shell does.

    Raises:
        OptionError: a URI of another scheme, or a `~name` of nobody.
    """
    if path.startswith("~") and not files.exists(path):
        home = os.path.expanduser(path)
        if home == path:
            raise OptionError(f"{path}: there is no home directory for {path.partition('/')[0]!r}; give the whole path")
        return home
    uri = urlsplit(path)
    if not uri.scheme or files.exists(path):
        return path
    if uri.scheme == "file" and uri.netloc in ("", "localhost"):
        return unquote(uri.path)
    if len(uri.scheme) > 1 and "/" in path:
        raise OptionError(
            f"{path}: only local or mounted directories, s3://, s3a://, gs://, abfss:// and hdfs:// can be used, "
            f"not {uri.scheme!r}; copy the store"
        )
    return path


def announce(root: str, files: Files, is_indexed: object = False) -> None:
    """Announce that a store is opened next: what is in it is listed at once, and what is read first is asked for, where
    a request takes long.

    Args:
        is_indexed: whether index files are asked.
    """
    if files.is_slow:
        files.list_tree(root)
        files.prefetch((path, 0) for path in _read_first(root, files, is_indexed))
        files.prefetch(place for path in _SMALL for place in _whole(os.path.join(root, *path), files))


def _whole(path: str, files: Files) -> Iterator[tuple[str, int]]:
    """Places all along a file, so near each other that it is brought as a whole; of a large one its beginning."""
    status = file_status(path, files)
    if status is not None:
        size = status.st_size if status.st_size <= _MOST_EARLY else 1
        yield from ((path, at) for at in range(0, size, _NEAR))


def _read_first(root: str, files: Files, is_indexed: object) -> Iterator[str]:
    """The files whose beginning a plan reads, as far as they are in a broker's usual places."""
    with contextlib.suppress(OSError):
        segments = sorted(files.names(os.path.join(root, "commitlog")))
        yield from (os.path.join(root, "commitlog", name) for name in {*segments[:1], *segments[-_LAST_SEGMENTS:]})
        yield os.path.join(root, "checkpoint")
        if is_indexed:
            names = sorted(files.names(os.path.join(root, "index")))
            yield from (os.path.join(root, "index", name) for name in names[:_INDEX_FILES])


def find_store(root: str, commitlogs: list[str] | None, files: Files) -> Layout:
    """Find the parts of a store directory.

    Args:
        root: the store directory.
        commitlogs: the commitlog's directories where they are not <root>/commitlog (broker setting storePathCommitLog).
        files: how to reach files, and where requests and bytes are counted.

    Raises:
        NotAStoreError: the directory is something else; the text says what, and what to give instead.
        DamagedStoreError: an entry with the name of a commitlog file is no file.
    """
    inode = _inode(root, files)
    entries = _entries(root, files)
    segments: list[SegmentFile] = []
    strays: list[str] = []
    for directory, names, kind in _commitlogs(root, entries, commitlogs, files):
        found, others = segment_files(directory, names, files)
        wrapping = _wrapping(kind)
        segments += _told_by_head([replace(file, wrapping=wrapping) for file in found] if wrapping else found, files)
        strays += others
    segments.sort(key=lambda segment: segment.start)
    return replace(_layout(root, entries, files, tuple(segments), tuple(strays)), commitlog_inode=inode)


def _inode(root: str, files: Files) -> int | None:
    if files.is_snapshot:
        return None
    try:
        return files.status(os.path.join(root, "commitlog")).st_ino
    except OSError:
        return None


def strays_of(root: str, commitlogs: list[str] | None, files: Files) -> list[str]:
    """Layout.strays by their names alone, for who wants to know no more than that this is a store. Arguments as of
    find_store().

    Raises:
        NotAStoreError: as by find_store().
    """
    found = _commitlogs(root, _entries(root, files), commitlogs, files)
    return [os.path.join(directory, name) for directory, names, _ in found for name in names if start_in(name) is None]


def _commitlogs(
    root: str, entries: list[str], commitlogs: list[str] | None, files: Files
) -> Iterator[tuple[str, list[str], WrappedLog | None]]:
    """The directories of a store's commitlog: each with the names in it, and how its units are wrapped, where the
    directory's own name tells. Arguments and errors as of find_store()."""
    option = None if commitlogs is None else "storePathCommitLog"
    wanted = _STORE if option is None else f"in option {option!r} the directories of a commitlog"
    wrapped = wrapped_logs(root, entries, files)
    if commitlogs is None:
        if "commitlog" not in entries and not wrapped:
            raise NotAStoreError(_not_a_store(root, entries, files))
        commitlogs = [*(_usual(root) if "commitlog" in entries else ()), *wrapped]
    for directory in (_as_text(each, option) for each in commitlogs):
        yield directory, _entries(directory, files, wanted), wrapped.get(directory)


def segment_files(
    directory: str,
    names: Iterable[str],
    files: Files,
    start_of: Callable[[str], int | None] = start_in,
    what: str = "a commitlog file",
) -> tuple[list[SegmentFile], list[str]]:
    """The files of a log in a directory, by start, and the paths of other entries. What is deleted meanwhile is left
    out.

    Args:
        names: the entries of the directory.
        start_of: the offset of a file's first byte, by its name; None for a name that no broker gives.
        what: is in such a file, for texts.

    Raises:
        DamagedStoreError: an entry with such a name is no file.
        StorageError: one cannot be looked at.
    """
    segments: list[SegmentFile] = []
    strays: list[str] = []
    above = os.path.join(directory, "")  # join() for each would take as long as a stat
    for name in sorted(names):
        path, start = above + name, start_of(name)
        if start is None:
            strays.append(path)
            continue
        try:
            found = files.status(path)
        except OSError as why:
            if _is_deleted(path, files):
                continue
            raise cannot_read(path, why) from None
        if stat.S_ISDIR(found.st_mode):
            strays.append(path)
        elif not stat.S_ISREG(found.st_mode):
            raise DamagedStoreError(f"{path}: expected {what}, found {kind_of(found)}; move it away")
        else:
            segments.append(SegmentFile(path, start, found.st_size, files.pin(path)))
    return sorted(segments, key=lambda segment: segment.start), strays


def queue_log(
    root: str,
    queue: tuple[str, int],
    directory: str,
    files: Files,
    start_of: Callable[[str], int | None] = start_in,
) -> Layout:
    """The log of one queue in a directory of its own; arguments and errors as of segment_files()."""
    segments, strays = segment_files(directory, names_there(directory, files), files, start_of, "a file of a log")
    return Layout(root, tuple(segments), tuple(strays), None, (), None, abort=False, queue=queue)


def names_there(directory: str, files: Files) -> list[str]:
    """The names in a directory, sorted; none where there is no such directory.

    Raises:
        StorageError: it cannot be listed.
    """
    try:
        return sorted(files.names_in_place(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as why:
        raise cannot_read(directory, why) from None


def _wrapping(kind: WrappedLog | None) -> Wrapping | None:
    return None if kind is None else kind.wrapping


def _told_by_head(segments: list[SegmentFile], files: Files) -> list[SegmentFile]:
    """The segments of one directory, with what wraps their units. Only the first file is looked into, where the
    directory's name does not tell. Leading segments that a broker has deleted meanwhile are left out."""
    for at, first in enumerate(segments):
        if first.wrapping is not None:
            return segments[at:]
        try:
            with files.file(first.path) as file:
                wrapping = _wrapping(wrapped_log_of(file.read(0, HEAD), first.start))
        except DeletedMeanwhileError:
            continue
        return [replace(segment, wrapping=wrapping) for segment in segments[at:]] if wrapping else segments[at:]
    return []


def _is_deleted(path: str, files: Files) -> bool:
    """Has a broker deleted an expired segment since the directory was listed?"""
    return os.path.basename(path) not in _entries(os.path.dirname(path), files)


def _layout(
    root: str,
    entries: list[str],
    files: Files,
    segments: tuple[SegmentFile, ...] = (),
    strays: tuple[str, ...] = (),
) -> Layout:
    in_rocksdb = _queues_in_rocksdb(root, entries, files)
    return Layout(
        root=root,
        segments=segments,
        strays=strays,
        consumequeue=_consumequeue(root, entries, files, in_rocksdb),
        queues_in_rocksdb=in_rocksdb,
        queues_beside=tuple(os.path.join(root, n) for n in sorted(entries) if n.endswith(_QUEUES) and n != _QUEUES),
        index=os.path.join(root, "index") if "index" in entries else None,
        abort="abort" in entries,
    )


def segment_paths(root: str, commitlogs: list[str] | None, start: int) -> list[str]:
    """The paths that the commitlog file of a physical offset can have; arguments as in find_store()."""
    return [os.path.join(directory, name_of(start)) for directory in commitlogs or _usual(root)]


def _usual(root: str) -> list[str]:
    return [os.path.join(root, "commitlog")]


def _entries(directory: str, files: Files, wanted: str = _STORE) -> list[str]:
    """The entries of a directory. `wanted` tells users, in the error for a path that is no directory, what to give
    instead."""
    try:
        return files.names_in_place(directory)
    except FileNotFoundError:
        raise NotAStoreError(f"{directory}: no such directory; give {wanted}") from None
    except NotADirectoryError:
        what = "an archive: unpack it, and give" if directory.endswith(_ARCHIVES) else "a file; give"
        holds = ", the one that holds commitlog/" if wanted == _STORE else ""
        raise NotAStoreError(f"{directory}: this is {what} {wanted}{holds}") from None
    except OSError as why:
        raise cannot_read(directory, why) from None


def _consumequeue(root: str, entries: list[str], files: Files, in_rocksdb: str | None) -> str | None:
    """The directory of queues in files, or None.

    Args:
        in_rocksdb: the directory of queues in RocksDB, or None.
    """
    directory = os.path.join(root, "consumequeue")
    if "consumequeue" not in entries:
        return None
    try:
        files.look_into(directory)
    except OSError as why:  # an accelerator that cannot be read is as good as missing
        say_if_denied(directory, why)
        return None
    if in_rocksdb is None or (in_rocksdb != directory and not is_rocksdb(directory, files)):
        return directory
    has_topics = any(files.is_directory(os.path.join(directory, name)) for name in names_there(directory, files))
    return directory if has_topics else None


def _queues_in_rocksdb(root: str, entries: list[str], files: Files) -> str | None:
    names = ("consumequeue_rocksdb", "consumequeue")  # a broker has one of them
    places = (os.path.join(root, name) for name in names if name in entries)
    return next((path for path in places if is_rocksdb(path, files)), None)


def _not_a_store(root: str, entries: list[str], files: Files) -> str:
    if any(SEGMENT_NAME.fullmatch(name) for name in entries):
        return (
            f"{root}: this looks like a directory inside a store; give the store directory that holds commitlog/, "
            "or name the commitlog's own directories in option storePathCommitLog"
        )
    if _is_tiered(root, entries, files):
        return (
            f"{root}: files of RocketMQ's tiered store, which can only be read, and only as a whole; give the "
            "directory that tieredStoreFilePath names, or the broker's own store directory"
        )
    shown = ", ".join(sorted(entries)[:5]) + (", ..." if len(entries) > 5 else "") if entries else "nothing"
    below = (os.path.join(root, name) for name in sorted(entries)[: 0 if files.is_slow else _ENTRIES_TO_TRY])
    likely = next((path for path in below if files.is_directory(os.path.join(path, "commitlog"))), None)
    return f"{root}: not a RocketMQ store: expected a directory commitlog/ in it, found {shown}; " + (
        "give the directory that the broker's storePathRootDir names" if likely is None else f"did you mean {likely}?"
    )


def _is_tiered(root: str, entries: list[str], files: Files) -> bool:
    """Tiered flat files lie in <cluster>/<broker>/<topic>/<queueId>/<COMMIT_LOG|CONSUME_QUEUE|INDEX>/."""
    names, directory = entries, root
    for _ in range(5):
        if {"COMMIT_LOG", "CONSUME_QUEUE", "INDEX"} & set(names) or any(map(_TIERED_NAME.fullmatch, names)):
            return True
        below = next(filter(files.is_directory, (os.path.join(directory, name) for name in sorted(names))), None)
        if below is None:
            return False
        directory, names = below, _entries(below, files)
    return False
