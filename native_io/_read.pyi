"""Reading: where units are, which are selected, and their fields as Arrow columns. For words see _common.pyi."""

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from native_io._common import Buffer, Walked, Wrapping

COLUMNS: tuple[str, ...]

def scan(
    window: Buffer,
    *,
    base: int,
    position: int,
    stop: int,
    segment_end: int,
    verify_crc: bool,
    positions: npt.NDArray[np.int64],
    wrapping: Wrapping | None = None,
) -> Walked:
    """Walk the chain of units from `position` to `stop`, checking each one (CommitLog.checkMessageAndReturnSize, and
    physicalOffset against the position).

    Args:
        positions: where to put the starts; its length is the most units to return.
        wrapping: what stands before each unit; None: the unit before. A walk passes it.

    Returns:
        Walked: positions[:units] are the starts of the units.

    Raises:
        ValueError: offsets are negative or beyond 2**63, or `position` lies before `base`.
    """

def find_unit(window: Buffer, *, base: int, position: int, stop: int, segment_end: int, verify_crc: bool) -> Walked:
    """Search for the first whole unit that starts in [position, stop).

    Returns:
        Walked: status OK: a unit is `at` there; LIMIT: there is none; MORE: to be gone on with `at` there, with a
        window of at least `expected` bytes.

    Raises:
        ValueError: as scan().
    """

class Filter:
    """Selects units, before anything is decoded: all of them, where nothing is said. For one thread at a time.

    Args:
        store_timestamp: (least, most) in milliseconds, both included.
        commit_log_offset: (least, most) physical offset, both included.
        judge: called once for each topic (bytes) and queueId that is met: the (least, most) queueOffset selected of
            that queue, or None when nothing is. None instead of a function: all queues are selected.
        conditions: all of them must hold. Each lists values by column, and holds where one of these columns has one of
            its values; a null is none. The columns are queueOffset, commitLogOffset and storeTimestamp (ints, times in
            milliseconds), and tags, keys, msgId and offsetMsgId (texts); `word` stands for each of the words of keys,
            which spaces separate. They are tested in this order: those of tags, keys and msgId cost most.

    Raises:
        ValueError: a condition is about no column, or about one that is not named here.
    """

    def __init__(
        self,
        *,
        store_timestamp: tuple[int, int] = ...,
        commit_log_offset: tuple[int, int] = ...,
        judge: Callable[[bytes, int], tuple[int, int] | None] | None = None,
        conditions: Sequence[Mapping[str, Collection[Any]]] = (),
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
        wrapping: Wrapping | None = None,
    ) -> Walked:
        """As the function scan, but only selected units are listed, and only their CRC is checked."""
    def pick(
        self,
        window: Buffer,
        *,
        segment_end: int,
        verify_crc: bool,
        positions: npt.NDArray[np.int64],
        window_offsets: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int32] | None,
        queue_offsets: npt.NDArray[np.int64] | None,
        chosen: npt.NDArray[np.int64],
    ) -> Walked:
        """Which of the units that are claimed to be at some physical offsets are selected. They are checked as by scan.

        Args:
            window: their bytes, as gather() reads them: `lengths[i]` from `window_offsets[i]` on.
            positions: the physical offsets.
            sizes, queue_offsets: what is claimed of these units, by queues that are selected.
            chosen: where to put the indices of selected ones; at least as long as `positions`.

        Returns:
            Walked: positions[:at] were looked at; chosen[:units] are the indices of those that are selected. Status
            LIMIT: that is all; MORE: unit `at` has `expected` bytes, which are not all there; CONTRADICTED: another
            unit is there; else: none is.
        """

class UnitKind(enum.IntEnum):
    """What a unit of a ConsumeQueue stands for. To a broker that starts, all but NOTHING are units of the queue."""

    NOTHING = ...  # zeros, or noise: it is not used
    PRE_BLANK = ...  # a queue offset before the queue's first message, in that one's file
    LOST = ...  # the queue offset of a message that a salvage has not found
    MESSAGE = ...

QUEUE_COLUMNS: tuple[str, ...]  # of what queue_units() makes
QUEUE_FORMAT: dict[str, int]  # UNIT_SIZE, BATCH_UNIT_SIZE; the sizes that units of kind PRE_BLANK and LOST say

