"""The logs of single queues: of compaction topics and of a tiered store, with the units that lead along them.

In a compaction log queue offsets ascend, with gaps where messages were superseded. Each message has a unit in the file
of the same name in compactionCq/, with its position, size, hash of the tag, store time and queue offset. Gaps between
files are no fault: a pass leaves them.
Source: org.apache.rocketmq.store.kv.CompactionLog, store.queue.SparseConsumeQueue.
"""

import functools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from native_io import java_hashes
from rmqstore_spark.errors import DamagedStoreError, DeletedMeanwhileError
from rmqstore_spark.store.compaction_log import CompactionLog
from rmqstore_spark.store.format.units import BatchBuilder, Budget
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.logs import queue_logs_of
from rmqstore_spark.store.queue_log import QueueLog
from rmqstore_spark.store.snapshot import StoreRef
from rmqstore_spark.store.structures.compaction import UNIT, compaction_queue_file
from rmqstore_spark.store.structures.segments import Damage, Extent
from rmqstore_spark.store.structures.tiered import UNIT as TIERED_UNIT
from rmqstore_spark.store.structures.tiered import tiered_queue_files
from rmqstore_spark.store.tiered_log import TieredLog
from rmqstore_spark.tables.check.moment import Moment
from rmqstore_spark.tables.check.problems import Finding

_COLUMNS = ["topic", "queueId", "queueOffset", "commitLogOffset", "storeSize", "storeTimestamp", "tags"]
_SIZE = _COLUMNS.index("storeSize")
_BUDGET = Budget(16 * 1024, 16 * 1024 * 1024)
_COMPARED = [name for name in UNIT.names or () if name != "reserved"]
_END = -1  # the position in a unit that ends a file


@dataclass(frozen=True)
class QueueLogs:
    """The part of a check that is about the logs of single queues."""


class _Units(NamedTuple):
    """The messages of a file, as its units should be, and its damage."""

    expected: npt.NDArray[np.void]
    damages: list[Damage]


def check_queue_logs(store: StoreRef, moment: Moment) -> Iterator[Finding]:
    """Check the logs of single queues that a store is or has, and the units that lead to their messages."""
    for log in queue_logs_of(store):
        yield from _check(log, moment)


@functools.singledispatch
def _check(log: QueueLog, moment: Moment) -> Iterator[Finding]:
    """Check one log. Each kind registers how."""
    raise NotImplementedError(type(log))


@_check.register
def _check_compaction_log(log: CompactionLog, moment: Moment) -> Iterator[Finding]:
    """A file that a pass replaces meanwhile is not judged."""
    for file in log.lost_files:
        yield Finding(
            "damagedCompactionLog",
            file.path,
            topic=log.queue[0],
            queue_id=log.queue[1],
            expected=f"a file with messages up to queueOffset {file.unit.queue_offset}",
            found="no file",
            count=file.unit.position + file.unit.size - file.start,
        )
    try:
        last = log.log.extents[-1:]
        check_queue = functools.partial(_check_queue, log, may_lag_in=last if moment.is_unsettled else [])
        yield from list(_check_log(log, "damagedCompactionLog", check_queue))
    except DeletedMeanwhileError:
        return
    except DamagedStoreError as why:
        topic, queue_id = log.queue
        yield Finding("damagedCompactionLog", topic=topic, queue_id=queue_id, expected="one log", found=str(why))


@_check.register
def _check_tiered_log(log: TieredLog, moment: Moment) -> Iterator[Finding]:
    topic, queue_id = log.queue
    try:
        for hole in log.holes:
            yield Finding(
                "holeInQueueLog",
                hole.path,
                topic=topic,
                queue_id=queue_id,
                expected=f"a file that begins at {hole.start}",
                found=f"one that begins at {hole.stop}",
                count=hole.stop - hole.start,
            )
        found: list[_Units] = []

        def keep(extent: Extent, units: _Units) -> Iterator[Finding]:
            found.append(units)
            return iter(())

        unordered = []
        for finding in _check_log(log, "damagedQueueLog", keep):
            if finding.problem == "unorderedQueueLog":
                unordered.append(finding)
            else:
                yield finding
        units = np.concatenate([each.expected for each in found]) if found else np.empty(0, UNIT)
        by_units = [*([] if _is_complete(units) else unordered), *_check_tiered_queue(log, units)]
        yield from by_units
        are_wrong = any(finding.problem != "noTieredQueue" for finding in by_units)  # then that is what is told
        for missing in () if are_wrong or log.holes else log.never_brought():
            yield Finding(
                "holeInQueueLog",
                missing.path,
                missing.position,
                topic=topic,
                queue_id=queue_id,
                expected="the messages that the queue has units for",
                found=missing.reason,
                count=0,
            )
    except DamagedStoreError as why:
        yield Finding("damagedQueueLog", topic=topic, queue_id=queue_id, expected="one log", found=str(why))


