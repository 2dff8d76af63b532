"""Option `configFrom`: rows read by this package become a new store, and the broker's settings for topics and groups
come along. Queue offsets are given anew; each group goes on where it was.

A group's offset names the next message of a queue. Tasks count the rows before that message, and the count is the new
offset. For that the rows of each queue have to come in the order of the queue. Delay levels have such an offset, too
(delayOffset.json). The broker's records of transactions, timers and pops name messages by offsets that are given anew:
such topics are refused here; Store.copy copies them. So are the logic queues of static topics parts of queues by their
offsets: they do not come along, and a warning says so.
"""

import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqstore_spark.errors import NotAStoreError, OptionError, one_line
from rmqstore_spark.query.options import WriteOptions
from rmqstore_spark.store.format.by_queue import Integers, by_queue
from rmqstore_spark.store.format.message import are_queued
from rmqstore_spark.store.format.system_topics import REVIVE_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC, TRANSACTION_TOPICS
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures import config
from rmqstore_spark.store.structures.config import OffsetsByName, Table
from rmqstore_spark.store.structures.consumer_offsets import ConsumerOffsets, sound_offsets
from rmqstore_spark.store.structures.kinds import kind_with
from rmqstore_spark.store.structures.layout import find_store, place_to_write
from rmqstore_spark.write.build.tails import Queue

logger = logging.getLogger(__name__)

NEEDED = ("topic", "queueId", "queueOffset")  # columns
_REFUSED = (*TRANSACTION_TOPICS, TIMER_TOPIC)
_NAMES = ("topics.json", "subscriptionGroup.json", "delayOffset.json")  # and that of the consumers' offsets


@dataclass(frozen=True)
class ConfigFrom:
    """The configuration that comes along.

    Attributes:
        root: the store that the configuration is of.
        topics: the entry of each topic in topics.json.
        groups: the contents of subscriptionGroup.json.
        offsets: of groups, by (group, topic) and queueId.
        delays: the offsets of delay levels.
        mapped: the static topics.
        offsets_file: the name of the file with the groups' offsets.
    """

    root: str
    topics: Mapping[str, Table]
    groups: Table
    offsets: OffsetsByName | ConsumerOffsets
    delays: dict[int, int]
    mapped: frozenset[str]
    offsets_file: str

    @classmethod
    def of(cls, root: str) -> "ConfigFrom":
        """The configuration of a store.

        Raises:
            NotAStoreError: the path is no store.
            OptionError: the store has no config/topics.json, a file of config/ cannot be understood, or the
                configuration is in a RocksDB.
        """
        files = Files()
        try:
            find_store(root, None, files)
        except NotAStoreError as why:
            raise NotAStoreError(f"option 'configFrom': {why}") from None
        kind = kind_with(root, files, "topics", "groups", "offsets")
        offsets_file = config.offsets_files(root, files.unlinked()).name
        understood = {name: _understood(root, name) for name in (*_NAMES, offsets_file)}
        tables = {name: table for name, table in understood.items() if not isinstance(table, ConsumerOffsets)}
        members = {name: table.get(config.MEMBERS[name], {}) for name, table in tables.items()}
        topics = members["topics.json"]
        if kind is not None or not topics:
            path = os.path.join(root, "config", "topics.json") if kind is None else os.path.join(root, kind.path)
            found = "none" if kind is None else kind.what
            raise OptionError(
                f"option 'configFrom': {path}: expected the broker's topics, found {found}; a configuration in RocksDB "
                "is not read: remove the option"
            )
        kept = understood[offsets_file]
        offsets = kept if isinstance(kept, ConsumerOffsets) else config.offsets_in(config.offset_entries(kept))
        delays = config.offsets_by_number(members["delayOffset.json"])
        mapped = frozenset(config.member_of(root, config.STATIC_TOPICS, config.LOGIC_QUEUES, files.unlinked()))
        return cls(root, topics, tables["subscriptionGroup.json"], offsets, delays, mapped, offsets_file)

    def positions(self) -> dict[Queue, tuple[int, ...]]:
        """The offsets in each queue that must be known in the new store, ascending."""
        found: dict[Queue, set[int]] = {}
        for (_, topic), queues in self.offsets.items():
            for queue_id, offset in queues.items():
                found.setdefault((topic, queue_id), set()).add(offset)
        for level, offset in self.delays.items():
            found.setdefault((SCHEDULE_TOPIC, level - 1), set()).add(offset)
        return {queue: tuple(sorted(offsets)) for queue, offsets in found.items()}

    def files(self, rows: "Counts", topics: Iterable[str]) -> dict[str, bytes]:
        """The files of config/ except topics.json, by name.

        Args:
            rows: the counts of all rows that are written.
            topics: the topics of these rows.
        """
        new = {queue: rows.before(queue, offsets) for queue, offsets in self.positions().items()}
        written = set(topics)
        self._say_what_stays(written)
        groups = {
            f"{topic}@{group}": {str(queue_id): new[topic, queue_id][offset] for queue_id, offset in queues.items()}
            for (group, topic), queues in self.offsets.items()
            if topic in written
        }
        found = {self.offsets_file: config.offsets_table(groups, self.offsets_file)}
        if self.groups:
            found["subscriptionGroup.json"] = self.groups
        if SCHEDULE_TOPIC in written:
            delays = {str(level): new[SCHEDULE_TOPIC, level - 1][offset] for level, offset in self.delays.items()}
            found["delayOffset.json"] = {"offsetTable": delays}
        return {name: json.dumps(table, indent="\t").encode() for name, table in found.items()}

    def _say_what_stays(self, written: set[str]) -> None:
        if written & self.mapped:
            logger.warning(
                "option 'configFrom': %s: static topics: rows get other queue offsets, so the new store does not have "
                "their logic queues and offsets; a copy has them (Store.copy, rmqstore copy)",
                one_line(self.root),
            )


