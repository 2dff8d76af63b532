"""The states in which a broker that is killed leaves its store: nothing that it wrote is lost, but it may have been
between any two of its writes, or within one; or between any two of the files that it deletes where it cuts its log.

Two threads write: one appends to the log; the other one follows it, any number of messages behind, and puts them into
queues and index (CommitLogDispatcherBuildConsumeQueue, then ...BuildIndex). Each writes files in an order of its own:

* an entry of DLedger to data/, then its place to index/ (DLedgerMmapFileStore.appendAsLeader);
* of a ConsumeQueue's unit first the part in consumequeue_ext/ (ConsumeQueue.putMessagePositionInfoWrapper);
* of an index file the item, its slot, then the header (IndexFile.putKey).
"""

from __future__ import annotations

import itertools
import json
import random
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from oracle import reference

from support.changed_stores import Content

_LOG = ("commitlog/", "dledger-n0/data/", "dledger-n0/index/")
_DISPATCHED = ("consumequeue_ext/", "consumequeue/", "batchconsumequeue/", "index/")
_WORD = 4


class Write(NamedTuple):
    """Bytes of a file; `size` is that of the file, which may be new."""

    name: str
    at: int
    data: bytes
    size: int


class Killed(NamedTuple):
    """A state. `what` says how far the broker had come, `cut` which file it was writing."""

    what: str
    cut: str
    content: Content


def states(history: Sequence[Content], lags: Sequence[int] = (0, 1, 4)) -> Iterator[Killed]:
    """All states of a broker whose store was this one after each message.

    Args:
        lags: how many messages the second thread may be behind.
    """
    logs = [list(_writes(*pair, _LOG)) for pair in itertools.pairwise(history)]
    dispatched = [list(_writes(*pair, _DISPATCHED)) for pair in itertools.pairwise(history)]
    for number in range(len(history)):
        for lag in lags:
            done = number - lag
            if done < 0:
                continue
            of_log, of_queues = _only(history[number], _LOG), _only(history[done], _DISPATCHED)
            rest = Content({n: d for n, d in history[number].items() if not n.startswith(_LOG + _DISPATCHED)})
            whole = Content({**rest, **of_log, **of_queues})
            yield Killed(f"{number} messages, {done} dispatched", "", whole)
            if number + 1 < len(history):
                for cut, size, content in _begun(whole, logs[number]):
                    yield Killed(f"{number} messages, {done} dispatched; then {size} bytes of {cut}", cut, content)
            if done < number:
                for cut, size, content in _begun(whole, dispatched[done]):
                    yield Killed(f"{number} messages, {done} dispatched, {size} bytes of {cut}", cut, content)


def _only(content: Content, directories: tuple[str, ...]) -> Content:
    return Content({name: data for name, data in content.items() if name.startswith(directories)})


def _begun(content: Content, writes: list[Write]) -> Iterator[tuple[str, int, Content]]:
    """Each state between the first of these writes and the end of the last one: the file, how many bytes of the write
    are there, and all files."""
    for number, write in enumerate(writes):
        for size in _cuts(len(write.data)):
            if size < len(write.data) or number + 1 < len(writes):
                yield write.name, size, _with(content, write, size)
        content = _with(content, write, len(write.data))


