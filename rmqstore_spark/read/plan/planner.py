"""From options to tasks. Run once for a read, so that the tasks are of a snapshot of the stores."""

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from rmqstore_spark.errors import OptionError
from rmqstore_spark.query.options import MESSAGES, ReadOptions
from rmqstore_spark.query.selection import Selection
from rmqstore_spark.read.pieces.pinned import pinned
from rmqstore_spark.read.pieces.task import Range, Task
from rmqstore_spark.read.plan.access_path import Access, choose, scanned, unread
from rmqstore_spark.read.plan.again import again
from rmqstore_spark.read.plan.compacted import compacted
from rmqstore_spark.read.plan.copies import Copies, alone, copies_of, in_order
from rmqstore_spark.read.plan.deferred import Deferred, WholeSegments
from rmqstore_spark.read.plan.index_evidence import Begun, begin_look_up
from rmqstore_spark.read.plan.joined import tier_beside
from rmqstore_spark.read.plan.lost_end import say_if_lost
from rmqstore_spark.read.plan.pack import Pieces, pack, target_size
from rmqstore_spark.read.plan.prune import in_time, pruned
from rmqstore_spark.read.plan.related import refuse_copies
from rmqstore_spark.read.plan.split import SplitPoints, Splitter
from rmqstore_spark.read.plan.store_options import options_by_store
from rmqstore_spark.read.plan.stores import files_of, open_stores
from rmqstore_spark.store.elsewhere import say_what_is_unknown
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.segments import Damage

_SEGMENTS_TO_WALK = 16  # without ConsumeQueues, split points are found by a walk only in up to so many segments
_SMALL_PART = 64 * 1024 * 1024  # bytes of a log: for fewer bytes the queues are not looked at


@dataclass(frozen=True)
class Plan:
    """The tasks of a read.

    Attributes:
        accesses: each store, with the way to its messages.
        files: counts the cost of planning.
        target: the most bytes that a partition should have, where there are units to cut the log at.
        deferred: what is yet to be done with a task before it is read; None: nothing.
    """

    tasks: list[Task]
    accesses: list[tuple[Snapshot, Access]]
    files: Files
    target: int
    deferred: Deferred | None = None

    def ready(self) -> Iterator[Task]:
        """The tasks as they are read, in order: each is cut and pinned when it is asked for, if that was put off."""
        for task in self.tasks:
            yield from (task,) if self.deferred is None else self.deferred.ready(task)


def plan(
    options: ReadOptions, files: Files | None = None, columns: Collection[str] | None = None, *, puts_off: bool = False
) -> Plan:
    """Plan a read.

    Args:
        files: access to the stores' files; made from the options by default.
        columns: the requested columns of a message; None for all columns.
        puts_off: whether what is scanned is cut and pinned only when its turn comes (Plan.ready): for a process that
            reads the tasks itself.

    Raises:
        NotAStoreError: a path is no store.
        OptionError: option `by`, of another table, is given; two stores are copies of one; storePathCommitLog
            is given for more than one; no store has a queue that `assign` or the offsets name, a topic of
            `subscribe`, or the group of startingOffsets.
        DamagedStoreError: mode FAILFAST, and names or sizes of segments are wrong.
    """
    reached = files or files_of(options)
    if options.as_original:  # ConsumeQueues know what is stored
        columns = None
    return again(lambda: _plan(options, reached, columns, puts_off))


def _plan(options: ReadOptions, files: Files, columns: Collection[str] | None, puts_off: bool) -> Plan:
    if "by" in options.given:
        raise OptionError("option 'by' is for table 'usage'; give table=usage as well, or leave it out")
    stores = open_stores(options, files, with_queue_logs=True)
    begun = {store: begin_look_up(store, options.selection) for store in stores}
    reads_also = [*options.read_beside, *(name for name in ("compacted", "tiered") if getattr(options, name))]
    for store in stores:
        say_what_is_unknown(store, MESSAGES, reads_also)
    if not options.deduplicate and not options.selection.is_nothing:
        refuse_copies(stores, "name one of them, or give deduplicate=true to have each message once")
    asked = [*tier_beside(stores, options, files), *options_by_store(options, stores)]
    logs = copies_of(stores) if options.deduplicate else alone([store for store, _ in asked])
    faults = _faults(logs, options)
    if options.compacted:
        tasks, accesses = compacted(stores, options)
        return _with_faults(Plan(pinned(tasks, options.selection), accesses, files, 0), faults)
    together = _together(asked)
    if [own for own, _ in together] in ([], [options]):
        planned = _planned(logs, options, files, columns, begun=begun, puts_off=puts_off and not options.deduplicate)
        return _with_faults(planned, faults)
    if options.starting_group is not None and len(logs) < len(stores):
        raise OptionError(
            f"option 'startingOffsets': group:{options.starting_group} cannot be used with replicas "
            "(deduplicate=true), whose offsets are of different times; give the offsets of one replica, from "
            "`Store.offsets_of`"
        )
    plans = [_planned(alone(some), own, files, columns, own.selection, begun) for own, some in together]
    return _with_faults(_joined(plans, files), faults)


