"""Plans are pinned: each piece that goes to a task carries proofs of its store at planning
(store/structures/proofs.py).

The proofs are the end of the log, and the beginning of the piece, or the first message that an index names in it. A
task compares them with the log whenever it opens the segment (window.py). In object storage each segment has its tag
instead. Where ConsumeQueues are believed without a proof, the last units of some of them are pinned as well, and a task
compares these before its first row, as it need not read the log at all.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rmqstore_spark.query.selection import Selection
from rmqstore_spark.read.pieces.queue_claims import asked_queues
from rmqstore_spark.read.pieces.task import Covered, Indexed, Queued, Range, Task
from rmqstore_spark.store.io.files import ignore_unreadable
from rmqstore_spark.store.snapshot import Snapshot, StoreRef, as_snapshot
from rmqstore_spark.store.structures.consumequeue import Queue
from rmqstore_spark.store.structures.proofs import Proof, hold
from rmqstore_spark.store.structures.segments import Segment

_MOST_QUEUES = 8  # of the trusted queues


def pinned(tasks: list[Task], selection: Selection) -> list[Task]:
    """The tasks with proofs of the store in each piece.

    Args:
        selection: the selected messages, which determine the queues that are asked.
    """
    asked: dict[StoreRef, list[Proof | None]] = {}

    def pin(piece: Range) -> Range:
        if _trusts_queues(piece) and piece.store not in asked:
            asked[piece.store] = list(queue_proofs(piece.store, asked_queues(piece.store, selection)))
        proofs = _known(*_of_log(piece), *(asked[piece.store] if _trusts_queues(piece) else ()))
        spares = tuple(pin(spare) for spare in piece.spares)
        return replace(piece, segment=replace(piece.segment, proofs=proofs), spares=spares)

    return [replace(task, ranges=tuple(map(pin, task.ranges))) for task in tasks]


def hold_trusted(piece: Range) -> None:
    """See that queues that are believed without a proof are still those of the plan.

    Raises:
        StorageError: the queues have changed.
    """
    if _trusts_queues(piece):
        hold(piece.segment.proofs, piece.store.files)


def pinned_segment(store: Snapshot, segment: Segment, start: int, stop: int) -> Segment:
    """A segment with a proof of its bytes from `start` on."""
    if segment.pin is not None:
        return segment
    return replace(segment, proofs=_known(store.proof(segment, start, stop)))


def _trusts_queues(piece: Range) -> bool:
    return isinstance(piece, Covered) or (isinstance(piece, Queued) and piece.expected is None)


def _of_log(piece: Range) -> Iterator[Proof | None]:
    store, has_tag = as_snapshot(piece.store), piece.segment.pin is not None
    if not has_tag or _trusts_queues(piece):
        yield store.seen
    if not has_tag and not isinstance(piece, Covered):
        start = int(piece.positions[0]) if isinstance(piece, Indexed) and len(piece.positions) else piece.start
        place = piece.segment.path, start - piece.segment.start
        seen = store.seen
        if seen is None or seen.place != place:  # else it is there already
            begun = None if seen is None else seen.before
            is_begun = begun is not None and begun.place == place
            yield begun if is_begun else store.proof(piece.segment, start, piece.stop)


def queue_proofs(store: StoreRef, queues: Sequence[Queue]) -> Iterable[Proof | None]:
    """The last units of some of these queues; None for a queue without units."""
    return store.files.schedule.mapped(
        lambda queue: _last_unit(store, queue), queues[:: -(-len(queues) // _MOST_QUEUES) or 1]
    )


def _last_unit(store: StoreRef, queue: Queue) -> Proof | None:
    proof = None
    with ignore_unreadable():
        proof = queue.last_proof(store.root)
    return None if proof is None else replace(proof, may_expire=False)


def _known(*proofs: Proof | None) -> tuple[Proof, ...]:
    return tuple(proof for proof in proofs if proof is not None)
