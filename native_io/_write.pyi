"""Writing: rows to staged units, staged units to a log's, and what a broker derives from a log. For words see
_common.pyi."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from native_io._common import ArrowArrayExporter, Buffer, Walked, Wrapping

ENCODE_COLUMNS: tuple[str, ...]

class EncodeError(ValueError):
    """A row that no unit can be made of.

    Attributes:
        row: its number in the batch.
        column: out of ENCODE_COLUMNS.
        reason: what was expected and what was found, in one line.
    """

    row: int
    column: str
    reason: str
    def __init__(self, row: int, column: str, reason: str) -> None: ...

class Encoder:
    """Makes staged units of rows, as MessageExtEncoder does.

    Args:
        allow_v2: whether a topic may have up to 255 bytes. One of more than 127 takes a unit of version 2, at which
            brokers before 5.1.0 cut the log off.
    """

    def __init__(self, *, allow_v2: bool) -> None: ...
    def encode(self, batch: ArrowArrayExporter) -> tuple[memoryview, npt.NDArray[np.int32]]:
        """Encode all rows, or none.

        Args:
            batch: the columns ENCODE_COLUMNS in this order: topic, tags, keys, msgId utf8; queueId, flag, sysFlag,
                reconsumeTimes int32; properties map<utf8, utf8>; body binary; bornTimestamp, storeTimestamp int64 in
                milliseconds; bornHost, storeHost binary, the 4 or 16 bytes of an address and the port as a big-endian
                int32; preparedTransactionOffset int64. Only tags, keys, msgId, properties, storeTimestamp may be null.

        Returns:
            (units, sizes): the units back to back, and the size of each. physicalOffset, queueOffset and a
            storeTimestamp that is null are 0 in them (Dispatcher.place sets them); bodyCRC and the host bits of sysFlag
            are derived. The properties are those of
            the map, in its order, with TAGS, KEYS and UNIQ_KEY from their columns where these are not null. What has no
            value is left out, and so is `__CRC32#`, which is a broker's own. The memory of `units` is used again
            once no view of it is left.

        Raises:
            EncodeError: the first row that breaks a rule of RocketMQ.
            TypeError: the batch has other columns or types.
            ValueError: its arrays are not sound.
        """

class Dispatched(NamedTuple):
    """What follows from some units of a log. Queues are numbers: indices into Dispatcher.queues.

    Attributes:
        units: the ConsumeQueue units, 20 bytes each, of all messages that are in a queue: grouped by queue, within one
            in log order.
        run_queue, run_offset, run_count: the runs in `units`: `run_count` units of one queue whose queue offsets go
            from `run_offset` on without a gap.
        key_hash, key_position, key_timestamp: the index entries (key hash, physical offset, store time in ms), in the
            order in which a broker puts them.
        last_position: physical offset of the last unit; 0 when there was none.
        last_timestamp: store time of the last unit in ms; 0 when there was none.
        least_timestamp, most_timestamp: of all units in ms; where there was none, the most is below the least.
        fall: how much older than some unit before it a unit is at the most, in ms; 0 where store times do not go back.
        inner_batches: units that hold several messages (sysFlag 0x80). They belong into a BatchConsumeQueue; here they
            count as one message each.
        nbytes: of all these units of the log, also of those that are in no queue.
    """

    units: npt.NDArray[np.uint8]
    run_queue: npt.NDArray[np.int32]
    run_offset: npt.NDArray[np.int64]
    run_count: npt.NDArray[np.int64]
    key_hash: npt.NDArray[np.int32]
    key_position: npt.NDArray[np.int64]
    key_timestamp: npt.NDArray[np.int64]
    last_position: int
    last_timestamp: int
    least_timestamp: int
    most_timestamp: int
    fall: int
    inner_batches: int
    nbytes: int

    def runs(self) -> Iterator[tuple[int, int, memoryview]]:
        """(queue, first queue offset, ConsumeQueue units) of each run."""

class Dispatcher:
    """Gives units their positions, and derives what a broker's dispatchers do: ConsumeQueue units and index entries.

    It learns queues as it meets them. Delay levels are those of a broker's default messageDelayLevel. While one thread
    uses it, and for ever after it ran out of memory, it answers others with RuntimeError.

    Args:
        index_tags: whether a message's tags are an index key too (`topic#T#tags`), as for brokers of 5.5.0.
    """

    def __init__(self, *, index_tags: bool = False) -> None: ...
    @property
    def queues(self) -> list[tuple[str, int]]:
        """(topic, queueId) of each queue by its number."""
    def set_next(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Where an existing queue goes on, for place(). Others begin at 0.

        Raises:
            ValueError: the offset is negative, or no ConsumeQueue can reach so far.
        """
    def place(
        self, window: Buffer, *, position: int, segment_end: int, store_timestamp: int, keep: bool = False
    ) -> Walked:
        """Give the staged units in a window their positions, in the order in which they lie there, back to back.

        Their physicalOffset is written from `position` on, their queueOffset as the queue's next one (0 for transaction
        types PREPARED and ROLLBACK, which use up none), their storeTimestamp where it is 0; and what follows from them
        is collected.

        Args:
            window: writable.
            segment_end: the end of the segment in which `position` is. A unit must fit before it, with the blank that
                comes after it.
            store_timestamp: in ms, for the units that have none.
            keep: the units are of a log: each keeps its queueOffset, and its checksum of all bytes (`__CRC32#`) is made
                anew.

        Returns:
            Walked: `units` were placed, the next one's position is `at`. Status LIMIT: those were all; FULL: the next
            one does not fit into the segment (into none, should `position` be a segment's start); MORE: a unit goes on
            after the window; anything else: there is no unit.

        Raises:
            ValueError: the position is negative, or after the segment's end.
        """
    def dispatch(
        self,
        window: Buffer,
        *,
        base: int,
        position: int,
        stop: int,
        segment_end: int,
        verify_crc: bool,
        most: int,
        wrapping: Wrapping | None = None,
    ) -> Walked:
        """Collect what follows from the units of a log as it stands. Arguments and answer as of Decoder.scan."""
    def finish(self) -> Dispatched:
        """All that was collected since the last time."""

def put_index(
    file: Buffer,
    *,
    slots: int,
    items: int,
    key_hash: npt.NDArray[np.int32],
    key_position: npt.NDArray[np.int64],
    key_timestamp: npt.NDArray[np.int64],
    start: int = 0,
    previous_end: tuple[int, int] = (0, 0),
) -> int:
    """Put index entries into an index file, from number `start` on until it is full, as IndexFile.putKey does.

    Args:
        file: the whole index file, writable, such as its mmap: 40 + 4 * slots + 20 * items bytes. An empty one is all
            zeros.
        slots: maxHashSlotNum.
        items: maxIndexNum. A file holds one item fewer.
        previous_end: endTimestamp and endPhyOffset of the file before it; they count only while this one is empty.

    Returns:
        The number of the first entry that is not in it.

    Raises:
        ValueError: the file has another size, the entries differ in number, or a key hash is negative (what comes
            before that entry is in the file).
    """
