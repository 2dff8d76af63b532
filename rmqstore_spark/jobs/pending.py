"""What waits in a store, counted: delayed messages that are not delivered, open transactions, popped messages that
nobody acknowledged.

The tables `delayed`, `transactions` and `inflight` know it of any store. To know what became of a waiting message they
look for it under its own topic, which may take them through much of the log: here they are asked only where that takes
a moment.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from rmqstore_spark.errors import RmqStoreError, counted
from rmqstore_spark.query.options import parse_options
from rmqstore_spark.read.run.damage_reports import listening
from rmqstore_spark.store.format.system_topics import (
    REVIVE_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANSACTION_TOPICS,
)
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables.registry import table

_MOST_MESSAGES, _MOST_LOG, _MOST_SEGMENTS = 5_000, 128 << 20, 256  # these take at most some 0.4 s


@dataclass(frozen=True)
class Pending:
    """A kind of messages that wait.

    Attributes:
        table: the table that has them.
        what: one of them, in words.
        count: None if they were not counted.
        messages: all messages in the topics where they wait, pending or not.
    """

    table: str
    what: str
    count: int | None
    messages: int


@dataclass(frozen=True)
class _Kind:
    """What Pending has of any store.

    Attributes:
        state: of the rows that are pending; None: each row is.
        waits: whether such messages wait in a topic.
    """

    table: str
    what: str
    state: str | None
    waits: Callable[[str], bool]


_KINDS = (
    _Kind("delayed", "delayed message", "pending", {SCHEDULE_TOPIC, TIMER_TOPIC}.__contains__),
    _Kind("transactions", "open transaction", "open", {*TRANSACTION_TOPICS}.__contains__),
    _Kind("inflight", "popped message", None, lambda topic: topic.startswith(REVIVE_PREFIX) or topic == TIMER_TOPIC),
)


def pending(store: Snapshot, messages: Mapping[str, int], is_quick: bool) -> list[Pending]:
    """What waits in a store, of each kind.

    Args:
        messages: the number of messages in each topic.
        is_quick: whether messages of a topic are found without a look at the rest of the log.
    """
    is_quick = is_quick and store.log.size <= _MOST_LOG and len(store.log.extents) <= _MOST_SEGMENTS
    is_quick = is_quick and not store.files.is_slow
    return list(_pending(store, messages, is_quick))


def _pending(store: Snapshot, messages: Mapping[str, int], is_quick: bool) -> Iterator[Pending]:
    for kind in _KINDS:
        waiting = sum(count for topic, count in messages.items() if kind.waits(topic))
        count = _count(store, kind) if is_quick and waiting <= _MOST_MESSAGES else None
        yield Pending(kind.table, kind.what, count, waiting)


def _count(store: Snapshot, kind: _Kind) -> int | None:
    """None if the table lacks something: the log is damaged, or a file of config/ cannot be read."""
    found = table(kind.table)
    with listening(is_silent=True) as listener:
        try:
            batches = list(found.rows(store, parse_options({"path": store.root, "table": kind.table}), None))
        except RmqStoreError:
            return None
    if listener.is_lost:
        return None
    rows: int = sum(
        batch.num_rows if kind.state is None else batch.column("state").to_pylist().count(kind.state)
        for batch in batches
    )
    return rows


def pending_text(kinds: list[Pending]) -> str:
    """A line for people; "" where nothing is pending."""
    told = [counted(kind.count, kind.what) for kind in kinds if kind.count]
    unknown = [kind.table for kind in kinds if kind.count is None and kind.messages]
    if unknown:
        told.append(f"not counted: rmqstore {', rmqstore '.join(unknown)}")
    return f"pending: {', '.join(told)}" if told else ""
