"""`startingOffsets=group:NAME`: the messages that a consumer group has not consumed, as a selection for each store.

For each group and queue a broker keeps the offset of the next message for the group. The group does not consume a topic
without any such offset; in a topic with such offsets, it begins at the start of each queue without one.
"""

import logging
from collections.abc import Iterator

from rmqstore_spark.errors import OptionError, nearest, one_line, quoted, some_of
from rmqstore_spark.query.selection import Numbers, Selection
from rmqstore_spark.store.elsewhere import offsets_elsewhere
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.config import why_unread

log = logging.getLogger(__name__)


def check_group(stores: list[Snapshot], group: str, asked: str) -> None:
    """Refuse a consumer group that no store has an offset of.

    Args:
        asked: the option that names the group, for the error.

    Raises:
        OptionError: no store has an offset; or an offset may be in a RocksDB, or in a file that cannot be read.
    """
    for store in stores:
        refuse_unread(store, group, asked)
    known = sorted({name for store in stores for name, _ in store.consumer_offsets})
    unread = next(filter(None, map(offsets_elsewhere, stores)), None)
    if group in known:
        if unread is not None:
            log.warning(
                "%s: %s: not read; consumerOffset.json is, and may be older", one_line(unread.path), unread.what
            )
        return
    if unread is not None:
        raise OptionError(
            f"{asked}: where consumer group {quoted(group)} stands is not known: {one_line(unread.path)} has "
            f"{unread.what}, which is not read; give the offsets that `mqadmin consumerProgress` shows of the group "
            'as startingOffsets, {"topic": {"0": 17}}'
        )
    raise OptionError(f"{asked}: {no_offset_of(group, known)}")


def no_offset_of(group: str, known: list[str]) -> str:
    """What an error says of a group that is none of those with an offset."""
    others = f"Groups with offsets are {some_of(known)}" if known else "No other group has one"
    return f"no store has an offset of consumer group {quoted(group)}.{nearest(group, known)} {others}"


def refuse_unread(store: Snapshot, group: str, asked: str) -> None:
    """Refuse a store with a file of consumers' offsets that cannot be understood: its group would begin anew.

    Args:
        asked: the option that names the group, for the error.

    Raises:
        OptionError: naming the file.
    """
    name = store.offsets_files.name
    why = None if name in store.sound_offsets else why_unread(store.root, name, store.files)
    if why is not None:
        raise OptionError(f"{asked}: where consumer group {quoted(group)} stands is not known: {why}")


def of_group(stores: list[Snapshot], group: str, selection: Selection) -> Iterator[tuple[Snapshot, Selection]]:
    """Each store with the part of a selection that a group has not consumed there.

    Raises:
        OptionError: no store has an offset of this group.
    """
    check_group(stores, group, "option 'startingOffsets'")
    given = selection.given
    for store in stores:
        known = store.consumer_offsets
        offsets = {topic: known[name, topic] for name, topic in known if name == group}
        if not offsets:
            log.warning("%s: consumer group %r has no offsets here, nothing is read of this store", store.root, group)
        starts = {
            (topic, queue_id): Numbers(least=offset) & given.get((topic, queue_id), Numbers())
            for topic, queues in offsets.items()
            for queue_id, offset in queues.items()
        }
        chosen, left_out = selection.from_places(starts)
        for topic in left_out:
            log.warning("the group also consumes light queue %r, which is not read; subscribe to it", one_line(topic))
        yield store, chosen
