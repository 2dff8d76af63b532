"""From options to tasks. Run once for a read, so that what comes out is a snapshot of the stores as they were then."""

import logging
from dataclasses import dataclass

from rmqstore_spark.errors import DamagedStoreError, OptionError, one_line
from rmqstore_spark.options import ReadOptions
from rmqstore_spark.read.access_path import Access, choose
from rmqstore_spark.read.check_names import check_queues, check_topics
from rmqstore_spark.read.pack import pack, target_size
from rmqstore_spark.read.prune import pruned
from rmqstore_spark.read.split import Splitter
from rmqstore_spark.read.task import Task
from rmqstore_spark.store.files import Files
from rmqstore_spark.store.layout import expand
from rmqstore_spark.store.opened import OpenStore

log = logging.getLogger(__name__)

_SEGMENTS_TO_WALK = 16  # without ConsumeQueue, more segments than these are not walked through for split points


@dataclass(frozen=True)
class Plan:
    """The tasks of a read.

    Attributes:
        accesses: each store, and how its messages are found.
        files: says what planning has cost.
    """

    tasks: list[Task]
    accesses: list[tuple[OpenStore, Access]]
    files: Files


def plan(options: ReadOptions, files: Files | None = None) -> Plan:
    """Plan a read.

    Args:
        files: how to reach the stores' files.

    Raises:
        NotAStoreError: a path is no store.
        OptionError: storePathCommitLog is given for more than one store; `assign` or the offsets name a queue, or
            `subscribe` a topic, that no store has.
        DamagedStoreError: mode FAILFAST, and names or sizes of segments are wrong.
    """
    files = files or Files()
    stores = _open(options, files)
    faults = [(store.root, fault) for store in stores for fault in store.faults]
    if faults and options.mode == "FAILFAST":
        raise DamagedStoreError(str(faults[0][1]))
    check_topics(options.subscribe, stores)
    check_queues(options.selection, stores)

    splitter = _splitter(options, stores)
    accesses = [(store, _access(options, store, splitter)) for store in stores]
    tasks = pack([piece for _, access in accesses for piece in access.pieces], options)
    if faults:
        tasks.append(Task(faults=tuple(faults)))
    return Plan(tasks, accesses, files)


def _open(options: ReadOptions, files: Files) -> list[OpenStore]:
    roots = expand(options.paths, files)
    if options.store_path_commit_log and len(roots) > 1:
        raise OptionError(f"option 'storePathCommitLog' belongs to one store, but the path gives {len(roots)}")
    stores = [OpenStore.find(root, files, options.store_path_commit_log) for root in roots]
    for store in stores:
        for stray in store.layout.strays:
            log.warning("%s: not a commitlog file, ignored; a broker would not start with it", one_line(stray))
    return stores


def _splitter(options: ReadOptions, stores: list[OpenStore]) -> Splitter:
    segments = sum(len(store.log.extents) for store in stores)
    target = target_size(sum(store.log.size for store in stores), options)
    return Splitter(target, may_walk=segments <= max(_SEGMENTS_TO_WALK, options.min_partitions or 0))


def _access(options: ReadOptions, store: OpenStore, splitter: Splitter) -> Access:
    selection = options.selection
    ranges = [] if selection.is_nothing else pruned(store, selection, splitter)
    return choose(store, ranges, selection, splitter)
