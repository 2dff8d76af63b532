"""How long messages of delay levels wait: a broker's setting (messageDelayLevel) that is stored nowhere, but that a
level's queue shows: the tagsCode of its units is the time at which a message is due (ScheduleMessageService)."""

import itertools
from collections import Counter
from collections.abc import Iterator

from native_io import Dispatcher
from rmqstore_spark.store.format.queue_block import QueueBlock, QueueUnit
from rmqstore_spark.store.format.system_topics import SCHEDULE_TOPIC
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.consumequeue import Queue
from rmqstore_spark.store.structures.consumequeue_ext import LAST_ADDRESS, read_ext
from rmqstore_spark.store.unit_evidence import UnitEvidence

_MOST_DELAY = 1 << 40  # milliseconds: 34 years
_UNITS_TO_ASK = 5  # of each queue: a tagsCode has no checksum
_UNITS_TO_LOOK_AT = 64


def later_than_usual(store: Snapshot) -> dict[int, int]:
    """By queueId of SCHEDULE_TOPIC_XXXX: the milliseconds by which messages are due later than with RocketMQ's default
    messageDelayLevel, as most of the last units show that have their messages in the log; none where nothing shows
    it."""
    evidence = UnitEvidence(store)
    found = {
        queue.queue_id: list(itertools.islice(_shown_by(store, queue, evidence), _UNITS_TO_ASK))
        for queue in store.queues.of_topic(SCHEDULE_TOPIC)
    }
    return {queue_id: Counter(shown).most_common(1)[0][0] for queue_id, shown in found.items() if shown}


def _shown_by(store: Snapshot, queue: Queue, evidence: UnitEvidence) -> Iterator[int]:
    """What the units of a level's queue show, the last one first."""
    for number in range(queue.end - 1, max(queue.first, queue.end - _UNITS_TO_LOOK_AT) - 1, -1):
        unit = queue.any_unit(number)
        if unit is None or (header := evidence.message(queue, unit)) is None or header.store_timestamp is None:
            continue
        stored = header.store_timestamp // 1000
        due, usual = _due(store, queue, unit), _usual(store, unit.position)
        if 0 < due - stored < _MOST_DELAY and 0 < usual - stored < _MOST_DELAY:
            yield due - usual


def _due(store: Snapshot, queue: Queue, unit: QueueUnit) -> int:
    """The tagsCode of a unit, also one that stands in consumequeue_ext/."""
    code = unit.tags_code
    if code > LAST_ADDRESS:
        return code
    found = read_ext(store.root, queue.topic, queue.queue_id, [code], store.files)
    return found[code].tags_code if code in found else code


def _usual(store: Snapshot, position: int) -> int:
    """The tagsCode that a broker with the default setting gives the message at a physical offset; 0 for none."""
    extent, dispatcher = store.log.extent_at(position), Dispatcher()
    if extent is not None:
        with store.reader(extent.segment) as reader:
            reader.feed_one(position, dispatcher)
    units = QueueBlock.of(dispatcher.finish().units.data)
    return int(units.tags_codes[0]) if len(units) else 0
