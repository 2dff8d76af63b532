"""Writing: rows to staged units, staged units to units of a log, and the data that a broker derives from a log. See
_common.pyi for the terms."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from native_io._common import ArrowArrayExporter, Buffer, Walked, Wrapping

ENCODE_COLUMNS: tuple[str, ...]

class EncodeError(ValueError):
    """A row that no unit can be made of.

    Attributes:
        row: the row's index in the batch.
        column: a name out of ENCODE_COLUMNS.
        reason: what was expected and what was found, in one line.
    """

    row: int
    column: str
    reason: str
    def __init__(self, row: int, column: str, reason: str) -> None: ...

class Encoder:
    """Makes staged units of rows, as MessageExtEncoder does.

    Args:
        allow_v2: whether a topic may have up to 255 bytes. A topic of more than 127 bytes needs a unit of version 2, at
            which brokers before 5.1.0 cut the log off.
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
            (units, sizes): the units back to back, and the size of each in bytes. physicalOffset, queueOffset and a
            null storeTimestamp are 0 in them (Dispatcher.place sets them); bodyCRC and the host bits of sysFlag are
            derived. The properties are those of the map, in its order, with TAGS, KEYS and UNIQ_KEY from their columns
            where these are not null. Properties without a value are left out, and so is `__CRC32#`, which is a broker's
            own. The memory of `units` is used again once no view of it is left.

        Raises:
            EncodeError: the first row that breaks a rule of RocketMQ.
            TypeError: the batch has other columns or types.
            ValueError: the batch's arrays are not sound.
        """

class Dispatched(NamedTuple):
    """The data derived from some units of a log. Queues are numbers: indices into Dispatcher.queues.

    Attributes:
        units: the ConsumeQueue units of all messages that belong in a queue, 20 bytes each, 46 in a BatchCQ: grouped by
            queue, within a queue in log order.
        run_queue, run_offset, run_count: the runs in `units`: `run_count` units of one queue whose queue offsets go
            from `run_offset` on, without a gap except in a BatchCQ.
        key_hash, key_position, key_timestamp: the index entries (key hash, physical offset, store time in ms), in the
            order in which a broker puts them.
        last_position: physical offset of the last unit; 0 when there was none.
        last_timestamp: store time of the last unit in ms; 0 when there was none.
        least_timestamp, most_timestamp: the bounds of all store times in ms; without units, the most is below the
            least.
        fall: the most by which a unit is older than one before it, in ms; 0 where store times do not go back.
        inner_batches: units that hold several messages (sysFlag 0x80), but whose topic has no BatchCQ. Here each counts
            as one message.
        nbytes: bytes of all these units of the log, also of units that are in no queue.
        run_size: bytes of a unit in each run.
        odd_bodies: physical offsets of units whose body does not begin as the compression that sysFlag names does.
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
    run_size: npt.NDArray[np.int64]
    odd_bodies: npt.NDArray[np.int64]

    def runs(self) -> Iterator[tuple[int, int, memoryview]]:
        """(queue, first queue offset, ConsumeQueue units) of each run."""

class Dispatcher:
    """Gives units their positions, and derives from them what a broker's dispatchers derive: ConsumeQueue units and
    index entries.

    Queues are numbered when first met. Delay levels are those of a broker's default messageDelayLevel. Calls raise
    RuntimeError while another thread uses the dispatcher, and always after it ran out of memory.

    Args:
        index_tags: whether a message's tags are an index key too (`topic#T#tags`), as for brokers of 5.5.0.
        light_queues: whether a message's light queues (LMQ) get units, too, at the offsets that its properties have.
        batch_topics: the topics whose queues are BatchCQs. A unit there whose properties give no possible first queue
            offset and number of messages, which a broker would not put there, has 0 messages.
    """

    def __init__(
        self, *, index_tags: bool = False, light_queues: bool = False, batch_topics: Collection[str] = ()
    ) -> None: ...
    @property
    def queues(self) -> list[tuple[str, int]]:
        """(topic, queueId) of each queue by its number."""
    def set_next(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Set the queue offset at which an existing queue goes on, for place(). Other queues begin at 0.

        Raises:
            ValueError: the offset is negative, or no ConsumeQueue can reach so far.
        """
    def place(
        self, window: Buffer, *, position: int, segment_end: int, store_timestamp: int, keep: bool = False
    ) -> Walked:
        """Give the staged units in a window their positions, in the order in which they lie there, back to back.

        Each unit's physicalOffset is written, from `position` on, its queueOffset as the queue's next one (0 for
        transaction types PREPARED and ROLLBACK, which use up none), and its storeTimestamp where that is 0. The data
        derived from the units is collected.

        Args:
            window: writable.
            segment_end: the end of the segment in which `position` is. A unit must fit before this end, together with
                the blank that follows.
            store_timestamp: the store time (ms) for units that have none.
            keep: whether the units are of a log: each keeps its queueOffset, and its checksum of all bytes (`__CRC32#`)
                is recomputed.

        Returns:
            Walked: `units` were placed, the next unit's position is `at`. Status LIMIT: all units were placed; FULL:
                the next unit does not fit into the segment (into no segment, if `position` is a segment's start); MORE:
                a unit goes on after the window; any other status: there is no unit.

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
        """Collect the data derived from the units of an existing log. Arguments and result as in Decoder.scan."""
    def finish(self) -> Dispatched:
        """All data collected since the last finish()."""

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
        previous_end: endTimestamp and endPhyOffset of the previous file; they count only while this file is empty.

    Returns:
        The number of the first entry that is not in the file.

    Raises:
        ValueError: the file has another size, the entries differ in number, or a key hash is negative (the entries
            before that one are in the file).
    """