def _together(asked: list[tuple[Snapshot, ReadOptions]]) -> list[tuple[ReadOptions, list[Snapshot]]]:
    """Stores with the same options, which are planned together."""
    found: list[tuple[ReadOptions, list[Snapshot]]] = []
    for store, own in asked:
        if found and found[-1][0] == own:
            found[-1][1].append(store)
        else:
            found.append((own, [store]))
    return found


def plan_stores(
    stores: list[Snapshot],
    options: ReadOptions,
    files: Files,
    columns: Collection[str] | None = None,
    *,
    puts_off: bool = False,
) -> Plan:
    """plan() for stores that are open, no two of them copies of one. Paths and a consumer group in the options do not
    count, and no name in the options is checked."""
    logs = alone(stores)
    faults = _faults(logs, options)
    return _with_faults(_planned(logs, options, files, columns, puts_off=puts_off), faults)


def _faults(logs: list[Copies], options: ReadOptions) -> list[tuple[str, Damage]]:
    """The faults in names and sizes of segments."""
    faults = [fault for log in logs for fault in log.faults()]
    if faults and options.mode == "FAILFAST":
        raise faults[0][1].error()
    return faults


def _with_faults(planned: Plan, faults: list[tuple[str, Damage]]) -> Plan:
    if faults:
        planned.tasks.append(Task(faults=tuple(faults)))
    return planned


def plan_parts(
    parts: list[tuple[Snapshot, list[Range], Selection]], options: ReadOptions, columns: Collection[str] | None = None
) -> list[Task]:
    """The tasks that read the selected messages in parts of logs.

    Args:
        parts: each with its store and its selection; the selection of the options does not count.
        columns: as of plan(). Logs of queues of one tiered store may share tasks.
    """
    target = target_size(sum(_size(ranges) for _, ranges, _ in parts), options)
    splitter = Splitter(target, _may_walk(options, [store for store, _, _ in parts]))

    def pieces_of(store: Snapshot, ranges: list[Range], selection: Selection) -> Pieces:
        timely = in_time(store, ranges, selection.store_timestamp)
        if _size(timely) < _SMALL_PART:
            return scanned(store, timely, selection, splitter)
        return choose(store, timely, selection, splitter, "log", columns).pieces

    tasks: list[Task] = []
    for (_, selection), some in itertools.groupby(parts, lambda part: (part[0].root, part[2])):
        pieces = [piece for part in some for piece in pieces_of(*part)]
        tasks += [replace(task, selection=selection) for task in pinned(pack(pieces, options), selection)]
    return tasks


def _size(ranges: list[Range]) -> int:
    return sum(r.stop - r.start for r in ranges)


def _planned(
    logs: list[Copies],
    options: ReadOptions,
    files: Files,
    columns: Collection[str] | None,
    own: Selection | None = None,
    begun: Mapping[Snapshot, Begun] | None = None,
    puts_off: bool = False,
) -> Plan:
    """The plan without faults in names and sizes.

    Args:
        own: the selection of the tasks, where it is not the same for all stores of the read.
        begun: look-ups in index files that were begun before.
        puts_off: as of plan(); not where several copies are read as one log.
    """
    stores = [store for log in logs for store in log.stores]
    points = SplitPoints()
    selection = options.selection
    for store in stores:
        say_if_lost(store)
        store.refuse_exchanged()
    ranges = {
        store: [] if selection.is_nothing else log.ranges(store, pruned(store, selection, points))
        for log in logs
        for store in log.stores
        if log.is_read(store)
    }
    target = target_size(sum(map(_size, ranges.values())), options)
    # A process that reads the tasks itself shares one of any size among its threads, without a walk (run/parts.py).
    splitter = Splitter(target, _may_walk(options, stores) and (files.is_slow or not puts_off), points)
    chosen = WholeSegments(target, points) if puts_off else splitter
    accesses = [
        (store, choose(store, ranges[store], selection, chosen, options.trust, columns, (begun or {}).get(store)))
        if store in ranges
        else (store, unread(log.stores[0]))
        for log in logs
        for store in log.stores
    ]
    pieces = in_order(logs, {store: access.pieces for store, access in accesses})
    if puts_off:
        deferred = Deferred(splitter, selection)
        return Plan(deferred.begun(pack(pieces, options)), accesses, files, target, deferred)
    tasks = pinned(pack(pieces, options), selection)
    if own is not None:
        tasks = [replace(task, selection=own) for task in tasks]
    return Plan(tasks, accesses, files, target)


def _joined(plans: list[Plan], files: Files) -> Plan:
    return Plan(
        [task for plan in plans for task in plan.tasks],
        [access for plan in plans for access in plan.accesses],
        files,
        max((plan.target for plan in plans), default=0),
    )


def _may_walk(options: ReadOptions, stores: list[Snapshot]) -> bool:
    """Are there so few segments that they may be walked through where no ConsumeQueue tells where units begin?"""
    segments = sum(len(store.log.extents) for store in stores)
    return segments <= max(_SEGMENTS_TO_WALK, options.min_partitions or 0)
