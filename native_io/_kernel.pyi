"""What the kernel offers.

A *window* is any contiguous bytes-like object that holds the bytes of a segment from physical offset `base` on.
Positions, stops and ends are physical offsets (int64), never indices into the window.
"""

import enum
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer as _Buffer

# NumPy's own types have the buffer protocol from Python 3.12 on only.
Buffer = _Buffer | npt.NDArray[Any]

FORMAT: dict[str, int]
COLUMNS: tuple[str, ...]
ENCODE_COLUMNS: tuple[str, ...]

class Status(enum.IntEnum):
    """Why a scan stopped. See unit.h for what each check compares."""

    OK = ...  # a whole unit (find_unit only)
    LIMIT = ...  # exactly at the stop
    FULL = ...  # `positions` is full
    MORE = ...  # the window ends too early: `expected` bytes from the position on are needed
    BLANK = ...  # the blank that ends a segment
    NO_BLANK = ...  # the segment ends without one
    BAD_MAGIC = ...
    BAD_BLANK = ...
    BAD_TOTAL_SIZE = ...
    BAD_PHYSICAL_OFFSET = ...
    BAD_BODY_LENGTH = ...
    BAD_TOPIC_LENGTH = ...
    BAD_PROPERTIES_LENGTH = ...
    BAD_LENGTH_SUM = ...
    BAD_BODY_CRC = ...
    CROSSES_STOP = ...  # a unit reaches over the stop, so the stop is not a unit's start
    CONTRADICTED = ...  # a unit, but not the one that was claimed to be there (Filter.pick only)

def scan(
    window: Buffer,
    *,
    base: int,
    position: int,
    stop: int,
    segment_end: int,
    verify_crc: bool,
    positions: npt.NDArray[np.int64],
) -> tuple[int, int, Status, int, int]:
    """Walk the chain of units from `position` to `stop`, checking each one (CommitLog.checkMessageAndReturnSize, and
    physicalOffset against the position).

    Args:
        positions: where to put the starts; its length is the most units to return.

    Returns:
        (count, position, status, expected, found): positions[:count] are the starts of the units; `position` is the
        first byte not passed, and `status` with `expected` and `found` says why.

    Raises:
        ValueError: offsets are negative or beyond 2**63, or `position` lies before `base`.
    """

def find_unit(
    window: Buffer, *, base: int, position: int, stop: int, segment_end: int, verify_crc: bool
) -> tuple[int, Status, int]:
    """Search for the first whole unit that starts in [position, stop).

    Returns:
        (position, status, needed): status OK: there it is; LIMIT: there is none; MORE: go on from `position` with a
        window of at least `needed` bytes.

    Raises:
        ValueError: as scan().
    """

def crc32(data: Buffer, *, portable: bool = False) -> int:
    """zlib.crc32 as the kernel computes it; `portable` takes the way without carry-less multiplication."""

class Filter:
    """Tells wanted units by their fixed fields and their topic, before anything is decoded. For one thread at a time.

    Args:
        store_timestamp: (least, most) in milliseconds, both included.
        commit_log_offset: (least, most) physical offset, both included.
        judge: called once for each topic (bytes) and queueId that is met: the (least, most) queueOffset wanted of that
            queue, or None when nothing is. None instead of a function: all queues are wanted.
    """

    def __init__(
        self,
        *,
        store_timestamp: tuple[int, int],
        commit_log_offset: tuple[int, int],
        judge: Callable[[bytes, int], tuple[int, int] | None] | None,
    ) -> None: ...
    def scan(
        self,
        window: Buffer,
        *,
        base: int,
        position: int,
        stop: int,
        segment_end: int,
        verify_crc: bool,
        positions: npt.NDArray[np.int64],
    ) -> tuple[int, int, Status, int, int]:
        """As the function scan, but only wanted units are listed, and only their CRC is checked."""
    def pick(
        self,
        window: Buffer,
        *,
        segment_end: int,
        verify_crc: bool,
        positions: npt.NDArray[np.int64],
        places: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int32] | None,
        queue_offsets: npt.NDArray[np.int64] | None,
        wanted: npt.NDArray[np.int64],
    ) -> tuple[int, int, Status, int, int]:
        """Which of the units that are claimed to be at some physical offsets are wanted. They are checked as by scan.

        Args:
            window: their bytes, as gather() reads them: `lengths[i]` from `places[i]` on.
            positions: the physical offsets.
            sizes, queue_offsets: what is claimed of these units, by queues that are wanted.
            wanted: where to put the indices of wanted ones; at least as long as `positions`.

        Returns:
            (count, taken, status, expected, found): positions[:taken] were looked at; wanted[:count] are the indices of
            those that are wanted. Status LIMIT: that is all; MORE: unit `taken` has `expected` bytes, which are not
            all there; CONTRADICTED: another unit is there; else: none is.
        """

