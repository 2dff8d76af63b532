"""Messages that options leave out of a copy: which they are in the sources, and what is found of them in the copy.

What is left out is found by the same selections as messages are read by, and so is what may be left: so a search in the
copy that finds nothing finds nothing for anybody. Bytes are looked for, too, as other messages may name a person.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore_spark.columns import LONG, TEXT, Column, arrow_schema, as_schema
from rmqstore_spark.errors import NotAStoreError, OptionError, nearest, quoted
from rmqstore_spark.jobs.copying.source import Source
from rmqstore_spark.query.copy_options import CopyOptions, Exclusion
from rmqstore_spark.query.option_types import Mode
from rmqstore_spark.query.options import ReadOptions, parse_options
from rmqstore_spark.query.selection import Selection, Texts
from rmqstore_spark.read.scan import Scan
from rmqstore_spark.sorting import WaitingRows
from rmqstore_spark.store.format.by_queue import QueueName
from rmqstore_spark.store.format.message import INNER_BATCH
from rmqstore_spark.store.format.system_topics import is_moved
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables.columns import batches
from rmqstore_spark.waiting_numbers import WaitingNumbers
from rmqstore_spark.write.build.kept_offsets import Lost

_QUEUED = ["topic", "queueId", "queueOffset"]
_COLUMNS = ["commitLogOffset", "storeSize", "sysFlag", *_QUEUED]
_FOUND = arrow_schema(["commitLogOffset", "storeSize", *_QUEUED])
_OFFSETS_AT_ONCE = 64 * 1024
_AT_ONCE = 16 * 1024 * 1024  # bytes
_TABLE = (
    Column("option", TEXT, "the option that leaves messages out"),
    Column("value", TEXT, "its value"),
    Column("messages", LONG, "messages left out"),
    Column("bytes", LONG, "bytes of these messages in the log"),
    Column("found", LONG, "messages that the same search finds in the copy"),
    Column("inBodies", LONG, "messages of the copy whose body, decompressed, contains the value"),
    Column("inBytes", LONG, "places in the commitlog and the configuration of the copy with the value's bytes"),
    Column("firstPlace", TEXT, "the first of these places; null where there is none"),
)
SCHEMA = as_schema(_TABLE)


@dataclass(frozen=True)
class LeftOut:
    """Messages that an exclusion leaves out of a copy of one log.

    Attributes:
        positions: their physical offsets.
        nbytes: of the messages in the log.
        queued: their queue offsets, by topic and queueId.
    """

    exclusion: Exclusion
    positions: WaitingNumbers
    nbytes: int
    queued: WaitingNumbers


def check_topics(stores: Sequence[Snapshot], own: CopyOptions) -> None:
    """Refuse to leave out topics that no store has: a wrong name must not pass for an empty topic.

    Raises:
        OptionError: naming the topic.
    """
    known = {topic for store in stores for topic in (*store.topics, *store.known_topics)}
    for topic in sorted(own.excluded_topics - known):
        raise OptionError(f"option 'excludeTopic': no store has topic {quoted(topic)}.{nearest(topic, sorted(known))}")


def left_out(store: Snapshot, roots: list[str], options: ReadOptions, own: CopyOptions) -> Iterator[LeftOut]:
    """What each exclusion leaves out of a log.

    Args:
        store: the log's store, of several replicas the newest.
        roots: the paths of all replicas.
        options: how to read; their selection is ignored.

    Raises:
        NotAStoreError: a batch has a message that is to go, and others.
    """
    mode: Mode = "FAILFAST" if options.mode == "FAILFAST" else "DROPMALFORMED"
    how = replace(options, mode=mode, paths=roots, explode_batches=False, subscribe=frozenset(), starting_group=None)
    for each in own.exclusions:
        found = WaitingRows(_FOUND, _that_go(how, each, store))
        positions = _numbers(found, ["commitLogOffset"])
        nbytes = sum(pc.sum(batch.column("storeSize")).as_py() or 0 for batch in found)
        yield LeftOut(each, positions, nbytes, _numbers(found, _QUEUED))


def _numbers(found: WaitingRows, columns: list[str]) -> WaitingNumbers:
    return WaitingNumbers(arrow_schema(columns), (batch.select(columns) for batch in found))


def _that_go(how: ReadOptions, exclusion: Exclusion, store: Snapshot) -> Iterator[pa.RecordBatch]:
    for batch in _found(how, exclusion, store):
        _refuse_batches(store, exclusion, batch)
        yield batch.select(_FOUND.names)


def without_left_out(gaps: Iterable[Lost], source: Source, gone: Sequence[LeftOut]) -> list[Lost]:
    """The gaps in a source's queues that are not made by leaving messages out, and those whose queue offsets are given
    out again."""
    return [gap for gap in gaps if gap.is_reused or not _is_left_out(gap, source.old_name(*gap.queue), gone)]


def _is_left_out(gap: Lost, queue: QueueName, gone: Sequence[LeftOut]) -> bool:
    """Are all queue offsets of a gap among those that are left out?"""
    stop = gap.queue_offset + gap.count
    for first in range(gap.queue_offset, stop, _OFFSETS_AT_ONCE):
        offsets = np.arange(first, min(stop, first + _OFFSETS_AT_ONCE), dtype=np.int64)
        if not np.any([each.queued.are_in(offsets, *queue) for each in gone], axis=0).all():
            return False
    return True


def _found(options: ReadOptions, exclusion: Exclusion, store: Snapshot) -> Iterator[pa.RecordBatch]:
    """The messages that an exclusion names."""
    topic = exclusion.topic
    if topic is None:
        yield from _rows(replace(options, selection=exclusion.selection), _COLUMNS)
        return
    moved = {name for name in store.known_topics if is_moved(name)}
    selection = Selection(topic=Texts(among=frozenset({topic, *moved})))
    for batch in _rows(replace(options, selection=selection), [*_COLUMNS, "realTopic"]):
        are_of_it = (pc.equal(pc.fill_null(batch.column(name), ""), topic) for name in ("topic", "realTopic"))
        yield batch.filter(pc.or_(*are_of_it))


def _rows(options: ReadOptions, columns: list[str]) -> Iterator[pa.RecordBatch]:
    return (batch for batch in Scan(options, columns).batches() if batch.num_rows)


def _refuse_batches(store: Snapshot, exclusion: Exclusion, batch: pa.RecordBatch) -> None:
    """Refuse to leave out a whole batch because of one of its messages."""
    if exclusion.topic is not None:
        return
    flags = batch.column("sysFlag").to_numpy()
    for row in np.flatnonzero(flags & INNER_BATCH).tolist():
        topic, position = (batch.column(name)[row].as_py() for name in ("topic", "commitLogOffset"))
        raise NotAStoreError(
            f"{store.root}: commitLogOffset {position}: a batch of several messages in topic {quoted(topic)}, of which "
            f"{exclusion.option} {quoted(exclusion.value)} names some: expected single messages, as a batch is copied "
            "whole or not at all; leave the topic out (excludeTopic), or write its rows elsewhere"
        )


# ---- the proof


def report(target: str, own: CopyOptions, found: Iterable[LeftOut]) -> pa.Table:
    """What was left out, and what a search of the new store finds of it.

    Args:
        target: the new store.
        found: of all logs.
    """
    if not own.exclusions:
        return SCHEMA.empty_table()
    every = list(found)
    store = Snapshot.find(target, Files())
    return pa.Table.from_batches(batches(SCHEMA, (_row(store, each, every) for each in own.exclusions)), SCHEMA)


def _row(store: Snapshot, exclusion: Exclusion, found: Sequence[LeftOut]) -> tuple[object, ...]:
    of_it = [each for each in found if each.exclusion == exclusion]
    options = _searching(store)
    left = sum(batch.num_rows for batch in _found(options, exclusion, store))
    bodies = replace(options, selection=Selection(body=exclusion.sought))
    in_bodies = sum(batch.num_rows for batch in _rows(bodies, ["commitLogOffset"]))
    places = list(_places(store, exclusion.sought))
    return (
        *(exclusion.option, exclusion.value),
        sum(len(each.positions) for each in of_it),
        sum(each.nbytes for each in of_it),
        *(left, in_bodies, sum(count for _, count in places), places[0][0] if places else None),
    )


def _searching(store: Snapshot) -> ReadOptions:
    return parse_options({"path": store.root})


def _places(store: Snapshot, sought: bytes) -> Iterator[tuple[str, int]]:
    """The files with these bytes: the first place in each as text, and the number of places."""
    files = Files()
    paths = [extent.segment.path for extent in store.log.extents]
    config = os.path.join(store.root, "config")
    paths += [os.path.join(config, name) for name in sorted(files.names(config))]
    for path in paths:
        yield from _in_file(path, sought, files)


def _in_file(path: str, sought: bytes, files: Files) -> Iterator[tuple[str, int]]:
    """The first place of some bytes in a file, and the number of places; nothing where there is none."""
    first, count = -1, 0
    with files.file(path) as reading:
        for start, stop in reading.extents(0, reading.size):  # holes have none, and segments are mostly holes
            before = b""
            for at in range(start, stop, _AT_ONCE):
                data = before + reading.read(at, min(_AT_ONCE, stop - at))
                place = data.find(sought)
                while place >= 0:
                    first, count = first if count else at - len(before) + place, count + 1
                    place = data.find(sought, place + 1)
                before = data[len(data) - len(sought) + 1 :] if len(sought) > 1 else b""
    if count:
        yield f"{path}, position {first}", count
