"""The start of a stream in a store: `startingOffsets` and `startingTimestamp`, resolved once and never again."""

import functools
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from rmqstore_spark.errors import OptionError, one_line
from rmqstore_spark.query.option_values import EARLIEST, LATEST, GroupOffsets, Offsets
from rmqstore_spark.query.selection import Numbers, Selection
from rmqstore_spark.query.stream_options import StreamOptions
from rmqstore_spark.read.follow.edge import Reached
from rmqstore_spark.read.follow.stream_offset import Queue, StoreOffset
from rmqstore_spark.read.plan.groups import of_group, refuse_unread
from rmqstore_spark.read.plan.prune import first_in_time, ranges_of
from rmqstore_spark.store.bounds_search import QueueBounds
from rmqstore_spark.store.evidence import Evidence
from rmqstore_spark.store.format.message import Header
from rmqstore_spark.store.format.queue_block import QueueUnit
from rmqstore_spark.store.message_headers import headers_of
from rmqstore_spark.store.queue_bounds import ask_for_ends, queue_bounds
from rmqstore_spark.store.queue_ends import queued_messages
from rmqstore_spark.store.queue_log import QueueLog
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.consumequeue import Queue as ConsumeQueue
from rmqstore_spark.store.structures.many_headers import Place
from rmqstore_spark.store.structures.queue_cursor import QueueCursor

log = logging.getLogger(__name__)

_NEVER = (1 << 63) - 1  # as a queue offset
_NO_UNIT = -1  # as a physical offset


def starts_of(stores: dict[Snapshot, Reached], options: StreamOptions) -> dict[str, StoreOffset]:
    """The start of a new stream, by store.

    Args:
        stores: each store as of its edge, with that edge.

    Raises:
        OptionError: no store has an offset of the group that startingOffsets names.
    """
    start, since = options.start, options.since
    if isinstance(start, GroupOffsets):
        chosen = of_group(list(stores), start.group, options.read.selection)
        return {
            store.root: _start_of_queues(store, stores[store], _starts(selection), selection, since, selection.only_in)
            for store, selection in chosen
        }
    if start == "latest":
        return {store.root: StoreOffset(*reached) for store, reached in stores.items()}
    if start == "earliest":
        return {store.root: _since(store, reached, since) for store, reached in stores.items()}
    return {store.root: _start_of_named(store, reached, start, options) for store, reached in stores.items()}


def ask_for_starts(stores: Iterable[Snapshot], options: StreamOptions) -> None:
    """Where requests take long, have those begin that starts_of() needs for queues, while the log's end is looked for
    and the stores are opened anew: what does not change meanwhile is not asked for again."""
    start = options.start
    for store in stores:
        if isinstance(start, GroupOffsets) and store.files.is_slow:
            topics = sorted({topic for group, topic in store.consumer_offsets if group == start.group})
            queues = [queue for topic in topics for queue in store.queues.all_of_topic(topic)]
            selection = options.read.selection
            ask_for_ends(store, [each for each in queues if selection.queue(each.topic, each.queue_id) is not None])


def start_of_new(
    store: Snapshot, reached: Reached, options: StreamOptions, topics: Collection[str] | None
) -> StoreOffset:
    """The start of a stream in a store that has appeared later: the beginning of the log, unless a group or queue
    offsets say otherwise.

    Args:
        topics: the topics that the stream reads in other stores; None for any.
    """
    start = options.start
    if isinstance(start, GroupOffsets):
        refuse_unread(store, start.group, "option 'startingOffsets'")
        known = {name for name, _ in store.consumer_offsets}
        if start.group in known:
            return starts_of({store: reached}, options)[store.root]
        return replace(_since(store, reached, options.since), topics=None if topics is None else frozenset(topics))
    if start == "latest":
        return _since(store, reached, options.since)
    return starts_of({store: reached}, options)[store.root]


def start_of_log(log: QueueLog, reached: Reached, options: StreamOptions, *, is_new: bool) -> StoreOffset:
    """The start of a stream in the log of one queue, with the first queue offset that is read.

    Args:
        is_new: whether the log has appeared later: then it is read from its beginning, unless queue offsets say
            otherwise.
    """
    topic, queue_id = log.queue
    start = options.start
    named = start.get(topic, {}).get(queue_id, EARLIEST) if isinstance(start, dict) else EARLIEST
    if named == LATEST or (start == "latest" and not is_new):
        number = None if reached.last is None else log.number_after(reached.last.position)
        return StoreOffset(*reached, starts={log.queue: number or 0})
    first = 0 if named == EARLIEST else named
    return replace(_since(log, reached, options.since), starts={log.queue: first})


def _since(store: Snapshot, reached: Reached, since: int | None) -> StoreOffset:
    """The start of the first segment that can hold messages of store time `since` (ms) or later."""
    times = Numbers() if since is None else Numbers(least=since)
    later = first_in_time(store, ranges_of(store), times)
    return StoreOffset(*reached) if later is None else StoreOffset(later.start)


def _starts(selection: Selection) -> dict[Queue, int]:
    return {queue: numbers.least for queue, numbers in selection.given.items()}


