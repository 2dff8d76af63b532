"""The findings of `check` for people: the verdict, each problem with its place and once what to do about it, and the
commands that mend the store."""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from rich.text import Text

from rmqstore_spark.cli.parameters import FINDINGS_SHOWN
from rmqstore_spark.cli.rows import few_at_once
from rmqstore_spark.cli.screen import console, print_indented
from rmqstore_spark.errors import counted, one_line
from rmqstore_spark.jobs.findings import NOT_LOOKED_AT, Findings, OfProblem, Row
from rmqstore_spark.jobs.verdict import Verdict
from rmqstore_spark.tables.check.problems import CALL, CONFIG_CALL, COPY_CALL, difference

_PIPED = 120  # columns, where there is no terminal
_STYLES = {"error": "bold red", "warning": "yellow"}
# What advice calls in Python, and what is typed at a terminal.
_TYPED = {CALL: "rmqstore rebuild", COPY_CALL: "rmqstore copy", CONFIG_CALL: "rmqstore rebuild --config"}
_AS_OPTION = re.compile(r"(?:\boption )?\b(compacted|deduplicate)=true\b|\boption (tiered|storePathCommitLog)\b")
_WHERE = ("file", "filePosition", "commitLogOffset", "topic", "queueId", "queueOffset")


def as_typed(advice: str) -> str:
    """Advice of the table `check` for people at a terminal: with commands and their options."""
    for call, typed in _TYPED.items():
        advice = advice.replace(f"call {call}", f"run {typed}").replace(call, typed)
    return _AS_OPTION.sub(lambda match: f"--{match[1] or match[2]}", advice)


def show_verdict(found: Verdict, looked_at: str) -> None:
    """Show the answer to the question that a check is run for, and what it rests on."""
    out = console(_PIPED)
    out.print(Text(one_line(found.text), "bold green" if found.is_good else "bold red"))
    out.print(Text(one_line(f"checked: {looked_at}"), "dim"))


def show_commands(found: Verdict) -> None:
    """Show the commands that mend the store, to be pasted into a shell."""
    if not found.commands:
        return
    out = console(_PIPED)
    out.print("to mend it:")
    for line in found.commands:
        out.print(Text(one_line(line), "dim" if line.startswith("#") else "bold"), soft_wrap=True)


def rows_among(batches: Iterable[pa.RecordBatch], store: str | None = None) -> Callable[[OfProblem], Iterator[Row]]:
    """Gives the rows of a problem, from batches of the table `check` that are read for each problem anew.

    Args:
        store: only rows of this store.
    """

    def rows(wanted: OfProblem) -> Iterator[Row]:
        for batch in batches:
            is_one = pc.equal(batch.column("problem"), wanted.name)
            own = batch.filter(is_one if store is None else pc.and_(is_one, pc.equal(batch.column("store"), store)))
            for few in few_at_once([own]):
                yield from few.to_pylist()

    return rows


def show_findings(
    found: Findings, limit: int | None, rows: Callable[[OfProblem], Iterable[Row]] = lambda each: each.rows
) -> None:
    """Show errors and warnings, those that cost most first, and the number of notes (`info`).

    Args:
        limit: the most rows; 0 for all rows; None for some rows of each problem.
        rows: gives the rows of a problem, all of them where there is a limit.
    """
    out = console(_PIPED)
    count = 0
    for each in sorted(found.serious, key=lambda each: each.problem.effect.value):
        advice = as_typed(each.rows[0]["advice"])
        style = _STYLES[each.severity]
        out.print(Text.assemble((each.severity, style), f" {each.name}: {each.amount}  ", (advice, "dim")))
        most = FINDINGS_SHOWN if limit is None else limit - count if limit else None
        shown = 0
        for row in itertools.islice(rows(each), most):
            if (own := as_typed(row["advice"])) != advice:  # of those from here on
                out.print(Text(own, "dim"))
                advice = own
            print_indented(out, _place(row))
            shown += 1
        count += shown
        if shown < each.count:
            print_indented(out, f"... and {each.count - shown:,} more; --limit 0 shows all")
    for row in found.unseen:
        out.print(Text(one_line(f"not looked at: {row['file']}: {row['found']}"), "dim"), soft_wrap=True)
    notes = {each.name: each.count for each in found if each.severity not in _STYLES and each.name != NOT_LOOKED_AT}
    if notes:
        told = ", ".join(f"{problem} ({count:,})" if count > 1 else problem for problem, count in notes.items())
        out.print(Text(f"{counted(sum(notes.values()), 'note')} (see --format json): {told}", "dim"))


def _place(row: Row) -> str:
    (alone,) = Findings.of([row])
    if row["problem"] == "lostMessages":  # not where: the damage is told as well, and messages are no longer there
        at = row["queueOffset"]
        which = str(row["found"]).removeprefix("none from ").replace(f"{at} to {at}", f"{at}", row["count"] == 1)
        return one_line(f"topic {row['topic']}, queueId {row['queueId']}, queueOffset {which} ({alone.amount})")
    where = ", ".join(
        f"{name} {row[name]}" if name != "file" else row[name] for name in _WHERE if row[name] is not None
    )
    count = f" ({alone.amount})" if (row["count"] or 1) > 1 else ""
    return one_line(f"{where or 'the store'}: {difference(row['expected'], row['found'], row['file'])}{count}")
