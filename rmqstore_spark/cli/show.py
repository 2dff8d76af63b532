"""`rmqstore show`: a store on one screen."""

import json
import sys
from collections.abc import Iterable
from operator import add

import pyarrow as pa
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rmqstore_spark.amounts import duration_text, size_text
from rmqstore_spark.cli.screen import console, print_indented, shortened
from rmqstore_spark.errors import counted, one_line
from rmqstore_spark.jobs.summary import GROUPS_TIMED, Summary
from rmqstore_spark.jobs.summary_text import facts
from rmqstore_spark.tables.check.problems import PROBLEMS
from rmqstore_spark.times import time_texts

_BARS = " ▁▂▃▄▅▆▇█"
_TOPICS, _GROUPS = 15, GROUPS_TIMED  # lines
_TOPICS_OF_GROUP = 4  # that are named
_NAME = 24  # the narrowest column of names
# The columns of a terminal that has space for rates, for each of them, and for topics of groups.
_WITH_RATES, _WITH_ALL_RATES, _WITH_TOPICS = 80, 100, 76
_WIDEST = 110  # columns: in a wider table names would stand far from their numbers
_NOTABLE = 5  # lines
_PIPED = 100  # columns, where there is no terminal
_COLORS = {"retry": "yellow", "dlq": "bold red", "system": "dim"}


def show_summary(summary: Summary, is_whole: bool = False, limit: int | None = None) -> None:
    """Show a summary on standard output.

    Args:
        is_whole: whether all problems, topics and groups are shown.
        limit: the most topics, and the most groups; 0 for all; None for some.
    """
    is_whole = is_whole or limit == 0
    out = console(_PIPED)
    out.print(Text.assemble((one_line(summary.root), "bold")), soft_wrap=True)
    for line in facts(summary, None if is_whole else _NOTABLE):
        print_indented(out, line)
    if summary.topics:
        out.print()
        _show_topics(out, summary, None if is_whole else limit or _TOPICS)
    if summary.groups:
        out.print()
        _show_groups(out, summary, None if is_whole else limit or _GROUPS)


def as_json(summary: Summary) -> str:
    """A summary as a JSON object: sizes in bytes, times in ISO-8601, in UTC."""
    topics = [
        {
            "topic": topic.topic,
            "kind": topic.kind,
            "queues": topic.queues,
            "messages": topic.messages,
            "bytes": topic.nbytes if topic.is_exact else None,
            "approximateBytes": None if topic.nbytes is None else round(topic.nbytes),
            "last": _iso(topic.last_time),
        }
        for topic in summary.topics
    ]
    groups = [
        {"group": group.group, "topics": group.topics, "lag": group.lag, "lagMillis": group.lag_millis}
        for group in summary.groups
    ]
    problems = [
        {"problem": finding.problem, "severity": PROBLEMS[finding.problem].severity, "file": finding.file}
        for finding in summary.notable
    ]
    whole = {
        "store": summary.root,
        "bytes": summary.nbytes,
        "segments": summary.segments,
        "firstStoreTimestamp": _iso(summary.first_time),
        "lastStoreTimestamp": _iso(summary.last_time),
        "messages": summary.messages,
        "queues": summary.queues,
        "emptyTopics": summary.empty_topics,
        "abort": summary.has_abort,
        "locked": summary.is_locked,
        "pending": {kind.table: kind.count for kind in summary.pending},
        "problems": problems,
        "damage": summary.damage,
        "notRead": [{"path": place.path, "what": place.what} for place in summary.unknown],
        "topics": topics,
        "groups": groups,
    }
    return json.dumps(whole, ensure_ascii=sys.stdout.isatty())


def _iso(microseconds: int | None) -> str | None:
    text = None if microseconds is None else time_texts(pa.array([microseconds], pa.timestamp("us")))[0]
    return None if text is None else text + "Z"


def _show_topics(out: Console, summary: Summary, most: int | None) -> None:
    shown = sorted(summary.topics, key=lambda topic: -(topic.nbytes or 0))
    table = _table(out, most)
    table.add_column(
        "topic", overflow="fold", ratio=1, min_width=_least(_named(topic.topic, most) for topic in shown[:most])
    )
    is_exact = all(topic.is_exact for topic in shown)
    for title in ("queues", "messages", "bytes" if is_exact else "about"):
        table.add_column(title, justify="right", no_wrap=True)
    has_rates = out.width >= _WITH_RATES and any(topic.rates for topic in shown[:most])
    if has_rates:
        table.add_column("rate over that time", no_wrap=True)
    for topic in shown[:most]:
        about = "" if topic.nbytes is None else size_text(topic.nbytes)
        name = Text(_named(topic.topic, most), _COLORS.get(topic.kind, ""))
        bars = topic.rates if out.width >= _WITH_ALL_RATES else list(map(add, topic.rates[::2], topic.rates[1::2]))
        rates = [Text(sparkline(bars), "cyan")] if has_rates else []
        table.add_row(name, f"{topic.queues:,}", f"{topic.messages:,}", about, *rates)
    out.print(table)
    if most is not None and (rest := shown[most:]):
        messages = sum(topic.messages for topic in rest)
        out.print(Text(f"and {counted(len(rest), 'other topic')} with {counted(messages, 'message')}", "dim"))


def _show_groups(out: Console, summary: Summary, most: int | None) -> None:
    table = _table(out, most)
    table.add_column(
        "consumer group",
        overflow="fold",
        ratio=2,
        min_width=_least(_named(group.group, most) for group in summary.groups[:most]),
    )
    for name in ("lag", "behind by"):
        table.add_column(name, justify="right", no_wrap=True)
    has_topics = out.width >= _WITH_TOPICS
    if has_topics:
        table.add_column("topics", overflow="fold", ratio=3)
    for group in summary.groups[:most]:
        behind = "" if group.lag_millis is None else duration_text(group.lag_millis)
        lag = Text(f"{group.lag:,}", "yellow" if group.lag else "")
        named = group.topics[: None if most is None else _TOPICS_OF_GROUP]
        more = len(group.topics) - len(named)
        topics = ", ".join(_named(topic, most) for topic in named) + (f" and {more:,} more" if more else "")
        table.add_row(Text(_named(group.group, most)), lag, behind, *([Text(topics)] if has_topics else []))
    out.print(table)
    if most is not None and len(summary.groups) > most:
        out.print(Text(f"and {len(summary.groups) - most:,} groups that lag less", "dim"))


def _least(names: Iterable[str]) -> int:
    """The cells that a column of names has at least."""
    return min(_NAME, max(map(cell_len, names)))


def _named(name: str, most: int | None) -> str:
    """A name in two lines, or whole where everything is shown."""
    return one_line(name) if most is None else shortened(one_line(name), 2 * _NAME)


def _table(out: Console, most: int | None) -> Table:
    width = out.width if most is None else min(out.width, _WIDEST)
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, width=width)


def sparkline(rates: list[float]) -> str:
    """A bar for each number, the largest as high as a line; every number above 0 has a visible bar."""
    most = max(rates, default=0)
    steps = len(_BARS) - 1
    return "".join(_BARS[0 if rate <= 0 else max(1, round(rate / most * steps))] for rate in rates)
