"""From a piece of the log to decoded units, and to the damage that no replica makes good for."""

from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from native_io import Filter
from rmqstore_spark.query.selection import Selection
from rmqstore_spark.read.pieces.task import Chosen, Indexed, Queued, Range, Scanned
from rmqstore_spark.read.run.damage_reports import say_mended
from rmqstore_spark.read.run.find import SelectedUnits
from rmqstore_spark.store.format.units import BatchBuilder, Positions, Run
from rmqstore_spark.store.structures.commitlog import SegmentReader
from rmqstore_spark.store.structures.segments import Damage

_NONE: Positions = np.empty(0, np.int64)


class Step(NamedTuple):
    """The last step of a source.

    Attributes:
        piece: the piece whose units went to the builder; all units in the builder are of one segment.
        replicas: the replicas that may still have messages that turn out to be missing in the piece.
        is_last: no more units of this piece follow, so the builder must be emptied.
        lost: damage that no replica makes good for. No units came with it.
    """

    piece: Range
    replicas: Sequence[Range]
    is_last: bool = False
    lost: Damage | None = None


class UnitSource:
    """Decodes the selected units of pieces of the log. Where a piece is damaged, its replicas are read.

    Args:
        selection: the selected messages.
        verify_crc: whether a unit's bodyCRC must be right.
        builder: takes the units. Must be emptied after a step that fills it, or that is the last of a piece.
    """

    def __init__(self, selection: Selection, verify_crc: bool, builder: BatchBuilder) -> None:
        self._verify_crc = verify_crc
        self._builder = builder
        self._selects = not selection.is_everything
        self._selected = SelectedUnits(selection, verify_crc)

    def read(self, piece: Range) -> Iterator[Step]:
        """Read all of a piece."""
        return self._read(piece, piece.spares, _NONE)

    def read_to_damage(self, piece: Range, reader: SegmentReader) -> Generator[Step, None, Damage | None]:
        """Read the messages of a piece up to the first damage, which is returned; None where nothing is damaged.

        Args:
            reader: reads the piece's segment.
        """
        for damage in piece.store.past_damage(reader).decode(piece.start, piece.stop, self._builder):
            if damage is not None:
                yield Step(piece, piece.spares, is_last=True)
                return damage
            yield Step(piece, piece.spares)
        yield Step(piece, piece.spares, is_last=True)
        return None

    def replaced(
        self, piece: Range, damage: Damage, replicas: Sequence[Range], emitted: Positions = _NONE
    ) -> Iterator[Step]:
        """Read replicas in place of something damaged.

        Args:
            emitted: the physical offsets of messages that were already given by an accelerator: they do not come again.
        """
        replica = replica_at(damage.start, replicas)
        if replica is None:
            yield Step(piece, replicas, lost=damage)
            return
        others = [other for other in replicas if other is not replica]
        say_mended(damage.place, replica.segment.path)
        stop = min(damage.stop, replica.stop)
        yield from self._read(Scanned(replica.segment, damage.start, stop, replica.store), others, emitted)
        if stop < damage.stop and not _is_closed(replica, stop, damage.stop):
            yield from self.replaced(piece, damage.after(stop), others, emitted)

    def _read(self, piece: Range, replicas: Sequence[Range], emitted: Positions) -> Iterator[Step]:
        named = [emitted]
        for found in self._found(piece, emitted):
            if isinstance(found, Damage):
                yield Step(piece, replicas, is_last=True)
                yield from self.replaced(piece, found, replicas, np.concatenate(named))
            elif found is None:
                yield Step(piece, replicas)
            else:
                if isinstance(piece, Queued | Indexed):
                    named.append(found.positions.copy())
                for _ in self._add(found):
                    yield Step(piece, replicas)
        yield Step(piece, replicas, is_last=True)

    def _found(self, piece: Range, emitted: Positions) -> Iterator[Run | Damage | None]:
        """The selected units of a piece, without those that came already; None where the units went to the builder."""
        if not self._selects and not isinstance(piece, Chosen):
            return self._decoded(piece, None)
        chosen = self._selected.filter_of(piece)
        if chosen is not None and not len(emitted):
            return self._decoded(piece, chosen)
        found = self._selected.read(piece)
        if isinstance(piece, Queued | Indexed) or not len(emitted):
            return found
        return (run if isinstance(run, Damage) else run.without(emitted) for run in found)

    def _decoded(self, piece: Range, chosen: Filter | None) -> Iterator[Damage | None]:
        with piece.store.reader(piece.segment, self._verify_crc) as reader:
            yield from piece.store.past_damage(reader).decode(piece.start, piece.stop, self._builder, chosen)

    def _add(self, found: Run) -> Iterator[None]:
        """Decode units, at most as many at a time as the builder takes."""
        while len(found.positions):
            done = found.add_to(self._builder, self._selected.filter)
            found = found.only(slice(done, None))
            yield None


def _is_closed(replica: Range, start: int, stop: int) -> bool:
    """Does a closing blank of the replica stand in [start, stop)? The log of a copy that has lost its later segments
    ends before it."""
    if stop < replica.segment.end:
        return False
    with replica.store.reader(replica.segment) as reader:
        return reader.is_closed_at(start)


def replica_at(position: int, replicas: Sequence[Range]) -> Range | None:
    """The first of some replicas that covers a physical offset."""
    return next((replica for replica in replicas if replica.start <= position < replica.stop), None)
