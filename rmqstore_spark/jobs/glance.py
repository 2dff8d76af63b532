"""A store at a glance: a few lines for a terminal, a small table for a notebook.

A glance costs little: of a store with many topics only their number is shown.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import pyarrow as pa

from rmqstore_spark.amounts import size_text
from rmqstore_spark.errors import RmqStoreError, counted, one_line
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.read.plan.again import again
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables.registry import read_table
from rmqstore_spark.times import in_seconds

_MANY_TOPICS = 300  # reading the queues of more topics takes longer than a glance
_SHOWN = 10
_TOPIC = ["topic", "kind", "queues", "messages", "lastStoreTimestamp"]

Row = dict[str, Any]


@dataclass(frozen=True)
class Glance:
    """A store for people: text, and HTML."""

    text: str
    html: str


def glance(store: Snapshot, options: ReadOptions) -> Glance:
    """Look at a store. If it cannot be read, the glance shows the error."""
    root, commitlogs = one_line(store.root), options.store_path_commit_log
    try:
        lines, topics = again(lambda: _seen(Snapshot.find(store.root, store.files, commitlogs), options))
    except RmqStoreError as why:
        return Glance(f"Store({root!r})\n  {why}", f"<b>{escape(root)}</b><p>{escape(str(why))}</p>")
    return Glance(_as_text(root, lines, topics), _as_html(root, lines, topics))


def _lines(store: Snapshot, options: ReadOptions) -> Iterator[str]:
    yield f"{counted(len(store.log.extents), 'commitlog file')}, {size_text(store.log.size)} of messages{_span(store)}"
    if store.layout.abort:
        is_locked = store.files.is_locked(store.layout.lock)
        yield "a broker runs on it" if is_locked else "its broker did not stop cleanly (abort)"
    topics, groups = len({*store.topics, *store.queues.topics}), _table(store, options, "groups", ["group"])
    yield f"{topics:,} topics, {groups.num_rows:,} consumer groups"


def _span(store: Snapshot) -> str:
    """The time from the first message to the last, as text."""
    extents = store.log.extents
    times = [store.log.timestamp(at) for at in (extents[0].start, extents[-1].stop)] if extents else []
    known = in_seconds(pa.array([time for time in times if time is not None], pa.timestamp("ms")))
    return f", {known[0]} to {known[1]} UTC" if len(known) == 2 else ""


def _seen(store: Snapshot, options: ReadOptions) -> tuple[list[str], list[Row]]:
    return list(_lines(store, options)), _largest_topics(store, options)


def _largest_topics(store: Snapshot, options: ReadOptions) -> list[Row]:
    if len(store.queues.topics) > _MANY_TOPICS or store.layout.consumequeue is None:
        return []
    table = _table(store, options, "topics", _TOPIC)
    last = pa.array(in_seconds(table.column("lastStoreTimestamp")), pa.string())
    rows: list[Row] = table.drop_columns(["lastStoreTimestamp"]).append_column("last", last).to_pylist()
    return sorted((row for row in rows if row["messages"]), key=lambda row: (-row["messages"], row["topic"]))


def _table(store: Snapshot, options: ReadOptions, name: str, columns: list[str]) -> pa.Table:
    return read_table(replace(options, table=name, columns=columns, given=frozenset()), [store])


def _as_text(root: str, lines: list[str], topics: list[Row]) -> str:
    shown = [(one_line(row["topic"]), f"{row['messages']:,}", row["last"]) for row in topics]
    shown = shown[:_SHOWN]
    names, counts = (max((len(row[at]) for row in shown), default=0) for at in (0, 1))
    table = [f"{name:<{names}}  {count:>{counts}} messages, last {last}" for name, count, last in shown]
    return "\n  ".join([f"Store({root!r})", *lines, *table, *_rest(topics)])


def _as_html(root: str, lines: list[str], topics: list[Row]) -> str:
    head = "".join(f"<th>{name}</th>" for name in ("topic", "kind", "queues", "messages", "last message (UTC)"))
    rows = "".join(
        f"<tr><td style='text-align:left'>{escape(one_line(row['topic']))}</td><td>{row['kind']}</td>"
        f"<td>{row['queues']:,}</td><td>{row['messages']:,}</td><td>{row['last']}</td></tr>"
        for row in topics[:_SHOWN]
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>" if topics else ""
    return f"<div><b>{escape(root)}</b><br>{'<br>'.join(map(escape, [*lines, *_rest(topics)]))}{table}</div>"


def _rest(topics: list[Row]) -> list[str]:
    more = len(topics) - _SHOWN
    return [f"and {more:,} more topics with messages"] if more > 0 else []
