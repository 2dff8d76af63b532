"""The selected messages of a piece of the log, found in the way that the planner chose.

Each message that an accelerator names is checked in the log. Where the log disagrees, the accelerator is not believed
for the whole piece: then the piece is read from end to end, without the messages that were given already.
"""

import logging
from collections.abc import Iterable, Iterator

import numpy as np

from native_io import Filter, Status
from rmqstore_spark.errors import StorageError
from rmqstore_spark.query.selection import Selection
from rmqstore_spark.read.pieces.kernel_filter import kernel_filter
from rmqstore_spark.read.pieces.queue_claims import ContradictedError, QueueClaims, no_message, unindexed_queues
from rmqstore_spark.read.pieces.task import Chosen, Indexed, Queued, Range
from rmqstore_spark.store.format.stretches import joined
from rmqstore_spark.store.format.units import Claims, Positions, Run
from rmqstore_spark.store.structures.commitlog import SegmentReader
from rmqstore_spark.store.structures.segments import Damage

log = logging.getLogger(__name__)

Gap = tuple[int, int]  # physical offsets [start, stop) that an accelerator does not cover


class SelectedUnits:
    """Finds the units of selected messages, piece by piece.

    Args:
        selection: the selected messages.
        verify_crc: whether the bodyCRC of a selected message must be right.

    Attributes:
        filter: chooses the selected messages.
    """

    def __init__(self, selection: Selection, verify_crc: bool) -> None:
        self._selection = selection
        self._verify_crc = verify_crc
        self.filter = kernel_filter(selection)
        self._queue_claims = QueueClaims(selection)
        self._batch_claims = QueueClaims(selection, unindexed_queues)

    def filter_of(self, piece: Range) -> Filter | None:
        """The filter, if it alone decides for a piece, which is then read from end to end; else None."""
        is_plain = not isinstance(piece, Queued | Indexed) and piece.stop <= self._selection.commit_log_offset.most
        return self.filter if is_plain else None

    def read(self, piece: Range) -> Iterator[Run | Damage]:
        """The selected units of a piece, run by run, and the damage found on the way."""
        with piece.store.reader(piece.segment, self._verify_crc) as reader:
            named: list[Positions] = []
            if isinstance(piece, Queued | Indexed):
                try:
                    for run in self._named(piece, reader):
                        named.append(run.positions.copy())
                        yield run
                    return
                except ContradictedError as why:
                    if isinstance(piece, Chosen):
                        raise StorageError(f"{why}; this store is not the one that the read was planned on") from None
                    log.warning("%s; reading %d bytes of the commitlog instead", why, piece.stop - piece.start)
            emitted = np.concatenate(named) if named else None
            for found in self._scanned(piece, piece.start, piece.stop, reader):
                yield found if emitted is None or isinstance(found, Damage) else found.without(emitted)

    def _named(self, piece: Queued | Indexed, reader: SegmentReader) -> Iterator[Run]:
        """The messages that an accelerator names, and the selected ones in the gaps that it does not cover.

        Raises:
            ContradictedError: the log has something else at a place where the accelerator names a message.
        """
        for part in self._parts(piece, reader):
            if isinstance(part, Claims):
                yield from self._picked(part, reader)
                continue
            for found in self._scanned(piece, *part, reader):
                if isinstance(found, Damage):
                    raise ContradictedError(found.place)
                yield found

    def _parts(self, piece: Queued | Indexed, reader: SegmentReader) -> list[Claims | Gap]:
        """The parts of a piece to be read, in the order of the log."""
        if isinstance(piece, Queued):
            return _with_gaps(self._queue_claims.of(piece, reader), piece.gaps)
        named = piece.positions[piece.positions < piece.live_end]
        old = (piece.live_end, piece.stop)
        if piece.batches is None:
            return [Claims(named), old]
        batches = self._batch_claims.of(piece.batches, reader)
        gaps = list(joined(sorted([*piece.batches.gaps, old])))
        return _with_gaps(batches.with_positions(named), gaps)

    def _picked(self, claims: Claims, reader: SegmentReader) -> Iterator[Run]:
        """The selected units among the claimed ones."""
        first = 0
        while first < len(claims):
            run, walked = reader.pick(claims, first, self.filter)
            first = walked.at
            if run is not None:
                yield run
            if walked.status is not Status.LIMIT:
                raise no_message(reader, int(claims.positions[first]))

    def _scanned(self, piece: Range, start: int, stop: int, reader: SegmentReader) -> Iterator[Run | Damage]:
        """The selected units among all that begin in [start, stop)."""
        last = self._selection.commit_log_offset.most
        return piece.store.past_damage(reader).select(start, stop, self.filter, last)


def _with_gaps(claims: Claims, gaps: Iterable[Gap]) -> list[Claims | Gap]:
    """The claims outside of some gaps, and the gaps, in the order of the log."""
    parts: list[Claims | Gap] = []
    first = 0
    for gap in gaps:
        before, after = np.searchsorted(claims.positions, gap).tolist()
        parts += [claims.part(first, before), gap]
        first = after
    return [*parts, claims.part(first, len(claims))]