def _is_complete(units: npt.NDArray[np.void]) -> bool:
    """Is each queue offset there once, from the first to the last? Then their order is no fault: of messages that a
    broker was to bring again when it was killed once more, only those are there that it had brought first, before
    others."""
    numbers = np.sort(units["queueOffset"])
    return bool((np.diff(numbers) == 1).all())


def _check_log(
    log: QueueLog, damaged: str, check_queue: Callable[[Extent, _Units], Iterator[Finding]]
) -> Iterator[Finding]:
    """Check the messages of a log.

    Args:
        damaged: the problem that damage is.
        check_queue: checks the units that lead to the messages of a file.
    """
    topic, queue_id = log.queue
    before = -1
    extents = log.log.extents
    of_files = {extent.segment.start: extent for extent in extents}
    for segment in log.segments:
        extent = of_files.get(segment.start, Extent(segment, segment.start, segment.start))
        path, damages, found = extent.segment.path, list[Damage](), list[npt.NDArray[np.void]]()
        for each in _read(log, extent):
            if isinstance(each, Damage):
                damages.append(each)
                yield Finding(
                    damaged,
                    path,
                    each.position,
                    topic=topic,
                    queue_id=queue_id,
                    expected="a message",
                    found=each.reason,
                    count=each.stop - each.start,
                )
                continue
            yield from _of_others(log, extent, each)
            units = _expected(each)
            if (finding := _order(log, extent, before, units)) is not None:
                yield finding
            before = int(units["queueOffset"][-1])
            found.append(units)
        yield from check_queue(extent, _Units(np.concatenate(found) if found else np.empty(0, UNIT), damages))
    if extents:
        yield from _after_end(log, extents[-1])


def _read(log: QueueLog, extent: Extent) -> Iterator[pa.RecordBatch | Damage]:
    builder, told, nbytes = BatchBuilder(_COLUMNS, _BUDGET), set[int](), 0

    def finished() -> Iterator[pa.RecordBatch]:
        nonlocal nbytes
        if builder.decoder.rows:
            batch = builder.finish()
            nbytes += pc.sum(batch.column(_SIZE)).as_py()
            yield batch

    with log.reader(extent.segment, verify_crc=True) as reader:
        past = log.past_damage(reader)
        for damage in past.decode(extent.start, extent.stop, builder):
            if damage is not None and damage.start < damage.stop:  # else the units tell that messages are missing
                yield from finished()
                told.add(damage.start)
                nbytes += damage.stop - damage.start
                yield damage
            elif builder.is_full:
                yield from finished()
        yield from finished()
        if nbytes < extent.stop - extent.start:  # for a read it does not matter whether copies are sound
            for damage in past.decode_copies(extent.start, extent.stop, builder):
                if builder.is_full:
                    builder.finish()
                if damage is not None and damage.start < damage.stop and damage.start not in told:
                    yield damage


def _expected(batch: pa.RecordBatch) -> npt.NDArray[np.void]:
    units = np.zeros(batch.num_rows, UNIT)
    units["queueOffset"], units["position"], units["size"] = (batch.column(at).to_numpy() for at in (2, 3, 4))
    units["store time"] = batch.column(5).cast(pa.int64()).fill_null(0).to_numpy() // 1000
    tags = batch.column(6).fill_null("")
    units["tagsCode"] = java_hashes(tags)
    units["messages"] = 1
    return units


