"""A summary as the repr of a Store: a few lines for a terminal, a small table for a notebook."""

from collections.abc import Iterator
from html import escape

import pyarrow as pa

from rmqstore_spark.amounts import size_text
from rmqstore_spark.errors import RmqStoreError, counted, one_line
from rmqstore_spark.jobs.summary import Summary, TopicSummary
from rmqstore_spark.times import in_seconds

_SHOWN = 10  # topics


def as_text(root: str, summary: Summary | RmqStoreError) -> str:
    """The lines of a terminal; of a store that cannot be read, why."""
    head = f"Store({one_line(root)!r})"
    if isinstance(summary, RmqStoreError):
        return f"{head}\n  {summary}"
    shown = [(one_line(topic.topic), f"{topic.messages:,}", _last(topic)) for topic in summary.topics[:_SHOWN]]
    names, counts = (max((len(row[at]) for row in shown), default=0) for at in (0, 1))
    table = [f"{name:<{names}}  {count:>{counts}} messages, last {last}" for name, count, last in shown]
    return "\n  ".join([head, *_lines(summary), *table, *_rest(summary)])


def as_html(root: str, summary: Summary | RmqStoreError) -> str:
    """The table of a notebook; of a store that cannot be read, why."""
    name = escape(one_line(root))
    if isinstance(summary, RmqStoreError):
        return f"<b>{name}</b><p>{escape(str(summary))}</p>"
    head = "".join(f"<th>{name}</th>" for name in ("topic", "kind", "queues", "messages", "last message (UTC)"))
    rows = "".join(
        f"<tr><td style='text-align:left'>{escape(one_line(topic.topic))}</td><td>{topic.kind}</td>"
        f"<td>{topic.queues:,}</td><td>{topic.messages:,}</td><td>{_last(topic)}</td></tr>"
        for topic in summary.topics[:_SHOWN]
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>" if rows else ""
    return f"<div><b>{name}</b><br>{'<br>'.join(map(escape, [*_lines(summary), *_rest(summary)]))}{table}</div>"


def _lines(summary: Summary) -> Iterator[str]:
    times = in_seconds(pa.array([summary.first_time, summary.last_time], pa.timestamp("us")))
    span = f", {times[0]} to {times[1]} UTC" if all(times) else ""
    yield f"{counted(summary.segments, 'commitlog file')}, {size_text(summary.nbytes)} of log{span}"
    if summary.has_abort:
        yield "a broker runs on it" if summary.is_locked else "its broker did not stop cleanly (abort)"
    yield f"{summary.known_topics:,} topics, {summary.known_groups:,} consumer groups"


def _last(topic: TopicSummary) -> str:
    return in_seconds(pa.array([topic.last_time], pa.timestamp("us")))[0]


def _rest(summary: Summary) -> list[str]:
    more = len(summary.topics) - _SHOWN
    return [f"and {more:,} more topics with messages"] if more > 0 else []