def _start_of_named(store: Snapshot, reached: Reached, named: Offsets, options: StreamOptions) -> StoreOffset:
    """The start of the queues that offsets name; some of them start at their next message."""
    asked = {(topic, queue_id): offset for topic, queues in named.items() for queue_id, offset in queues.items()}
    latest = {queue for queue, offset in asked.items() if offset == LATEST}
    starts = {queue: offset for queue, offset in asked.items() if offset not in (LATEST, EARLIEST)}
    known = _ends(store, reached, latest)
    lost = latest - known.keys()
    begin = _start_of_queues(
        store, reached, {**starts, **known, **dict.fromkeys(lost, _NEVER)}, options.read.selection, options.since, None
    )
    # The next queue offset of a queue without units is found in the log, as far as it will be read.
    after = dict.fromkeys(lost, 0)
    if lost and begin.position < reached.position:
        topics = {topic for topic, _ in lost}
        log.warning(
            "%s: no ConsumeQueue shows where the queues of %s end, so the log is read",
            one_line(store.root),
            ", ".join(repr(one_line(topic)) for topic in sorted(topics)),
        )
        found = dict[Queue, Header]()
        for header in queued_messages(store, begin.position, reached.position, lambda *queue: after.get(queue)):
            queue = header.topic, header.queue_id
            found[queue], after[queue] = header, max(after[queue], header.queue_offset + 1)
        after |= {queue: store.number_after(header.position) or after[queue] for queue, header in found.items()}
    return replace(begin, starts={**starts, **known, **after})


def _ends(store: Snapshot, reached: Reached, latest: Collection[Queue]) -> dict[Queue, int]:
    """The first queue offset after the reached place, for those queues whose units tell it."""
    some = [queue for topic in {topic for topic, _ in latest} for queue in store.queues.all_of_topic(topic)]
    found = {}
    for bounds in queue_bounds(store, [queue for queue in some if (queue.topic, queue.queue_id) in latest]):
        queue, last = bounds.queue, bounds.last
        if last is None:
            continue
        end = bounds.end
        if last.position >= reached.position:  # the unit came after the look
            unit = queue.any_unit(QueueCursor(queue, bounds.numbers[-1]).seek(reached.position))
            end = end if unit is None else unit.queue_offset
        found[queue.topic, queue.queue_id] = end
    return found


def _start_of_queues(
    store: Snapshot,
    reached: Reached,
    starts: dict[Queue, int],
    selection: Selection,
    since: int | None,
    topics: frozenset[str] | None,
) -> StoreOffset:
    """The place where the first of the selected queues starts: no message before that place is needed. A later place
    would lose messages, an earlier one only costs time, so where the place is not sure, the log's beginning is
    taken."""
    if topics is not None and not topics:
        return StoreOffset(*reached, topics=topics)
    begin = _since(store, reached, since)
    first = _first_unit(store, reached, starts, selection)
    found = begin if first is None or first.position <= begin.position else first
    return replace(found, starts=starts, topics=topics)


def _first_unit(
    store: Snapshot, reached: Reached, starts: dict[Queue, int], selection: Selection
) -> StoreOffset | None:
    """The first of the units that queues start at; None where the unit of any queue is not known."""
    among = selection.topic.among if selection.assigned is None else frozenset(selection.assigned)
    last = store.last_message
    # The queues must know the last message: a message that they do not know yet could be anywhere.
    if among is None or last is None or not store.queues.vouch_for(last):
        return None
    first = StoreOffset(*reached)
    some = [queue for topic in among for queue in store.queues.all_of_topic(topic)]
    some = [queue for queue in some if selection.queue(queue.topic, queue.queue_id) is not None]
    starting, bounds = functools.partial(_starting_unit, starts), queue_bounds(store, some)
    found: Iterable[_Starting] = map(starting, bounds)
    position: Callable[[_Starting], int | None] = functools.partial(_position_of, store)
    if store.files.is_slow:
        # All queues are asked, side by side, even if the first one tells that it is of no use; then the log, for all.
        found = store.files.schedule.mapped(starting, bounds)
        units = (unit for _, unit in found if isinstance(unit, QueueUnit))
        headers_of(store, [Place(unit.position, unit.size) for unit in units])
        positions: Iterable[int | None] = store.files.schedule.mapped(position, found)
    else:
        positions = map(position, found)
    for at in positions:
        if at is None:
            return None
        if at != _NO_UNIT and at < first.position:
            first = StoreOffset(at)
    return first


def _starting_unit(starts: Mapping[Queue, int], bounds: QueueBounds) -> "_Starting":
    """The unit that a queue starts at, _NO_UNIT where it starts behind its end; None if unknown."""
    queue = bounds.queue
    offset = starts.get((queue.topic, queue.queue_id))
    if offset is None:
        return _Starting(queue, None)
    if offset >= bounds.end and not _is_in_last(bounds, offset):
        return _Starting(queue, _NO_UNIT)
    unit = queue.unit(queue.number_with(offset))
    return _Starting(queue, None if unit is None or unit.queue_offset > offset else unit)


def _position_of(store: Snapshot, starting: "_Starting") -> int | None:
    """The physical offset of the message that a queue starts at, or _NO_UNIT; None if it is not surely live."""
    queue, unit = starting
    if not isinstance(unit, QueueUnit):
        return unit
    if store.log.evidence(queue, unit.queue_offset, unit, may_walk_far=True) is not Evidence.LIVE:
        return None
    return unit.position


class _Starting(NamedTuple):
    queue: ConsumeQueue
    unit: QueueUnit | int | None


def _is_in_last(bounds: QueueBounds, offset: int) -> bool:
    """Does the last unit say that it has this queue offset? Of a batch, the log may say less: where its properties do
    not tell how many messages it has, it counts as one (UnitEvidence.settled), and has as many rows as its body has."""
    queue = bounds.queue
    unit = None if queue.is_by_offset or not bounds.numbers else queue.unit(bounds.numbers[-1])
    return unit is not None and unit.queue_offset <= offset < unit.end


def check_word(start: object) -> None:
    """Refuse a start that must be carried from batch to batch before Spark 4.2, which does not tell a source where it
    was.

    Raises:
        OptionError: naming the option.
    """
    if start not in ("latest", "earliest"):
        raise OptionError(
            "option 'startingOffsets': before Spark 4.2 a stream can begin at latest or earliest only; upgrade Spark"
        )