def queue_units(units: Buffer, number: int, *, unit_size: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """What units of a ConsumeQueue say, as they stand in a file; a part of one at the end is left out.

    Args:
        number: of the first one.
        unit_size: bytes of one: 20, or 46 in a BatchCQ.

    Returns:
        an array of QUEUE_COLUMNS, each with a value for every unit; and the UnitKind of every unit. What is no message
        has its number for a queue offset, and stands for one message.

    Raises:
        ValueError: there is no such unit_size.
    """

class QueueWalk:
    """Walks along queues, and takes the fields of the units of messages into arrays: up to the first that is not used,
    or begins before the one before it ends."""

    def __init__(self) -> None: ...
    def fill(
        self,
        positions: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int32],
        queue_offsets: npt.NDArray[np.int64],
    ) -> None:
        """What is taken from now on goes into these, from their beginning: physical offsets, sizes in bytes, queue
        offsets. They are held until others come.

        Raises:
            ValueError: they are empty, or not of one length.
        """
    def begin(self, number: int, *, unit_size: int, start: int, stop: int) -> None:
        """A queue whose units come next, from this number on.

        Args:
            unit_size: bytes of one: 20, or 46 in a BatchCQ.
            start, stop: the physical offsets [start, stop) that units have to point to.

        Raises:
            ValueError: there is no such number or unit_size.
        """
    def take(self, units: Buffer) -> int:
        """The next units of the queue; a part of one at the end is left out. Answers how many are done with. If these
        are not all, either the arrays are full, or the queue is over: none after them counts or points before `stop`.

        Raises:
            ValueError: nothing was given to fill, or no queue was begun.
        """
    @property
    def rows(self) -> int:
        """How much of the arrays is filled."""
    def drop(self, rows: int) -> None:
        """Forget the last ones, which are written over then.

        Raises:
            ValueError: there are not so many.
        """

TILING_ROWS: tuple[str, ...]

class Tiling:
    """Walks along queues and adds up what they know of stretches of the log.

    Args:
        starts, stops: the physical offsets of the stretches, ascending, none within another.
        segments: where the segment of each begins.
        found: is filled: TILING_ROWS, a column for each stretch. It has to be 0 before the first queue.
    """

    def __init__(
        self,
        starts: npt.NDArray[np.int64],
        stops: npt.NDArray[np.int64],
        segments: npt.NDArray[np.int64],
        found: npt.NDArray[np.int64],
    ) -> None: ...
    def begin(self, number: int, *, unit_size: int, asked: bool) -> None:
        """A queue whose units come next, from this number on.

        Args:
            unit_size: bytes of one: 20, or 46 in a BatchCQ.
            asked: whether its units are added up apart as well.

        Raises:
            ValueError: there is no such unit_size.
        """

    def add(self, units: Buffer) -> bool:
        """The next units of the queue; a part of one at the end is left out. False: what comes after them need not be
        looked at: one is not used, begins before the one before it ends, or is after all stretches."""

    @property
    def ends(self) -> list[tuple[int, int, int]]:
        """Physical offset, size and queue offset of the queue's first and last unit in a stretch: one where it is the
        same, none where there is none."""

def fingerprint(offsets: npt.NDArray[np.int64]) -> int:
    """A number that other offsets would hardly have, in whatever order they come. Of two sets it is the sum of theirs,
    modulo 2**64."""

def array_address(capsule: Any) -> int:
    """Where the ArrowArray of a PyCapsule "arrow_array" is in memory, as long as the capsule lives.

    Raises:
        ValueError: it is no such capsule.
    """

class Decoder:
    """Decodes units into Arrow columns, batch after batch; a column that is not asked for costs nothing.

    While one thread uses it, and for ever after something here failed, it answers others with RuntimeError.

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
        """Rows whose sysFlag says that the body is compressed, where `body` is decoded. Bodies come as stored."""
    @property
    def non_ascii(self) -> bool:
        """True when text may hold bytes that are not UTF-8 (something in it is not ASCII)."""
    def append(
        self,
        window: Buffer,
        positions: npt.NDArray[np.int64],
        *,
        base: int,
        window_offsets: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """Decode the units at `positions`. Bounds are checked again; the CRC is not.

        Args:
            window_offsets: where they begin in the window, when that is not their distance from `base`.

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
        wrapping: Wrapping | None = None,
    ) -> Walked:
        """The function scan and append in one, and faster than the two: walk from `position`, decode what is found.

        Args:
            most: the most units to decode.

        Returns:
            Walked, as of the function scan; the units are decoded, not listed.

        Raises:
            OverflowError: a column of one batch would pass 2 GiB.
        """
    def finish(self) -> Any:
        """All rows so far as a PyCapsule "arrow_array" (Arrow C data interface): a struct array with these columns:
        int32, int64, timestamp[us] (times that do not fit are null), utf8 / binary, map<utf8, utf8>."""
