"""A few columns of the selected messages of a piece of a log, for a plan that has to know all of them."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from rmqstore_spark.query.selection import Selection
from rmqstore_spark.read.pieces.task import Range
from rmqstore_spark.read.run.unit_source import UnitSource
from rmqstore_spark.store.format.units import BatchBuilder, Budget
from rmqstore_spark.store.structures.segments import Damage

_BUDGET = Budget(16 * 1024, 16 * 1024 * 1024)


def messages_in(
    piece: Range, selection: Selection, columns: Sequence[str], verify_crc: bool, explodes: bool = False
) -> Iterator[pa.RecordBatch | Damage]:
    """The selected messages of a piece, and its damage.

    Args:
        columns: columns that a unit gives; commitLogOffset is the offset in the piece's log.
        verify_crc: whether a unit's bodyCRC must be right.
        explodes: whether each message of a batch gets a row.
    """
    builder = BatchBuilder(list(columns), _BUDGET, explodes=explodes)
    for step in UnitSource(selection, verify_crc, builder).read(piece):
        if step.lost is not None:
            yield step.lost
        elif (step.is_last or builder.is_full) and builder.decoder.rows:
            yield builder.finish()
