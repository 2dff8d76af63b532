"""`.rmqstore-spark/times.json`: the stretches of a log that our writer has written, and the bounds of their store
times.

A broker writes in the order of its clock; rows written by our writer may have any store times. So each stretch of the
log is noted down before it counts: with its last message, which proves that the stretch is still there, and with runs,
whose least and greatest store times are known (docs/decisions.md, Store times of what was written).

Like the journal the file may be wrong or planted: it is data with a schema, and unproved entries are not used. Where a
record should exist but none can be understood, no store time in the log is known. A sign in the checkpoint tells that a
record should exist: brokers leave the bytes after their own fields alone.
"""

import itertools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from rmqstore_spark.errors import RmqStoreError, StorageError
from rmqstore_spark.store.format.clock import CLOCK_SLACK
from rmqstore_spark.store.format.message import Mark
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures import config
from rmqstore_spark.store.structures.checkpoint import is_signed

WORKSHOP = ".rmqstore-spark"  # the directory of the writer's own files in a store
_NAME = "times.json"
_VERSION = 1
_OF_OLDER_VERSIONS = {"transactions.json", "checked.json"}  # their writers noted down no store times
_MOST_RUNS = 1024  # runs in all stretches, about
_MOST_STRETCHES = 128
_RUN_SIZE = 8 * 1024 * 1024  # bytes of the log: shorter runs are merged
_I64 = 1 << 63


class Run(NamedTuple):
    """The messages of a stretch up to a physical offset, from the run before it on.

    Attributes:
        stop: the physical offset.
        least, most: the bounds of the store times (ms), both included.
        fall: the most (ms) by which a message is older than one before it; 0 where store times do not go back.
    """

    stop: int
    least: int
    most: int
    fall: int

    @property
    def ascends(self) -> bool:
        """Do store times go back by no more than CLOCK_SLACK?"""
        return self.fall <= CLOCK_SLACK


@dataclass(frozen=True)
class Written:
    """A stretch of the log that was written by us.

    Attributes:
        start, stop: physical offsets.
        before: store time (ms) of the message before the stretch; None where there was none, or if unknown.
        last: the stretch's last message; None where its fate is unknown.
        runs: the runs of the stretch, in order.
    """

    start: int
    stop: int
    before: int | None
    last: Mark | None
    runs: tuple[Run, ...] = ()

    def may_have(self, position: int, microseconds: int | None) -> bool:
        """May a message at a physical offset in the stretch, with this store time, belong to the stretch?"""
        run = next((run for run in self.runs if position < run.stop), None)
        return run is None or microseconds is None or run.least <= microseconds // 1000 <= run.most


@dataclass(frozen=True)
class Record:
    """All stretches that our writer noted down.

    Attributes:
        stretches: in the order of the log; none overlap.
        is_whole: whether our writer wrote nothing else; if not, no store time in the log can be known.
        has_lost: whether queues have units of lost messages, which a salvage has put there (queue_block.lost_unit).
    """

    stretches: tuple[Written, ...] = ()
    is_whole: bool = True
    has_lost: bool = False

    @property
    def has_any(self) -> bool:
        """Was anything written by us?"""
        return bool(self.stretches) or not self.is_whole


def record_path(root: str) -> str:
    """The path of a store's record."""
    return os.path.join(root, WORKSHOP, _NAME)


def load(root: str, files: Files) -> Record:
    """The record of a store. A hint: a record that cannot be understood counts as unknown writes (`is_whole` false)."""
    try:
        names = set(files.names(os.path.join(root, WORKSHOP)))
    except OSError:
        names = set()
    if _NAME in names:
        try:
            return understood(config.parse(config.read_text(record_path(root), files, "strict"))) or Record((), False)
        except StorageError:
            raise
        except (RmqStoreError, ValueError):
            return Record((), is_whole=False)
    is_missing = bool(names & _OF_OLDER_VERSIONS) or is_signed(os.path.join(root, "checkpoint"), files)
    return Record((), is_whole=not is_missing)


def encode(record: Record) -> bytes:
    """The file's bytes for a record."""
    said = [
        {
            "start": stretch.start,
            "stop": stretch.stop,
            "before": stretch.before,
            "last": None if stretch.last is None else list(stretch.last),
            "runs": [list(run) for run in stretch.runs],
        }
        for stretch in record.stretches
    ]
    lost = {"lost": True} if record.has_lost else {}
    return json.dumps({"version": _VERSION, "written": said, **lost}, separators=(",", ":")).encode()


