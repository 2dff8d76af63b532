"""Messages that a broker keeps for itself until they are due, and what a copy does with them.

                          one store                          several into one
    delay levels          as they are, with delayOffset      those not delivered, from queue offset 0 on
    transactions          as they are, with their offsets    half messages that are open, from 0 on
    timers                those not delivered, from 0 on     the same
    popped                as they are                        none: there may be no popped message

A broker reads queues for which it has no offset from the beginning. This always applies to timers: the broker's wheel
has physical offsets, which differ in a copy, and without a wheel the broker would deliver all timed messages again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from rmqstore_spark.columns import arrow_schema
from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.query.option_types import Mode
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.query.selection import EVERYTHING
from rmqstore_spark.store.format.system_topics import (
    HALF_TOPIC,
    REVIVE_PREFIX,
    ROCKSDB_HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANSACTION_TOPICS,
    WAITING_TOPICS,
)
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.timer import timer_time
from rmqstore_spark.tables.messages import messages
from rmqstore_spark.tables.picked import of_topics
from rmqstore_spark.tables.registry import table_batches
from rmqstore_spark.waiting_numbers import WaitingNumbers

Batches = Iterator[pa.RecordBatch]

_PLACES = arrow_schema(["commitLogOffset"])
_ANEW = frozenset({TIMER_TOPIC})
_ALL_ANEW = frozenset({TIMER_TOPIC, SCHEDULE_TOPIC, *TRANSACTION_TOPICS})


@dataclass(frozen=True)
class Waiting:
    """Messages of one store that wait in the broker's own topics.

    Attributes:
        positions: for the topics that begin anew, the physical offsets of the messages that are copied.
        is_one: whether the store is the only one that is copied.
    """

    positions: WaitingNumbers
    is_one: bool

    @classmethod
    def nothing(cls) -> Waiting:
        """No message of one store waits."""
        return cls(WaitingNumbers(_PLACES, iter(())), is_one=True)

    def begins_anew(self, topic: str) -> bool:
        """Do the queues of a topic get new queue offsets?"""
        return topic in (_ANEW if self.is_one else _ALL_ANEW) or (not self.is_one and topic.startswith(REVIVE_PREFIX))


def waiting_of(store: Snapshot, options: ReadOptions, is_one: bool) -> Waiting:
    """The messages that wait in a store.

    Args:
        options: how to read; their selection is ignored.

    Raises:
        RmqStoreError: several stores become one, and this one has popped messages that nobody has acknowledged.
    """
    return Waiting(WaitingNumbers(_PLACES, _that_wait(store, options, is_one)), is_one)


def _that_wait(store: Snapshot, options: ReadOptions, is_one: bool) -> Batches:
    """The places of messages that wait."""
    topics = store.known_topics | (WAITING_TOPICS if store.queues.may_lack_topics else frozenset())
    if TIMER_TOPIC in topics or (not is_one and SCHEDULE_TOPIC in topics):
        for delayed in _table(store, options, "delayed"):
            wanted = pc.equal(delayed["state"], "pending")
            if is_one:
                wanted = pc.and_(wanted, pc.equal(delayed["kind"], "timer"))
            yield delayed.filter(wanted).select(_PLACES.names)
    if TIMER_TOPIC in topics and is_one:
        yield from _popped_timers(store, options)
    if not is_one:
        if HALF_TOPIC in topics or ROCKSDB_HALF_TOPIC in topics:
            for halves in _table(store, options, "transactions"):
                yield halves.filter(pc.equal(halves["state"], "open")).select(_PLACES.names)
        _refuse_popped(store, options)


def _table(store: Snapshot, options: ReadOptions, name: str) -> Batches:
    """The rows of a table of a store."""
    return table_batches(replace(all_of(options), table=name, columns=None, given=frozenset()), [store])


def all_of(options: ReadOptions) -> ReadOptions:
    """The options without their selection; damage is skipped where the copy itself reports it."""
    mode: Mode = "FAILFAST" if options.mode == "FAILFAST" else "DROPMALFORMED"
    return replace(options, mode=mode, selection=EVERYTHING, subscribe=frozenset(), starting_group=None)


def _popped_timers(store: Snapshot, options: ReadOptions) -> Batches:
    """The places of pop consumers' records in the timer topic that are not due yet: when a record is due, a
    broker checks whether the popped message was acknowledged."""
    columns = ["realTopic", "properties", "commitLogOffset"]
    until = timer_time(store.root, store.files)
    for timers in messages(store, all_of(options), of_topics(TIMER_TOPIC), columns):
        timers = timers.filter(pc.starts_with(pc.fill_null(timers["realTopic"], ""), REVIVE_PREFIX))
        out = pc.map_lookup(timers["properties"], "TIMER_OUT_MS", "last").to_pylist()
        is_due = [text is None or not text.isdecimal() or int(text) > until for text in out]
        yield timers.filter(pa.array(is_due, pa.bool_())).select(_PLACES.names)


def _refuse_popped(store: Snapshot, options: ReadOptions) -> None:
    if not any(topic.startswith(REVIVE_PREFIX) for topic in store.known_topics):
        return
    popped = sum(map(len, _table(store, options, "inflight")))
    if popped:
        raise RmqStoreError(
            f"{store.root}: expected no message that a group has popped and not acknowledged, found {popped:,}: they "
            "would be lost where stores become one; let the broker run until `rmqstore inflight` shows none"
        )
