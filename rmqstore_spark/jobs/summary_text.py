"""A summary in words: the repr of a Store, and the lines that `rmqstore show` and a notebook begin with."""

from collections.abc import Iterator

import pyarrow as pa

from rmqstore_spark.amounts import duration_text, size_text
from rmqstore_spark.errors import RmqStoreError, counted, one_line
from rmqstore_spark.jobs.pending import pending_text
from rmqstore_spark.jobs.summary import Summary, TopicSummary
from rmqstore_spark.tables.check.problems import PROBLEMS, Finding, difference
from rmqstore_spark.times import in_seconds, span_text

_SHOWN = 10  # topics


def as_text(root: str, summary: Summary | RmqStoreError) -> str:
    """The lines of a terminal; of a store that cannot be read, why."""
    head = f"Store({one_line(root)!r})"
    if isinstance(summary, RmqStoreError):
        return f"{head}\n  {summary}"
    shown = [(one_line(topic.topic), f"{topic.messages:,}", last_text(topic)) for topic in summary.topics[:_SHOWN]]
    names, counts = (max((len(row[at]) for row in shown), default=0) for at in (0, 1))
    table = [f"{name:<{names}}  {count:>{counts}} messages, last {last}" for name, count, last in shown]
    return "\n  ".join([head, *_lines(summary), *table, *_rest(summary)])


def facts(summary: Summary, most: int | None) -> list[str]:
    """What `rmqstore show` says of a store before its topics: what is wrong, sizes, times, what waits, and what is
    not read.

    Args:
        most: problems that are told one by one; None: all.
    """
    problems = [
        one_line(f"error: the log is damaged: {text.removesuffix('; what comes after is read')}")
        for text in summary.damage
    ]
    problems += [_finding_line(finding) for finding in summary.notable]
    lines = problems[:most]
    if len(lines) < len(problems):
        lines.append(f"and {counted(len(problems) - len(lines), 'more problem')}: rmqstore check")
    elif summary.damage:
        lines.append("what is lost: rmqstore check")
    lines += [f"{size_text(summary.nbytes)} of log in {counted(summary.segments, 'segment')}"]
    if summary.first_time is not None and summary.last_time is not None:
        length = duration_text((summary.last_time - summary.first_time) // 1000)
        lines.append(f"stored {span_text(summary.first_time, summary.last_time)}: {length}")
    messages, queues = counted(summary.messages, "message"), counted(summary.queues, "queue")
    topics = f"{messages} in {queues} of {counted(len(summary.topics), 'topic')}"
    lines.append(topics + (f"; {summary.empty_topics:,} more topics are empty" if summary.empty_topics else ""))
    if waiting := pending_text(summary.pending):
        lines.append(waiting)
    lines += [one_line(f"not read: {place.path}: {place.what}") for place in summary.unknown]
    return lines


def _finding_line(finding: Finding) -> str:
    """A finding in a line; `rmqstore check` says more."""
    severity = "note" if PROBLEMS[finding.problem].severity == "info" else PROBLEMS[finding.problem].severity
    where = f"topic {finding.topic}, queueId {finding.queue_id}" if finding.file is None else finding.file
    return one_line(
        f"{severity}: {finding.problem}: {where}: {difference(finding.expected, finding.found, finding.file)}"
    )


def _lines(summary: Summary) -> Iterator[str]:
    times = in_seconds(pa.array([summary.first_time, summary.last_time], pa.timestamp("us")))
    span = f", {times[0]} to {times[1]} UTC" if all(times) else ""
    yield f"{counted(summary.segments, 'commitlog file')}, {size_text(summary.nbytes)} of log{span}"
    if summary.has_abort:
        yield "a broker runs on it" if summary.is_locked else "its broker did not stop cleanly (abort)"
    yield f"{summary.known_topics:,} topics, {summary.known_groups:,} consumer groups"


def last_text(topic: TopicSummary) -> str:
    """When the last message of a topic was stored; "" where no queue tells."""
    return in_seconds(pa.array([topic.last_time], pa.timestamp("us")))[0]


def _rest(summary: Summary) -> list[str]:
    more = len(summary.topics) - _SHOWN
    return [f"and {more:,} more topics with messages"] if more > 0 else []