def understood(found: config.Table) -> Record | None:
    """The record in a file's object; None for an object that no writer of this version has made."""
    written = found.get("written")
    if not config.is_exactly(found.get("version"), _VERSION) or not isinstance(written, list):
        return None
    stretches = [_written(each) for each in written]
    known = tuple(each for each in stretches if each is not None)
    in_order = all(before.stop <= after.start for before, after in itertools.pairwise(known))
    has_lost = found.get("lost") is True
    return Record(known, has_lost=has_lost) if len(known) == len(stretches) and in_order else None


def _written(found: Any) -> Written | None:
    if not isinstance(found, dict) or set(found) != set(Written.__dataclass_fields__):
        return None
    start, stop, before, last, runs = (found[name] for name in ("start", "stop", "before", "last", "runs"))
    if not (_are_integers([start, stop], 2) and 0 <= start < stop and isinstance(runs, list)):
        return None
    if not (before is None or _are_integers([before], 1)) or not (last is None or _are_integers(last, 3)):
        return None
    if not all(_are_integers(run, 4) and run[1] <= run[2] and run[3] >= 0 for run in runs):
        return None
    stops = [start, *(run[0] for run in runs)]
    if runs and (stops[-1] != stop or any(one >= other for one, other in itertools.pairwise(stops))):
        return None
    if (last is None) != (not runs):
        return None
    mark = None if last is None else Mark(*last)
    return Written(start, stop, before, mark, tuple(Run(*run) for run in runs))


def _are_integers(found: Any, count: int) -> bool:
    return (
        isinstance(found, list)
        and len(found) == count
        and all(type(number) is int and -_I64 <= number < _I64 for number in found)
    )


# ---- noting down more


def with_run(runs: tuple[Run, ...], start: int, run: Run) -> tuple[Run, ...]:
    """Runs and one more run, which is joined with the last one where that loses nothing, or where both are short.

    Args:
        start: physical offset where the first run begins.
    """
    if not runs:
        return (run,)
    joined = _joined(runs[-1], run)
    begin = runs[-2].stop if len(runs) > 1 else start
    if joined.ascends or run.stop - begin <= _RUN_SIZE:
        return *runs[:-1], joined
    return *(_halved(runs) if len(runs) >= 2 * _MOST_RUNS else runs), run


def _joined(one: Run, other: Run) -> Run:
    fall = min(max(one.fall, other.fall, one.most - other.least), _I64 - 1)
    return Run(other.stop, min(one.least, other.least), max(one.most, other.most), fall)


def extended(record: Record, new: Written, is_there: Callable[[Written], bool]) -> Record:
    """A record with one more stretch, which ends the log.

    The new stretch is not joined with the one before, which would be lost as well if the write is undone; the next call
    joins the two.

    Args:
        is_there: whether the log has all of a stretch.
    """
    known = record.stretches if record.is_whole or new.start == 0 else (Written(0, new.start, None, None),)
    # Stretches that reach further are of a write that was undone, or were cut off.
    stretches = [_cut(each, new.start) for each in known if each.start < new.start]
    while len(stretches) > 1 and _follow(*stretches[-2:]) and is_there(stretches[-1]) and is_there(stretches[-2]):
        last = stretches.pop()
        stretches[-1] = _both(stretches[-1], last)
    stretches.append(new)
    while sum(len(each.runs) for each in stretches) > max(_MOST_RUNS, 2 * len(stretches)):
        stretches = [replace(each, runs=_halved(each.runs)) for each in stretches]
    while len(stretches) > _MOST_STRETCHES:
        stretches[:2] = [Written(stretches[0].start, stretches[1].stop, stretches[0].before, None)]
    return Record(tuple(stretches), has_lost=record.has_lost)


def _follow(one: Written, other: Written) -> bool:
    return one.stop == other.start and bool(one.runs) == bool(other.runs)


def _both(one: Written, other: Written) -> Written:
    runs = one.runs
    for run in other.runs:
        runs = with_run(runs, one.start, run)
    return Written(one.start, other.stop, one.before, other.last, runs)


def _cut(stretch: Written, stop: int) -> Written:
    """A stretch up to a physical offset; a stretch that is cut there has no known messages."""
    return stretch if stretch.stop <= stop else replace(stretch, stop=stop, last=None, runs=())


def _halved(runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """The same messages in half as many runs."""
    pairs = [runs[at : at + 2] for at in range(0, len(runs), 2)]
    return tuple(_joined(*pair) if len(pair) == 2 else pair[0] for pair in pairs)
