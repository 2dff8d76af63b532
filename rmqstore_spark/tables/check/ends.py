"""Questions about the whole log: is the checkpoint ahead of the log, and does the log need queues at all?"""

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass

from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables.check.layout import has_queues
from rmqstore_spark.tables.check.log_view import LogView
from rmqstore_spark.tables.check.problems import Finding


@dataclass(frozen=True)
class Ends:
    """The log's last message; `newest`: its store time in ms, None when not known."""

    newest: int | None


def check_ends(store: Snapshot, view: LogView, part: Ends) -> Iterator[Finding]:
    """Check the checkpoint and the ConsumeQueues as a whole. The log is searched only where something seems wrong."""
    if part.newest is not None and not view.moment.is_unsettled:  # a broker that recovers, or runs, makes it anew
        yield from checkpoint_ahead(store, view, part.newest)
    if not has_queues(store):
        yield from no_queues(store, view)


def no_queues(store: Snapshot, view: LogView) -> Iterator[Finding]:
    """Messages without any ConsumeQueue. A broker that has just begun, and is running, was copied or killed, has yet to
    put its first messages into queues."""
    queued = list(itertools.islice(view.queued(), 1))
    if not queued:
        return
    directory = os.path.join(store.root, "consumequeue")
    found = "directories without files" if store.files.exists(directory) else "none"
    expected = "a directory with the ConsumeQueues"
    if queued[0].position >= view.moment.dispatched_from:
        position, count = queued[0].position, sum(1 for _ in view.queued())
        yield Finding("notDispatched", directory, position=position, expected=expected, found=found, count=count)
    else:
        yield Finding("noQueues", directory, expected=expected, found=found)


def checkpoint_ahead(store: Snapshot, view: LogView, newest: int) -> Iterator[Finding]:
    """Messages that the checkpoint knows of and the log does not have. The checkpoint's times may be those of any
    messages, as clocks go back."""
    path = store.layout.checkpoint
    for number, (name, value) in enumerate(store.checkpoint.items()):
        if name == "masterFlushedOffset":
            continue
        if name.endswith("Timestamp"):
            if value > newest and not view.has_time_from(value):
                expected = f"{name} of at most the greatest store time; the last message has {newest}"
                yield Finding("checkpointAhead", path, 8 * number, expected=expected, found=f"{value}")
        elif value > view.end:
            expected = f"{name} of at most {view.end}, the log's end"
            yield Finding("checkpointAhead", path, 8 * number, expected=expected, found=f"{value}")
