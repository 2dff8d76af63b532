"""`.rmqstore-spark/times.json`: what our writer has put into a log, and between which store times that is.

A broker writes in the order of its clock; rows that are written may have any store times. So what was written is noted
down before it counts, as stretches of the log: each with its last message, which proves that it is still there, and
with runs, of which the least and greatest store times are known (docs/decisions.md, Store times of what was written).

Like the journal it may be wrong or planted: it is data with a schema, and what is not proved is not used. Where there
should be one and is none that can be understood, nothing is known of any store time in the log. That there should be
one a sign in the checkpoint tells: brokers leave alone what is behind their own fields.
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
_OF_OLDER_VERSIONS = {"transactions.json", "checked.json"}  # that wrote messages without noting down their times
_MOST_RUNS = 1024  # in all stretches, about
_MOST_STRETCHES = 128
_RUN_SIZE = 8 * 1024 * 1024  # bytes of the log: shorter ones are not told apart
_I64 = 1 << 63


class Run(NamedTuple):
    """The messages of a stretch up to a physical offset, from the run before it on.

    Attributes:
        stop: the physical offset.
        least, most: between which store times (ms) they are, both included.
        fall: by how much (ms) one is older than one before it, at the most; 0 where store times do not go back.
    """

    stop: int
    least: int
    most: int
    fall: int

    @property
    def ascends(self) -> bool:
        """Do store times go back no more than is allowed for in a broker's log?"""
        return self.fall <= CLOCK_SLACK


@dataclass(frozen=True)
class Written:
    """A stretch of the log that was written by us.

    Attributes:
        start, stop: physical offsets.
        before: store time (ms) of the message before it; None where there was none, or it is not known.
        last: its last message; None where it is not known what became of it.
        runs: what it consists of, in order.
    """

    start: int
    stop: int
    before: int | None
    last: Mark | None
    runs: tuple[Run, ...] = ()

    def may_have(self, position: int, microseconds: int | None) -> bool:
        """May a message at a physical offset in it with this store time be one of it?"""
        run = next((run for run in self.runs if position < run.stop), None)
        return run is None or microseconds is None or run.least <= microseconds // 1000 <= run.most


@dataclass(frozen=True)
class Record:
    """All that was noted down.

    Attributes:
        stretches: in the order of the log; none overlap.
        is_whole: whether nothing else was written by us: else no store time in the log can be known.
    """

    stretches: tuple[Written, ...] = ()
    is_whole: bool = True

    @property
    def has_any(self) -> bool:
        """Was anything written by us?"""
        return bool(self.stretches) or not self.is_whole


def record_path(root: str) -> str:
    """Where a store has its record."""
    return os.path.join(root, WORKSHOP, _NAME)


def load(root: str, files: Files) -> Record:
    """The record of a store. A hint: what cannot be understood counts as something that nobody knows."""
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
    """The file that says it."""
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
    return json.dumps({"version": _VERSION, "written": said}, separators=(",", ":")).encode()


def understood(found: config.Table) -> Record | None:
    """What a file says; None where no writer of this version has made it."""
    written = found.get("written")
    if not config.is_exactly(found.get("version"), _VERSION) or not isinstance(written, list):
        return None
    stretches = [_written(each) for each in written]
    known = tuple(each for each in stretches if each is not None)
    in_order = all(before.stop <= after.start for before, after in itertools.pairwise(known))
    return Record(known) if len(known) == len(stretches) and in_order else None


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
    """Runs and one more, joined with the last one where nothing is lost by that, or both are short.

    Args:
        start: physical offset where the first one begins.
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

    It is not joined with the one before, which would be lost with it if the write is undone; that comes with the next.

    Args:
        is_there: whether the log has all of a stretch.
    """
    known = record.stretches if record.is_whole or new.start == 0 else (Written(0, new.start, None, None),)
    # What reaches further is of a write that was undone, or was cut off.
    stretches = [_cut(each, new.start) for each in known if each.start < new.start]
    while len(stretches) > 1 and _follow(*stretches[-2:]) and is_there(stretches[-1]) and is_there(stretches[-2]):
        last = stretches.pop()
        stretches[-1] = _both(stretches[-1], last)
    stretches.append(new)
    while sum(len(each.runs) for each in stretches) > max(_MOST_RUNS, 2 * len(stretches)):
        stretches = [replace(each, runs=_halved(each.runs)) for each in stretches]
    while len(stretches) > _MOST_STRETCHES:
        stretches[:2] = [Written(stretches[0].start, stretches[1].stop, stretches[0].before, None)]
    return Record(tuple(stretches))


def _follow(one: Written, other: Written) -> bool:
    return one.stop == other.start and bool(one.runs) == bool(other.runs)


def _both(one: Written, other: Written) -> Written:
    runs = one.runs
    for run in other.runs:
        runs = with_run(runs, one.start, run)
    return Written(one.start, other.stop, one.before, other.last, runs)


def _cut(stretch: Written, stop: int) -> Written:
    """What is left of a stretch before a physical offset: nobody knows what that is."""
    return stretch if stretch.stop <= stop else replace(stretch, stop=stop, last=None, runs=())


def _halved(runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """The same in half as many."""
    pairs = [runs[at : at + 2] for at in range(0, len(runs), 2)]
    return tuple(_joined(*pair) if len(pair) == 2 else pair[0] for pair in pairs)
