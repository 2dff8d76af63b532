"""Table `usage` for people: sizes, shares as bars, and how the log grows."""

import sys
from datetime import UTC, datetime, timedelta

import click
import pyarrow as pa

from rmqstore_spark.amounts import duration_text, size_text
from rmqstore_spark.errors import one_line
from rmqstore_spark.jobs.growth import DAY, growth
from rmqstore_spark.store.snapshot import Snapshot

_WIDTH = 20  # cells of the longest bar
_EIGHTHS = " ▏▎▍▌▋▊▉"
_YEARS = 100 * 365 * DAY  # ms: what takes longer has no date


def with_shares(found: pa.Table, by: str) -> pa.Table:
    """The columns that a terminal shows: those that `by` names, sizes, and a bar for each row.

    Args:
        by: the option's text.
    """
    nbytes = found.column("bytes").to_pylist()
    whole, most = sum(nbytes), max(nbytes)
    names = [name.strip() for name in by.split(",")]
    shown = found.select([*names, "messages"])
    shown = shown.append_column("size", pa.array(map(size_text, nbytes), pa.string()))
    shares = [f"{each / whole * 100:5.1f} % {bar(each / most)}".rstrip() for each in nbytes]
    return shown.append_column("share", pa.array(shares, pa.string())).append_column("source", found.column("source"))


def bar(part: float) -> str:
    """A bar for a number from 0 to 1; every number above 0 has a visible one."""
    if "utf" not in (sys.stdout.encoding or "").lower():
        return "#" * max(part > 0, round(part * _WIDTH))
    cells, eighths = divmod(max(part > 0, round(part * _WIDTH * 8)), 8)
    return "█" * cells + (_EIGHTHS[eighths] if eighths else "")


def show_growth(store: Snapshot, is_named: bool) -> None:
    """Say how fast the log of a store grows, and when its disk is full.

    Args:
        is_named: whether to say which store it is.
    """
    found = growth(store)
    name = f"{store.root}: " if is_named else ""
    if found is None:
        click.echo(one_line(f"{name}store times do not tell how fast the log grows"))
        return
    told = (
        f"the log grew by {size_text(found.nbytes)} in {duration_text(found.millis)}: {size_text(found.per_day)} a day"
    )
    until = found.until_full
    if found.free is not None and until is not None:
        told += f"; {size_text(found.free)} are free on its disk, which is full"
        told += f" in {duration_text(until)}" if until < _YEARS else " in more than 100 years"
        if until < _YEARS:
            told += f" ({datetime.now(UTC) + timedelta(milliseconds=until):%Y-%m-%d %H:%M} UTC)"
        told += " at that rate, if nothing expires"
    click.echo(one_line(name + told))