def _understood(root: str, name: str) -> Table | ConsumerOffsets:
    """The contents of a file of config/; consumers' offsets where there are more than are parsed. Links are not
    followed: a link could lead to a file that is no broker's."""
    files = Files().unlinked()
    taken = config.what_is_taken(root, name, files)
    if not taken.is_too_large:
        table, why = config.read(root, name, files)
        if why is None:
            return table
        raise OptionError(
            f"option 'configFrom': {why}; so the new store would lack what is in {name}: `rmqstore rebuild "
            "--config` on that store takes its backup, or says what is lost"
        )
    offsets = sound_offsets(os.path.join(root, "config", name), files) if name in config.OFFSETS else None
    if offsets is None:
        raise OptionError(
            f"option 'configFrom': {taken.why_not}; so the new store would lack what is in {name}: remove the option, "
            "and give the new store what it is to have of this file"
        )
    return offsets


@dataclass(frozen=True)
class _QueueRows:
    """Rows of one queue, in the order of their queueOffsets in the store that was read.

    Attributes:
        first, last: the queueOffsets of the first and the last row.
        before: for each position that was asked for, how many of the rows have a queueOffset below it.
    """

    first: int
    last: int
    before: tuple[int, ...]


def config_from_option(options: WriteOptions) -> ConfigFrom | None:
    """The configuration that options ask to bring, None without that option; errors as of ConfigFrom.of()."""
    return None if options.config_from is None else ConfigFrom.of(place_to_write(options.config_from, "configFrom"))


@dataclass
class Counts:
    """Counts rows by their queueOffsets in the store that was read.

    Args:
        positions: as of ConfigFrom.positions().
    """

    positions: Mapping[Queue, tuple[int, ...]]
    _queues: dict[Queue, _QueueRows] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the next rows.

        Raises:
            OptionError: a column is missing or has nulls, a topic is one that is refused, or the rows do not come in
                the order of their queues.
        """
        columns = [_column(batch, name) for name in NEEDED]
        queued = _queued(batch)
        topic = columns[0].dictionary_encode()
        topics = topic.dictionary.to_pylist()
        _refuse(topics)
        codes, queue_ids, offsets = (_integers(each)[queued] for each in (topic.indices, columns[1], columns[2]))
        for queue, rows in by_queue(topics, codes, queue_ids).runs():
            self._add(queue, offsets[rows])

    def extend(self, others: Sequence["Counts"]) -> None:
        """Add rows that come next and were counted elsewhere.

        Raises:
            OptionError: as of add().
        """
        for other in others:
            for queue, rows in other._queues.items():
                self._join(queue, rows)

    def before(self, queue: Queue, offsets: tuple[int, ...]) -> dict[int, int]:
        """The number of rows before each of these offsets, all of which are positions of the queue."""
        rows = self._queues.get(queue)
        return dict(zip(offsets, rows.before if rows is not None else (0,) * len(offsets), strict=True))

    def _add(self, queue: Queue, offsets: Integers) -> None:
        steps = np.flatnonzero(offsets[1:] <= offsets[:-1])
        if len(steps):
            raise _out_of_order(queue, int(offsets[steps[0]]), int(offsets[steps[0] + 1]))
        before = np.searchsorted(offsets, self.positions.get(queue, ())).tolist()
        self._join(queue, _QueueRows(int(offsets[0]), int(offsets[-1]), tuple(before)))

    def _join(self, queue: Queue, rows: _QueueRows) -> None:
        known = self._queues.get(queue)
        if known is not None:
            if rows.first <= known.last:
                raise _out_of_order(queue, known.last, rows.first)
            before = tuple(a + b for a, b in zip(known.before, rows.before, strict=True))
            rows = replace(rows, first=known.first, before=before)
        self._queues[queue] = rows


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    at = batch.schema.get_field_index(name)
    if at < 0 or batch.column(at).null_count:
        found = "none" if at < 0 else "nulls in it"
        raise OptionError(f"option 'configFrom': column {name!r}: expected it as our reader gives it, found {found}")
    return batch.column(at)


def _queued(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Which rows are in a queue."""
    at = batch.schema.get_field_index("sysFlag")
    if at < 0:
        return np.ones(batch.num_rows, bool)
    return are_queued(_integers(batch.column(at).fill_null(0)))


def _refuse(topics: Iterable[str]) -> None:
    for topic in topics:
        if topic in _REFUSED or topic.startswith(REVIVE_PREFIX):
            raise OptionError(
                f"option 'configFrom': topic {topic!r} is the broker's own, and names messages by their offsets, which "
                "are given anew: omit its rows, or copy the store (Store.copy, rmqstore copy)"
            )


def _integers(array: pa.Array) -> Integers:
    return array.to_numpy(zero_copy_only=False).astype(np.int64)  # type: ignore[no-any-return]


def _out_of_order(queue: Queue, before: int, found: int) -> OptionError:
    return OptionError(
        f"option 'configFrom': queue {queue[1]} of topic {queue[0]!r}: expected the rows of each queue in the order of "
        f"their queueOffsets, as one store has them, found {found} after {before}; write what the reader gives as it "
        "comes, or remove the option"
    )
