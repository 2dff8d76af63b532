"""A progress bar on the terminal: how much of long work is done, how fast, and how long the rest will take."""

import contextlib
import sys
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from rmqstore_spark.amounts import MIB
from rmqstore_spark.errors import one_line
from rmqstore_spark.progress import Progress as Work
from rmqstore_spark.progress import shown

_BAR = 20  # columns
_CTRL_C = 3  # columns left free: a terminal shows ^C behind a bar, and on a full line it would be on the next one


class _Amount(ProgressColumn):
    """The column with the amount that is done, and the amount per second."""

    def render(self, task: Task) -> Text:
        noun, speed = task.fields["noun"], task.speed or 0.0
        if noun is not None:
            return Text(f"{int(task.completed):,} of {int(task.total or 0):,} {noun}")
        return Text(f"{task.completed / MIB:,.0f} of {(task.total or 0) / MIB:,.0f} MiB, {speed / MIB:,.0f} MiB/s")


@contextlib.contextmanager
def progress_bars() -> Iterator[None]:
    """In this context each long work has a bar, if standard error is a terminal. The bars disappear at the end."""
    if not sys.stderr.isatty():
        yield
        return
    console = Console(stderr=True)
    console.width = max(1, console.width - _CTRL_C)
    # In a narrow terminal paths are cut, not numbers.
    what = TextColumn(
        "{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")
    )
    columns = (what, BarColumn(bar_width=_BAR), _Amount(table_column=Column(no_wrap=True)), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, expand=True) as bars:
        tasks: dict[int, tuple[Work, object]] = {}

        def show(work: Work) -> None:
            if id(work) not in tasks:
                tasks[id(work)] = work, bars.add_task(one_line(work.what), total=work.total, noun=work.noun)
            bars.update(tasks[id(work)][1], completed=work.done)  # type: ignore[arg-type]

        with shown(show):
            yield
