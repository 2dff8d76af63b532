"""`rmqstore show`: a store on one screen."""

import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rmqstore_spark.amounts import duration_text, size_text
from rmqstore_spark.cli.screen import console
from rmqstore_spark.errors import counted, one_line
from rmqstore_spark.jobs.summary import GROUPS_TIMED, Summary, TopicSummary
from rmqstore_spark.times import in_seconds

_BARS = " ▁▂▃▄▅▆▇█"
_TOPICS, _GROUPS = 15, GROUPS_TIMED  # lines
_PIPED = 100  # columns, where there is no terminal
_COLORS = {"retry": "yellow", "dlq": "bold red"}


def show_summary(summary: Summary) -> None:
    """Show a summary on standard output."""
    out = console(_PIPED)
    out.print(Text.assemble((one_line(summary.root), "bold")), soft_wrap=True)
    for line in _facts(summary):
        out.print(Text("  " + line), soft_wrap=True)
    if summary.topics:
        out.print()
        _show_topics(out, summary)
    if summary.groups:
        out.print()
        _show_groups(out, summary)


def _facts(summary: Summary) -> list[str]:
    lines = [f"{size_text(summary.nbytes)} of messages in {counted(summary.segments, 'segment')}"]
    if summary.first_time is not None and summary.last_time is not None:
        times = pa.array([summary.first_time, summary.last_time], pa.timestamp("us"))
        first, last = in_seconds(times)
        length = duration_text((summary.last_time - summary.first_time) // 1000)
        lines.append(f"stored from {first} to {last} UTC: {length}")
    messages, queues = counted(summary.messages, "message"), counted(summary.queues, "queue")
    topics = f"{messages} in {queues} of {counted(len(summary.topics), 'topic')}"
    lines.append(topics + (f"; {summary.empty_topics:,} more topics are empty" if summary.empty_topics else ""))
    lines += [one_line(f"not read: {place.path}: {place.what}") for place in summary.unknown]
    return lines


def _show_topics(out: Console, summary: Summary) -> None:
    shown = [topic for topic in summary.topics if topic.kind != "system"]
    system = [topic for topic in summary.topics if topic.kind == "system"]
    shown.sort(key=lambda topic: -(topic.nbytes or 0))
    table = _table()
    table.add_column("topic", no_wrap=True, overflow="ellipsis", ratio=1)
    for title in ("queues", "messages", "about"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("rate over that time", no_wrap=True)
    for topic in shown[:_TOPICS]:
        about = "" if topic.nbytes is None else size_text(topic.nbytes)
        name = Text(one_line(topic.topic), _COLORS.get(topic.kind, ""))
        table.add_row(name, f"{topic.queues:,}", f"{topic.messages:,}", about, Text(sparkline(topic.rates), "cyan"))
    out.print(table)
    for rest in (_rest(shown[_TOPICS:], "other"), _rest(system, "system")):
        if rest:
            out.print(Text(rest, "dim"))


def _rest(topics: list[TopicSummary], kind: str) -> str:
    if not topics:
        return ""
    messages = sum(topic.messages for topic in topics)
    return f"and {counted(len(topics), f'{kind} topic')} with {counted(messages, 'message')}"


def _show_groups(out: Console, summary: Summary) -> None:
    table = _table()
    table.add_column("consumer group", no_wrap=True, overflow="ellipsis", ratio=2)
    for name in ("lag", "behind by"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("topics", no_wrap=True, overflow="ellipsis", ratio=3)
    for group in summary.groups[:_GROUPS]:
        behind = "" if group.lag_millis is None else duration_text(group.lag_millis)
        lag = Text(f"{group.lag:,}", "yellow" if group.lag else "")
        table.add_row(Text(one_line(group.group)), lag, behind, Text(one_line(", ".join(group.topics))))
    out.print(table)
    if len(summary.groups) > _GROUPS:
        out.print(Text(f"and {len(summary.groups) - _GROUPS:,} groups that lag less", "dim"))


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False, expand=True)


def sparkline(rates: list[float]) -> str:
    """A bar for each number, the largest as high as a line; every number above 0 has a visible bar."""
    most = max(rates, default=0)
    steps = len(_BARS) - 1
    return "".join(_BARS[0 if rate <= 0 else max(1, round(rate / most * steps))] for rate in rates)
