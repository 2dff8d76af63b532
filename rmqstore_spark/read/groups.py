"""`startingOffsets=group:NAME`: what a consumer group has not consumed, as a selection for each store.

A broker keeps for each group and queue the offset of the next message that the group is to get. A topic that it has no
such offset for is none that the group consumes; of one that it has, it begins at the start of a queue without one.
"""

import logging
from collections.abc import Iterator
from dataclasses import replace

from rmqstore_spark.errors import OptionError, nearest
from rmqstore_spark.selection import Numbers, Selection, Texts
from rmqstore_spark.store.opened import OpenStore

log = logging.getLogger(__name__)


def of_group(stores: list[OpenStore], group: str, selection: Selection) -> Iterator[tuple[OpenStore, Selection]]:
    """Each store, and what of a selection a group has not consumed there.

    Raises:
        OptionError: no store has an offset of this group.
    """
    known = sorted({name for store in stores for name, _ in store.consumer_offsets})
    if group not in known:
        some = ", ".join(map(repr, known[:5])) or "none"
        raise OptionError(
            f"option 'startingOffsets': no store has an offset of consumer group {group!r}.{nearest(group, known)} "
            f"Groups with offsets are {some}{', ...' * (len(known) > 5)}"
        )
    for store in stores:
        offsets = {topic: queues for (name, topic), queues in store.consumer_offsets.items() if name == group}
        if not offsets:
            log.warning("%s: consumer group %r has no offsets here, nothing is read of this store", store.root, group)
        starts = {
            (topic, queue_id): Numbers(least=offset) & selection.offsets.get((topic, queue_id), Numbers())
            for topic, queues in offsets.items()
            for queue_id, offset in queues.items()
        }
        topics = selection.topic & Texts(among=frozenset(offsets))
        yield store, replace(selection, topic=topics, offsets={**selection.offsets, **starts})
