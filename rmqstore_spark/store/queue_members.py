"""Which queues the messages of the log are in, and at which offsets, as the log alone tells it: for those who do not
believe the queues.

A message is in the queue that it was sent to, which its unit names. It may be in light queues as well, which only its
properties tell (format/light_queues.py).
"""

from collections.abc import Callable, Iterator, Mapping, Set
from typing import NamedTuple

from native_io import Filter
from rmqstore_spark.store.format.light_queues import is_light, light_queues
from rmqstore_spark.store.format.units import BatchBuilder, Run

Offsets = dict[tuple[str, int], set[int]]  # queue offsets by topic and queueId
_Place = tuple[tuple[str, int], int]  # topic and queueId, and a queue offset


class Members(NamedTuple):
    """A way to find messages of queues in the log.

    Attributes:
        chosen: lets messages of these queues pass, and some others.
        places: what such messages are at which place of which queue.
    """

    chosen: Filter
    places: Callable[[Run], Iterator[_Place]]


def members_of(wanted: Mapping[tuple[str, int], Set[int]]) -> list[Members]:
    """The ways to find the messages at some queue offsets. Each is asked of a run by itself."""
    light = {topic: (min(offsets), max(offsets)) for (topic, _), offsets in wanted.items() if is_light(topic)}
    own = {queue: (min(offsets), max(offsets)) for queue, offsets in wanted.items() if not is_light(queue[0])}
    ways = [Members(Filter(judge=_judge(own)), _own_places)] if own else []
    return ways + ([Members(Filter(conditions=[{"lightQueue": light}]), _light_places)] if light else [])


def _judge(spans: Mapping[tuple[str, int], tuple[int, int]]) -> Callable[[bytes, int], tuple[int, int] | None]:
    return lambda topic, queue_id: spans.get((topic.decode("utf-8", "replace"), queue_id))


def _own_places(run: Run) -> Iterator[_Place]:
    for header in filter(lambda header: header.is_queued, run.headers()):
        yield (header.topic, header.queue_id), header.queue_offset


def _light_places(run: Run) -> Iterator[_Place]:
    builder = BatchBuilder(["topic", "sysFlag", "properties"])
    run.add_to(builder)
    for row in builder.finish().to_pylist():
        found = light_queues(row["topic"], row["sysFlag"], dict(row["properties"]))
        yield from (((name, 0), offset) for name, offset in found.items())