def _of_others(log: QueueLog, extent: Extent, batch: pa.RecordBatch) -> Iterator[Finding]:
    topic, queue_id = log.queue
    names = zip(*(batch.column(at).to_pylist() for at in (0, 1, 3)), strict=True)
    wrong = [(of, number, position) for of, number, position in names if (of, number) != log.queue]
    if wrong:
        of, number, position = wrong[0]
        yield Finding(
            "foreignInQueueLog",
            extent.segment.path,
            position - extent.segment.start,
            topic=topic,
            queue_id=queue_id,
            expected=f"messages of topic {topic!r}, queue {queue_id}",
            found=f"one of topic {of!r}, queue {number}",
            count=len(wrong),
        )


def _order(log: QueueLog, extent: Extent, before: int, units: npt.NDArray[np.void]) -> Finding | None:
    """Queue offsets that do not ascend."""
    bases = units["queueOffset"].astype(np.int64)
    steps = np.diff(bases, prepend=before)
    wrong = np.flatnonzero(steps <= 0)
    if not len(wrong):
        return None
    at = int(wrong[0])
    last = before if at == 0 else int(bases[at - 1])
    return Finding(
        "unorderedQueueLog",
        extent.segment.path,
        int(units["position"][at]) - extent.segment.start,
        topic=log.queue[0],
        queue_id=log.queue[1],
        queue_offset=int(bases[at]),
        expected=f"a queueOffset after {last}",
        found=f"{bases[at]}",
        count=len(wrong),
    )


def _check_queue(log: QueueLog, extent: Extent, units: _Units, may_lag_in: list[Extent]) -> Iterator[Finding]:
    """Compare the messages of a file with the units that lead to them.

    Args:
        may_lag_in: the file in which the last messages need no units yet.
    """
    path = compaction_queue_file(log.root, log.queue, os.path.basename(extent.segment.path))
    claims = _claims(path, log.files)
    if claims is None:
        if len(units.expected):
            yield _queue_finding(log, path, None, units.expected[0], "no file", len(units.expected))
        return
    used = np.flatnonzero((claims["size"] != 0) & (claims["position"] != _END))
    known = claims[used]
    at = np.searchsorted(units.expected["position"], known["position"])
    is_there = np.zeros(len(known), bool)
    inside = at < len(units.expected)
    is_there[inside] = units.expected["position"][at[inside]] == known["position"][inside]
    is_right = is_there.copy()
    for name in _COMPARED:
        is_right[is_there] &= units.expected[name][at[is_there]] == known[name][is_there]
    for damage in units.damages:
        is_right |= ~is_there & (known["position"] >= damage.start) & (known["position"] < damage.stop)
    wrong = np.flatnonzero(~is_right)
    if len(wrong):
        first = int(wrong[0])
        here = units.expected[at[first]] if is_there[first] else None
        yield _queue_finding(log, path, int(used[first]), here, _text(known[first]), len(wrong))
    missing = np.flatnonzero(~np.isin(units.expected["position"], known["position"]))
    if extent in may_lag_in:  # a broker writes the unit after the message
        missing = missing[units.expected["position"][missing] < known["position"].max(initial=-1)]
    if len(missing):
        yield _queue_finding(log, path, None, units.expected[int(missing[0])], "none", len(missing))


def _queue_finding(
    log: QueueLog, path: str, number: int | None, unit: np.void | None, found: str, count: int
) -> Finding:
    return Finding(
        "wrongCompactionQueue",
        path,
        None if number is None else number * UNIT.itemsize,
        topic=log.queue[0],
        queue_id=log.queue[1],
        queue_offset=None if unit is None else int(unit["queueOffset"]),
        expected="a unit of a message in the compaction log" if unit is None else _text(unit),
        found=found,
        count=count,
    )


def _text(unit: np.void) -> str:
    fields = ", ".join(f"{name} {int(unit[name])}" for name in _COMPARED)
    return f"a unit with {fields}"


