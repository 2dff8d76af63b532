"""A log whose end is lost just ends earlier. Where the checkpoint knows of later messages, a read logs a warning.

Where the log has no message at all, its queues may know of some.

The warning is no error in any mode: in a copy that was made while a broker ran, the checkpoint may be newer than the
log. So a store without a clean shutdown must lack more than such a copy would before a read warns.
"""

import itertools
import logging

from rmqstore_spark.errors import one_line
from rmqstore_spark.store.format.clock import CLOCK_SLACK
from rmqstore_spark.store.snapshot import Snapshot

log = logging.getLogger(__name__)

_QUEUES_TO_ASK = 64
_CHECKPOINT = "`checkpoint` says"


def say_if_lost(store: Snapshot) -> None:
    """Warn where a store's log ends before the last message that its broker has flushed, or where some of its last
    messages may be taken back."""
    if store.uncommitted is not None:
        log.warning(
            "%s: %s: other nodes may have the log take them back; they are read, as a broker that starts on this store "
            "keeps them; committed=true leaves them out",
            one_line(store.root),
            store.uncommitted,
        )
    if store.lacks_marks:
        log.warning(
            "%s: expected committedIndex in the node's `checkpoint`, found none: committed=true leaves nothing out",
            one_line(store.root),
        )
    lacking = store.lacks_committed
    found = _later_than_the_end(store)
    if (lacking is None and found is None) or store.files.is_locked(store.layout.lock):
        return
    if lacking is not None:
        log.warning(
            "%s: expected entries up to index %d, which the node had noted as committed, found index %d last: the last "
            "messages are lost, or this copy has an older log; read all nodes together (deduplicate=true)",
            one_line(store.root),
            lacking.marks.committed,
            lacking.last,
        )
    if found is not None:
        log.warning(
            "%s: expected the log to go on after %d, as %s, found its end there%s: the last messages are lost, or this "
            "copy has an older log; table 'check' says what else knows of them",
            one_line(store.root),
            store.end,
            *found,
        )


def _later_than_the_end(store: Snapshot) -> tuple[str, str] | None:
    """What knows of messages after the log's end, and what it says of them; None if nothing."""
    said = store.checkpoint
    last, slack = store.last_message, CLOCK_SLACK if store.layout.abort else 0
    newest = None if last is None or last.store_timestamp is None else last.store_timestamp // 1000
    flushed, confirmed = said.get("physicMsgTimestamp", 0), said.get("confirmPhyOffset", 0)
    if not store.layout.abort and confirmed > store.end:
        return _CHECKPOINT, f" (confirmPhyOffset {confirmed})"
    if newest is not None and flushed > newest + slack and not store.written.has_any:
        return _CHECKPOINT, f" (physicMsgTimestamp {flushed}, and the last message has {newest})"
    if last is None and _is_empty(store) and (ahead := _queue_ahead(store)) is not None:
        return f"{ahead} knows", ", and no message before it"
    return None


def _is_empty(store: Snapshot) -> bool:
    return all(extent.stop <= extent.start for extent in store.log.extents)


def _queue_ahead(store: Snapshot) -> str | None:
    """The directory of a queue whose last message is behind the log's end; None where none of a few has one."""
    queues = store.stored_queues
    of_topics = (queue for topic in store.topics for queue in queues.all_of_topic(topic))
    for queue in itertools.islice(itertools.chain(queues.some(), of_topics), _QUEUES_TO_ASK):
        last = queue.last()
        if last is not None and last.position >= store.end:
            return one_line(queue.directory)
    return None
