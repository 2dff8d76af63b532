"""The last value of each key of compaction topics (option `compacted`).

A consumer of a compaction topic is served from the topic's compaction log: the newest message of each key as of the
last pass, and after these all messages since. What it knows in the end is the last value of each key, and that is what
is selected here: of each queue the newest message of each KEYS text, from the compaction log and the commitlog
together; none for a key whose newest message has no body (a tombstone), and none for messages without keys, which a
pass drops. A pass may remove what is superseded at any time, so the rows do not depend on when it last ran.

A message is in both logs until its segment of the commitlog expires, with the same queueOffset. No index knows which
message of a key is the last one, so the plan reads both logs of these topics, without their bodies being kept.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqstore_spark.errors import OptionError, counted, quoted
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.query.selection import Selection, Texts
from rmqstore_spark.read.pieces.task import Chosen, Range, Task
from rmqstore_spark.read.plan.access_path import Access, choose
from rmqstore_spark.read.plan.newest import COLUMNS, Newest, chosen
from rmqstore_spark.read.plan.pack import Pieces, pack
from rmqstore_spark.read.plan.prune import ranges_of
from rmqstore_spark.read.plan.split import Splitter
from rmqstore_spark.read.run.messages import messages_in
from rmqstore_spark.store.compaction_log import compaction_logs_of
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.compaction import compaction_topics
from rmqstore_spark.store.structures.segments import Damage

_WHOLE = 1 << 62


def compacted(stores: list[Snapshot], options: ReadOptions) -> tuple[list[Task], list[tuple[Snapshot, Access]]]:
    """The tasks that read the last value of each key, and the way to them in each log.

    Raises:
        OptionError: no store has a compaction topic, or a topic of `subscribe` is none.
        DamagedStoreError: mode FAILFAST, and something is damaged.
    """
    if options.starting_group is not None or options.deduplicate:
        name = "deduplicate" if options.deduplicate else "startingOffsets=group:..."
        raise OptionError(f"options 'compacted' and {name!r} cannot be given together: remove one of them")
    topics = {store: compaction_topics(store.root, store.files) for store in stores}
    _refuse_others(options, frozenset[str]().union(*topics.values()))
    tasks: list[Task] = []
    accesses: list[tuple[Snapshot, Access]] = []
    for store in stores:
        if not options.selection.is_nothing and topics[store]:
            more, ways = _of_store(store, topics[store], options)
            tasks += more
            accesses += ways
    return tasks, accesses


def _refuse_others(options: ReadOptions, topics: frozenset[str]) -> None:
    if not topics:
        raise OptionError(
            "option 'compacted': expected a store with compaction topics (cleanup.policy=COMPACTION), found none; "
            "remove the option"
        )
    others = sorted((options.subscribe | (options.selection.assigned or {}).keys()) - topics)
    if others:
        raise OptionError(
            f"option 'compacted': expected compaction topics (cleanup.policy=COMPACTION), found {quoted(others[0])}; "
            "read it without the option"
        )


def _of_store(
    store: Snapshot, topics: set[str], options: ReadOptions
) -> tuple[list[Task], list[tuple[Snapshot, Access]]]:
    selection = options.selection
    asked = frozenset(topic for topic in topics if selection.wants_topic(topic))
    queues = Selection(topic=Texts(among=asked), assigned=selection.assigned, queue_id=selection.queue_id)
    logs = [each for each in compaction_logs_of(store) if selection.queue(*each.queue) is not None]
    for each in logs:
        each.look_at_units()
    of_logs = [piece for each in logs for piece in ranges_of(each)]
    own = [_of_queue(*each.queue) for each in logs for _ in each.log.extents]
    splitter = Splitter(_WHOLE, may_walk=False)
    of_store = [piece for piece, _ in choose(store, ranges_of(store), queues, splitter).pieces]
    damages = list[Damage]()

    def newest() -> Iterator[pa.RecordBatch]:
        known = Newest()
        log = ((number, piece, queues, known.add_commitlog) for number, piece in enumerate(of_store, len(of_logs)))
        others = zip(range(len(of_logs)), of_logs, own, itertools.repeat(known.add_compaction_log))
        for number, piece, asked, added in itertools.chain(log, others):
            for found in messages_in(piece, asked, COLUMNS, options.verify_crc):
                if isinstance(found, Damage):
                    damages.append(found)
                else:
                    yield from added(found, number)
        yield from known.rest()

    positions = chosen(newest(), len(of_logs) + len(of_store))
    damages += (lost for each in logs for lost in each.lost())
    if damages and options.mode == "FAILFAST":
        raise damages[0].error()
    of_each = [
        (each, [number for number, piece in enumerate(of_logs) if piece.store is each], selection.without_offsets())
        for each in logs
    ]
    parts = [*of_each, (store, list(range(len(of_logs), len(positions))), selection)]
    pieces = [*of_logs, *of_store]
    tasks: list[Task] = []
    accesses: list[tuple[Snapshot, Access]] = []
    for owner, numbers, selected in parts:
        pieces_of: Pieces = [
            (piece, len(piece.positions) * store.files.prices.request)
            for number in numbers
            if len(positions[number]) and (piece := _chosen(pieces[number], positions[number]))
        ]
        tasks += [replace(task, selection=selected) for task in pack(pieces_of, options)]
        count = sum(len(positions[number]) for number in numbers)
        accesses.append((owner, Access("compacted", f"{counted(count, 'last value')} of keys", pieces_of, [])))
    if damages:
        tasks.append(Task(faults=tuple((store.root, damage) for damage in damages)))
    return tasks, accesses


def _of_queue(topic: str, queue_id: int) -> Selection:
    """The messages that belong into a queue's own log. Others there are no consumer's (table check tells them)."""
    return Selection(assigned={topic: frozenset([queue_id])})


def _chosen(piece: Range, positions: npt.NDArray[np.int64]) -> Chosen:
    return Chosen(piece.segment, piece.start, piece.stop, piece.store, piece.stop, positions)