def _claims(path: str, files: Files) -> npt.NDArray[np.void] | None:
    """The units of a file of compactionCq/; None where there is no such file."""
    if not files.exists(path):
        return None
    with files.file(path) as file:
        data = file.read(0, file.size // UNIT.itemsize * UNIT.itemsize)
    return np.frombuffer(data[: len(data) // UNIT.itemsize * UNIT.itemsize], UNIT)


def _check_tiered_queue(log: TieredLog, units: npt.NDArray[np.void]) -> Iterator[Finding]:
    """Compare the messages of a tiered queue with its units, whose number is the queueOffset. The last messages may
    have none, for a broker brings the units later; and units may be left of what has expired."""
    extents = log.log.extents
    end = extents[-1].stop if extents else 0
    before = None
    for path, start in tiered_queue_files(log.layout, log.files):
        claims = _tiered_claims(path, log.files)
        if before is not None and before < start:
            yield _no_units(
                log, f"a file of CONSUME_QUEUE that begins at {before}", f"one that begins at {start}", path
            )
        numbers = start // TIERED_UNIT.itemsize + np.arange(len(claims))
        at = np.minimum(np.searchsorted(units["position"], claims["position"]), max(len(units) - 1, 0))
        is_there = units["position"][at] == claims["position"] if len(units) else np.zeros(len(claims), bool)
        is_right = ~is_there
        known = units[at[is_there]]
        is_right[is_there] = (known["queueOffset"] == numbers[is_there]) & (known["size"] == claims["size"][is_there])
        is_right[is_there] &= known["tagsCode"] == claims["tagsCode"][is_there]
        wrong = np.flatnonzero(~is_right)
        if len(wrong):
            first = int(wrong[0])
            expected = _text(units[at[first]])
            size, code = claims["size"][first], claims["tagsCode"][first]
            found_here = f"a unit of queueOffset {numbers[first]} with size {size}, tagsCode {code}"
            yield _tiered_finding("wrongTieredQueue", log, path, start, wrong, expected, found_here)
        ahead = np.flatnonzero(claims["position"] >= end)
        if len(ahead) and not log.grows():
            expected = f"positions before {end}, where the queue's log ends"
            found_here = f"position {claims['position'][ahead[0]]}"
            yield _tiered_finding("tieredQueueAhead", log, path, start, ahead, expected, found_here)
        before = start + len(claims) * TIERED_UNIT.itemsize
    if before is None and len(units):
        yield _no_units(log, "files of CONSUME_QUEUE", "none")


def _no_units(log: QueueLog, expected: str, found: str, path: str | None = None) -> Finding:
    topic, queue_id = log.queue
    return Finding("noTieredQueue", path, topic=topic, queue_id=queue_id, expected=expected, found=found)


def _tiered_finding(
    problem: str, log: QueueLog, path: str, start: int, units: npt.NDArray[np.intp], expected: str, found: str
) -> Finding:
    """A finding about units of a tiered queue's file, of which the first is shown.

    Args:
        start: the flat offset that the file begins with.
        units: the numbers of the units in the file.
    """
    at = int(units[0]) * TIERED_UNIT.itemsize
    return Finding(
        problem,
        path,
        at,
        topic=log.queue[0],
        queue_id=log.queue[1],
        queue_offset=(start + at) // TIERED_UNIT.itemsize,
        expected=expected,
        found=found,
        count=len(units),
    )


def _tiered_claims(path: str, files: Files) -> npt.NDArray[np.void]:
    with files.file(path) as file:
        data = file.read(0, file.size)
    return np.frombuffer(data[: len(data) // TIERED_UNIT.itemsize * TIERED_UNIT.itemsize], TIERED_UNIT)


def _after_end(log: QueueLog, extent: Extent) -> Iterator[Finding]:
    """Bytes after a log's last message that are no message: half of one, of a broker that was killed."""
    with log.reader(extent.segment) as reader:
        if extent.stop >= reader.file_end or reader.is_closed_at(extent.stop):
            return
        head = reader.read(extent.stop, min(4096, reader.file_end - extent.stop))
    if any(head):
        yield Finding(
            "unfinishedQueueLog",
            extent.segment.path,
            extent.stop - extent.segment.start,
            topic=log.queue[0],
            queue_id=log.queue[1],
            expected="only zeros after the last message",
            found="other bytes",
        )
