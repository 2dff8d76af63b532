"""The findings of `check` for people: each problem with its place, and once for each kind what to do about it."""

from collections import Counter
from typing import Any

import pyarrow as pa
from rich.text import Text

from rmqstore_spark.cli.parameters import FINDINGS_SHOWN
from rmqstore_spark.cli.screen import console
from rmqstore_spark.errors import counted, one_line

_PIPED = 120  # columns, where there is no terminal
_STYLES = {"error": "bold red", "warning": "yellow"}
_WHERE = ("file", "filePosition", "commitLogOffset", "topic", "queueId", "queueOffset")


def show_findings(found: pa.Table, limit: int | None) -> None:
    """Show errors and warnings, the worst first, and the number of notes (`info`).

    Args:
        limit: the most rows; 0 for all rows; None for some rows of each problem.
    """
    out = console(_PIPED)
    rows = found.to_pylist()
    serious = [row for row in rows if row["severity"] in _STYLES]
    count = 0
    for severity, style in _STYLES.items():
        kinds = dict.fromkeys(row["problem"] for row in serious if row["severity"] == severity)
        for problem in kinds:
            some = [row for row in serious if row["problem"] == problem]
            out.print(Text.assemble((severity, style), f" {problem}: {len(some):,}  ", (some[0]["advice"], "dim")))
            few = some[: FINDINGS_SHOWN if limit is None else limit - count if limit else None]
            for row in few:
                out.print(Text("  " + _place(row)), soft_wrap=True)
            count += len(few)
            if len(few) < len(some):
                out.print(Text(f"  ... and {len(some) - len(few):,} more; --limit 0 shows all"))
    unseen = [row for row in rows if row["problem"] == "notLookedAt"]
    if not serious:
        out.print("no problems in what was checked" if unseen else "no problems")
    for row in unseen:
        out.print(Text(one_line(f"not looked at: {row['file']}: {row['found']}"), "dim"), soft_wrap=True)
    notes = Counter(row["problem"] for row in rows if row["severity"] not in _STYLES and row not in unseen)
    if notes:
        told = ", ".join(f"{problem} ({count:,})" if count > 1 else problem for problem, count in notes.items())
        out.print(Text(f"{counted(sum(notes.values()), 'note')} (see --format json): {told}", "dim"))


def _place(row: dict[str, Any]) -> str:
    where = ", ".join(
        f"{name} {row[name]}" if name != "file" else row[name] for name in _WHERE if row[name] is not None
    )
    count = f" ({row['count']:,} of them)" if (row["count"] or 1) > 1 else ""
    return one_line(f"{where or 'the store'}: expected {row['expected']}, found {row['found']}{count}")