def _cuts(size: int) -> Iterator[int]:
    """Where a write is cut: a processor stores some bytes at a time."""
    if size <= 64:
        yield from range(0, size, _WORD)
    else:
        yield from (0, 4, 8, 32, 52, 88, size // 2, size - 12, size - 4, size - 1)
    yield size


def _with(content: Content, write: Write, size: int) -> Content:
    data = bytearray(content.get(write.name, b"").ljust(write.size, b"\0"))
    data[write.at : write.at + size] = write.data[:size]
    return content.with_({write.name: bytes(data)})


def _writes(before: Content, after: Content, directories: tuple[str, ...]) -> Iterator[Write]:
    for directory in directories:
        for name in sorted(after.below(directory.rstrip("/"))):
            old, new = before.get(name, b""), after[name]
            if old == new:
                continue
            found = list(_runs(old.ljust(len(new), b"\0"), new))
            if directory == "index/":
                found.reverse()
            if not found:
                yield Write(name, 0, b"", len(new))  # allocated
            for start, stop in found:
                yield Write(name, start, new[start:stop], len(new))


def _runs(old: bytes, new: bytes) -> Iterator[tuple[int, int]]:
    """Stretches that differ, those that lie next to each other joined."""
    differ = [at for at, (one, other) in enumerate(zip(old, new, strict=True)) if one != other]
    start = stop = -1
    for at in differ:
        if at - stop > 40:
            if stop >= 0:
                yield start, stop
            start = at // _WORD * _WORD
        stop = at + 1
    if stop >= 0:
        yield start, stop


def put(root: Path, content: Content, before: Content | None) -> None:
    """Make a directory this store, that was another one."""
    for name in before or ():
        if name not in content:
            (root / name).unlink()
    for name, data in content.items():
        if before is None or before.get(name) != data:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


_EXT_FILE = 100  # bytes
_BATCH_FILE = 5  # units


def _queues(content: Content) -> Iterator[tuple[str, list[str]]]:
    """The directory of each simple queue, and its files."""
    names = content.below("consumequeue")
    for directory, files in itertools.groupby(names, lambda name: name.rpartition("/")[0]):
        yield directory, list(files)


def with_ext(content: Content) -> Content:
    """As a broker with enableConsumeQueueExt has it: each tagsCode is an address in consumequeue_ext/."""
    changed: dict[str, bytes] = {}
    for directory, names in _queues(content):
        ext = bytearray()
        for name in names:
            data = bytearray(content[name])
            for at in range(0, len(data), reference.QUEUE_UNIT_SIZE):
                position, size, code = struct.unpack_from(">qiq", data, at)
                if size > 0:
                    struct.pack_into(">q", data, at + 12, -(1 << 63) + _put_ext(ext, code, position))
            changed[name] = bytes(data)
        for start in range(0, len(ext), _EXT_FILE):
            name = f"consumequeue_ext/{directory.removeprefix('consumequeue/')}/{start:020d}"
            changed[name] = bytes(ext[start : start + _EXT_FILE].ljust(_EXT_FILE, b"\0"))
    return content.with_(changed)


def _put_ext(ext: bytearray, code: int, time: int) -> int:
    """Where a further part begins (ConsumeQueueExt.put): none crosses a file's end, 4 bytes stay free there."""
    bits = b"\xff" * (8 if len(ext) % 3 else 0)
    if 20 + len(bits) > _EXT_FILE - len(ext) % _EXT_FILE - 4:
        ext += struct.pack(">h", -1).ljust(_EXT_FILE - len(ext) % _EXT_FILE, b"\0")
    at = len(ext)
    ext += struct.pack(">hqqh", 20 + len(bits), code, time, len(bits)) + bits
    return at


def with_batches(content: Content, topic: str, times: Mapping[int, int]) -> Content:
    """With the queues of a topic as those of queue.type=BatchCQ are.

    Args:
        times: the store times of messages by their physical offsets.
    """
    changed: dict[str, bytes | None] = {}
    for directory, names in _queues(content):
        if f"/{topic}/" not in directory:
            continue
        units = struct.iter_unpack(">qiq", b"".join(content[name] for name in names))
        numbered = ((number, unit) for number, unit in enumerate(units) if unit[1] > 0)
        batches = [list(some) for _, some in itertools.groupby(numbered, lambda each: each[1])]
        made = [
            reference.encode_batch_unit(position, size, code, times[position], number, len(some))
            for some in batches
            for number, (position, size, code) in some[:1]
        ]
        for start in range(0, len(made), _BATCH_FILE):
            name = f"batch{directory}/{start * reference.BATCH_UNIT_SIZE:020d}"
            data = b"".join(made[start : start + _BATCH_FILE])
            changed[name] = data.ljust(_BATCH_FILE * reference.BATCH_UNIT_SIZE, b"\0")
        changed |= dict.fromkeys(names)
    entry = {"topicName": topic, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
    table = {"topicConfigTable": {topic: {**entry, "attributes": {"queue.type": "BatchCQ"}}}}
    return content.with_({**changed, "config/topics.json": json.dumps(table).encode()})


# Of each directory that is cut: where in the file's first unit the position is that it leads to; None: in its own name.
_CUT_BEHIND: tuple[tuple[str, int | None], ...] = (
    ("commitlog/", None),
    ("dledger-n0/data/", None),
    ("dledger-n0/index/", 4),
    ("consumequeue/", 0),
    ("batchconsumequeue/", 0),
)
_OLDEST_FIRST = 3  # of these directories


def recoveries(content: Content, cut: int, rng: random.Random) -> Iterator[Killed]:
    """The states of a store whose log a starting broker cuts, or a slave that follows another master, at each moment
    that it may be killed at. It only deletes files: in the file that was cut it moves its own mark.

    Of the log and of what belongs to it the oldest files go first (MappedFileQueue.truncateDirtyFiles), of a queue the
    newest (ConsumeQueue.truncateDirtyLogicFiles), queue after queue in any order. Until 5.1 the log is cut before the
    queues, from 5.3 on after them. Index files that are newer than the checkpoint went before both
    (IndexService.load).
    """
    log: list[str] = []
    queues: list[list[str]] = []  # the files of each
    for number, (directory, at) in enumerate(_CUT_BEHIND):
        names = [name for name in sorted(content.below(directory.rstrip("/"))) if _leads_to(content, name, at) > cut]
        if number < _OLDEST_FIRST:
            log += names
        else:
            queues += [list(some) for _, some in itertools.groupby(names, lambda name: name.rpartition("/")[0])]
    indexes = content.below("index")
    content = content.with_(dict.fromkeys(indexes[rng.randint(0, len(indexes)) :]))
    for of_log in (True, False):
        rng.shuffle(queues)
        of_queues = [name for names in queues for name in reversed(names)]
        deleted = log + of_queues if of_log else of_queues + log
        for count in range(len(deleted) + 1):
            what = f"cut at {cut}, {'log' if of_log else 'queues'} first, {count} of {len(deleted)} files deleted"
            yield Killed(what, "", content.with_(dict.fromkeys(deleted[:count])))


def _leads_to(content: Content, name: str, at: int | None) -> int:
    """The position of a file's first byte in the log, or of the message that its first unit leads to, and one: a unit
    that leads to the cut itself is behind it."""
    if at is None:
        return int(name.rpartition("/")[2])
    position, size = struct.unpack_from(">qi", content[name], at)
    return int(position) + 1 if size > 0 else -1
