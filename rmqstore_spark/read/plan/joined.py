"""A broker's own store and its tiered store, read as one (option `tiered`).

A broker brings the messages of each queue to the tiered store in order, and deletes its own segments later: so both
have the messages in between, with the same queueOffset, and only the tiered store has those before the first one
here. Each queue is read up to that message in the tiered store, and from there on here. Where this store ends earlier
than the tiered one, as an older copy does, the tiered store goes on after it, too.
"""

from dataclasses import replace

from rmqstore_spark.errors import NotAStoreError, OptionError, quoted
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.query.selection import ALL, Numbers, Selection, Texts
from rmqstore_spark.read.plan.access_path import choose
from rmqstore_spark.read.plan.prune import ranges_of
from rmqstore_spark.read.plan.split import Splitter
from rmqstore_spark.read.plan.stores import files_of
from rmqstore_spark.read.plan.unqueued import queues_know_all
from rmqstore_spark.read.run.messages import messages_in
from rmqstore_spark.store.format.message import is_queued
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.io.storage import scheme_of
from rmqstore_spark.store.queue_bounds import queue_bounds
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.layout import Layout, expand
from rmqstore_spark.store.structures.segments import Damage
from rmqstore_spark.store.structures.tiered import tiered_logs
from rmqstore_spark.store.tiered_log import TieredLog

_COLUMNS = ["topic", "queueId", "queueOffset", "sysFlag"]
_WHOLE = 1 << 62

Bounds = tuple[int, int]  # the first queueOffset, and the one after the last
Queue = tuple[str, int]


def tier_beside(stores: list[Snapshot], options: ReadOptions, files: Files) -> list[tuple[Snapshot, ReadOptions]]:
    """The logs of the tiered store that the options name beside a store, each with the options for what only it has.

    Raises:
        OptionError: the paths give another number of stores than one, or another option does not go with it.
        NotAStoreError: the directory is no tiered store.
    """
    if options.tiered is None:
        return []
    for name in ("deduplicate", "compacted"):
        if getattr(options, name):
            raise OptionError(f"options 'tiered' and {name!r} cannot be given together: remove one of them")
    if options.starting_group is not None:
        raise OptionError(
            "options 'tiered' and 'startingOffsets=group:...' cannot be given together; give the offsets, from "
            "`Store.offsets_of`"
        )
    if len(stores) != 1 or not stores[0].is_whole:
        raise OptionError(
            "option 'tiered': expected one store beside it, of the broker that has brought messages there"
        )
    files = _files_of_tier(options.tiered, options, files)
    root, *more = expand([options.tiered], files, "tiered")
    if more:
        raise OptionError(f"option 'tiered': expected one directory, found {len(more) + 1} that the pattern matches")
    if files.is_slow:
        files.list_tree(root)
    layouts = list(tiered_logs(root, files))
    if not layouts:
        raise NotAStoreError(
            f"option 'tiered': {root}: no tiered store: expected <cluster>/<broker>/<topic>/<queueId>/COMMIT_LOG in it"
        )
    refuse_several_brokers(layouts)
    asked = [each for each in layouts if each.queue and options.selection.queue(*each.queue) is not None]
    known = _bounds(stores[0], frozenset(each.queue for each in asked if each.queue))
    found: list[tuple[Snapshot, ReadOptions]] = []
    for layout in asked:
        assert layout.queue is not None
        log = TieredLog(layout, files, known.get(layout.queue, (0, 0)), beside=stores[0])
        found += [(log, own) for own in _own(log, known.get(layout.queue), options)]
    return found


def _files_of_tier(tier: str, options: ReadOptions, files: Files) -> Files:
    """How the tier is reached: like the store, or otherwise where only one of them is in object storage."""
    if all((scheme_of(path) is None) == (scheme_of(tier) is None) for path in options.paths):
        return files
    return files_of(replace(options, paths=[tier]))


def refuse_several_brokers(layouts: list[Layout]) -> None:
    """Refuse a tiered store whose queues are not of one broker.

    Raises:
        OptionError: a queue is there twice.
    """
    seen: set[tuple[str, Queue | None]] = set()
    for layout in layouts:
        if (layout.root, layout.queue) in seen:
            raise OptionError(
                f"{layout.root}: a tiered store with the queues of several brokers, as topic, queueId "
                f"{quoted(str(layout.queue))} are there twice; give the directory of one broker in it"
            )
        seen.add((layout.root, layout.queue))


def _own(log: TieredLog, known: Bounds | None, options: ReadOptions) -> list[ReadOptions]:
    """The options for the part of a queue before the messages that the store has, and for the part after them."""
    selection = options.selection.without_offsets()
    if known is None:
        return [replace(options, selection=selection)]
    least, end = known
    ends = log.ends()
    parts = [Numbers(most=least - 1)]
    if ends is not None and ends[1].queue_offset >= end:
        parts.append(Numbers(least=end))
    limits = selection.offsets.get(log.queue, ALL)
    return [
        replace(options, selection=replace(selection, offsets={**selection.offsets, log.queue: limits & part}))
        for part in parts
        if selection.queue(*log.queue) is not None
    ]


def _bounds(store: Snapshot, queues: frozenset[Queue]) -> dict[Queue, Bounds]:
    """Which messages of some queues a store has. Its ConsumeQueues say that where they are proved to know all of the
    log; else the messages of these topics are read."""
    if queues_know_all(store):
        files = [each for queue in sorted(queues) for each in store.queues.all_of_queue(*queue)]
        bounds = queue_bounds(store, [queue for queue in files if queue.last() is not None])
        return {(each.queue.topic, each.queue.queue_id): (each.least, each.end) for each in bounds}
    found: dict[Queue, Bounds] = {}
    selection = Selection(topic=Texts(among=frozenset(topic for topic, _ in queues)))
    for piece, _ in choose(store, ranges_of(store), selection, Splitter(_WHOLE, may_walk=False)).pieces:
        for batch in messages_in(piece, selection, _COLUMNS, verify_crc=False, explodes=True):
            if isinstance(batch, Damage):
                continue  # the read itself tells of it
            for topic, queue_id, offset, flags in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if is_queued(flags):
                    least, end = found.get((topic, queue_id), (offset, offset + 1))
                    found[topic, queue_id] = min(least, offset), max(end, offset + 1)
    return found