def gather(
    fd: int,
    offsets: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int32],
    buffer: Buffer,
    places: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    *,
    slack: int,
) -> tuple[int, int, int]:
    """Read from many places of a file into one buffer.

    Args:
        offsets: where, growing.
        sizes: how many bytes from each.
        buffer: what is read goes here, as much as there is room for.
        places, lengths: filled: where in the buffer each offset's bytes begin, and how many are there (fewer than asked
            for where the file ends, more where neighbours were read with them).
        slack: offsets no further apart than so many bytes are read in one request.

    Returns:
        (count, bytes, requests): offsets[:count] were read.

    Raises:
        OSError: the system's.
    """

class Decoder:
    """Decodes units into Arrow columns, batch after batch; a column that is not asked for costs nothing.

    While one thread uses it, and for ever after append() or finish() failed, it answers others with RuntimeError.

    Args:
        columns: names out of COLUMNS, each once, in the order the batch shall have.
    """

    columns: tuple[str, ...]
    def __init__(self, columns: Sequence[str]) -> None: ...
    @property
    def rows(self) -> int:
        """Rows since the last finish()."""
    @property
    def nbytes(self) -> int:
        """Bytes of Arrow data since the last finish()."""
    @property
    def compressed(self) -> int:
        """Rows whose sysFlag says that the body is compressed, counted when `body` is wanted. Bodies come as stored."""
    @property
    def non_ascii(self) -> bool:
        """True when text may hold bytes that are not UTF-8 (something in it is not ASCII)."""
    def append(
        self,
        window: Buffer,
        positions: npt.NDArray[np.int64],
        *,
        base: int,
        places: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """Decode the units at `positions`. Bounds are checked again; the CRC is not.

        Args:
            places: where they begin in the window, when that is not their distance from `base`.

        Raises:
            ValueError: there is no unit at one of the positions.
            OverflowError: a column of one batch would pass 2 GiB.
        """
    def scan(
        self,
        window: Buffer,
        *,
        base: int,
        position: int,
        stop: int,
        segment_end: int,
        verify_crc: bool,
        most: int,
    ) -> tuple[int, int, Status, int, int]:
        """The function scan and append in one, and faster than the two: walk from `position`, decode what is found.

        Args:
            most: the most units to decode.

        Returns:
            (count, position, status, expected, found), as of the function scan; the units are decoded, not listed.

        Raises:
            OverflowError: a column of one batch would pass 2 GiB.
        """
    def finish(self) -> Any:
        """All rows so far as a PyCapsule "arrow_array" (Arrow C data interface): a struct array with these columns:
        int32, int64, timestamp[us] (times that do not fit are null), utf8 / binary, map<utf8, utf8>."""

class ArrowArrayExporter(Protocol):
    """What can hand over an array by Arrow's C data interface: a pyarrow RecordBatch or StructArray."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

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
    """Makes units of rows, as MessageExtEncoder does.

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
                int32; preparedTransactionOffset int64. Only tags, keys, msgId and properties may be null.

        Returns:
            (units, sizes): the units back to back, and the size of each. physicalOffset and queueOffset are 0 in them
            (Dispatcher.place sets them); bodyCRC and the host bits of sysFlag are derived. The properties are those of
            the map, in its order, with TAGS, KEYS and UNIQ_KEY from their columns where these are not null. What has no
            value is left out, and so is `__CRC32#`, which is a broker's own. The memory behind `units` is used again
            once no view of it is left.

        Raises:
            EncodeError: the first row that breaks a rule of RocketMQ.
            TypeError: the batch has other columns or types.
            ValueError: its arrays are not sound.
        """

class Dispatched(NamedTuple):
    """What follows from some units of a log. Queues are numbers: places in Dispatcher.queues.

    Attributes:
        queue, queue_offset, position, size, tags_code: of each message that is in a queue, in log order.
        key_hash, key_position, key_timestamp: the index entries (key hash, physical offset, store time in ms), in the
            order in which a broker puts them.
        units: the ConsumeQueue units of all these messages, 20 bytes each, grouped by queue; within one in log order.
        run_queue, run_offset, run_count: the runs in `units`: `run_count` units of one queue whose queue offsets go
            from `run_offset` on without a gap.
        last_timestamp: store time of the last unit in ms; 0 when there was none.
        inner_batches: units that hold several messages (sysFlag 0x80). They belong into a BatchConsumeQueue; here they
            count as one message each.
    """

    queue: npt.NDArray[np.int32]
    queue_offset: npt.NDArray[np.int64]
    position: npt.NDArray[np.int64]
    size: npt.NDArray[np.int32]
    tags_code: npt.NDArray[np.int64]
    key_hash: npt.NDArray[np.int32]
    key_position: npt.NDArray[np.int64]
    key_timestamp: npt.NDArray[np.int64]
    units: npt.NDArray[np.uint8]
    run_queue: npt.NDArray[np.int32]
    run_offset: npt.NDArray[np.int64]
    run_count: npt.NDArray[np.int64]
    last_timestamp: int
    inner_batches: int

    def runs(self) -> Iterator[tuple[int, int, memoryview]]:
        """(queue, first queue offset, ConsumeQueue units) of each run."""

class Dispatcher:
    """Gives units their places, and derives what a broker's dispatchers do: ConsumeQueue units and index entries.

    It learns queues as it meets them. Delay levels are those of a broker's default messageDelayLevel. While one thread
    uses it, and for ever after it ran out of memory, it answers others with RuntimeError.

    Args:
        index_tags: whether a message's tags are an index key too (`topic#T#tags`), as for brokers of 5.5.0.
    """

    def __init__(self, *, index_tags: bool = False) -> None: ...
    @property
    def queues(self) -> list[tuple[str, int]]:
        """(topic, queueId) of each queue by its number."""
    @property
    def next_offsets(self) -> npt.NDArray[np.int64]:
        """The queueOffset of each queue's next message."""
    def set_next(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Where an existing queue goes on. Others begin at 0.

        Raises:
            ValueError: the offset is negative, or no ConsumeQueue can reach so far.
        """
    def place(
        self,
        window: Buffer,
        *,
        at: int,
        size: int,
        position: int,
        segment_end: int,
        verify_crc: bool = True,
    ) -> tuple[int, int, Status, int, int]:
        """Give the staged units in window[at:size] their places, in the order in which they lie there.

        Their physicalOffset is written from `position` on, their queueOffset as the queue's next one (0 for transaction
        types PREPARED and ROLLBACK, which use up none), and what follows from them is collected.

        Args:
            window: writable.
            segment_end: the end of the segment in which `position` is. A unit needs room for itself and for the blank
                behind it.

        Returns:
            (count, at, status, expected, found): `count` units were placed, the next one lies at `at`. status LIMIT:
            that is the end; FULL: it does not fit into the segment (into none, should `position` be a segment's start);
            MORE: it goes on behind the window; anything else: it is no unit.

        Raises:
            ValueError: the arguments contradict each other.
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
    ) -> tuple[int, int, Status, int, int]:
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

def java_hash(text: str) -> int:
    """java.lang.String.hashCode: a signed 32-bit number."""

def java_hashes(texts: ArrowArrayExporter) -> npt.NDArray[np.int32]:
    """java_hash of each text of an Arrow array of utf8, and 0 of a null. Bytes that are not UTF-8 count as Java decodes
    them.

    Raises:
        TypeError: the array is of another type.
        ValueError: it is not sound.
    """
