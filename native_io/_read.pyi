"""Reading: the places of units, their selection, and their fields as Arrow columns. See _common.pyi for the terms."""

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from native_io._common import Buffer, Walked, Wrapping

COLUMNS: tuple[str, ...]
BATCH_INDEX: str  # one more column: the number of a message in its batch, from 0 on; null for any other message

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
        positions: filled with the starts of the units; its length is the most units to return.
        wrapping: the bytes before each unit, which the walk passes; None: each unit follows the one before.

    Returns:
        Walked: positions[:units] are the starts of the units.

    Raises:
        ValueError: offsets are negative or beyond 2**63, or `position` lies before `base`.
    """

def find_unit(window: Buffer, *, base: int, position: int, stop: int, segment_end: int, verify_crc: bool) -> Walked:
    """Search for the first whole unit that starts in [position, stop).

    Returns:
        Walked: status OK: a unit begins at `at`; LIMIT: there is no unit; MORE: the search has to be continued at `at`,
            with a window of at least `expected` bytes.

    Raises:
        ValueError: as scan().
    """

class Filter:
    """Selects units before anything is decoded; by default all units. For one thread at a time.

    Args:
        store_timestamp: (least, most) in milliseconds, both included.
        commit_log_offset: (least, most) physical offset, both included.
        judge: called once for each new topic (bytes) and queueId; returns the (least, most) queueOffset selected in
            that queue, or None to select no unit of it. None instead of a function: all queues are selected.
        conditions: all must hold. Each condition lists values by column, and holds where one of these columns has one
            of its values; a null is no value. The columns are queueOffset, commitLogOffset and storeTimestamp (ints,
            times in milliseconds), and tags, keys, msgId and offsetMsgId (texts); `word` stands for each of the
            space-separated words of keys. `lightQueue` has a mapping: names of light queues (LMQ), each with the
            (least, most) offset of messages in that queue. Conditions are tested in the given order: those on tags,
            keys and msgId cost most. `property` has a mapping with one name and the value of that property, where the
            case of ASCII letters in names does not count; `body` one text, as bytes, that the body contains once it is
            decompressed; `properties` names, in order, of which the properties_judge is told the values.
        explodes: whether each message of a batch (sysFlag 0xC0) is looked at: a batch is selected if one of its
            messages is. Without, the unit counts as one message.
        body_judge: whether a message is selected whose body is not decompressed here; called with the body as stored,
            and sysFlag. None: it is.
        zstd: as of Decoder.
        properties_judge: whether a message is selected; called with the bytes of its properties, None for a missing
            one. What it raises ends the walk.

    Raises:
        ValueError: a condition names no column, or one that is not in this list.
    """

    def __init__(
        self,
        *,
        store_timestamp: tuple[int, int] = ...,
        commit_log_offset: tuple[int, int] = ...,
        judge: Callable[[bytes, int], tuple[int, int] | None] | None = None,
        conditions: Sequence[Mapping[str, Collection[Any]]] = (),
        explodes: bool = False,
        body_judge: Callable[[bytes, int], bool] | None = None,
        zstd: Sequence[int] = ...,
        properties_judge: Callable[[tuple[bytes | None, ...]], bool] | None = None,
    ) -> None: ...
    def leave_out_copies(self, after: tuple[int, int] | None) -> None:
        """From now on a batch is left out if the unit before it is a copy of it, and sound; a copy whose head
        contradicts the rest of it, or that copy, ends the walk with BAD_QUEUE_OFFSET or BAD_SYSFLAG (copies.h).

        Args:
            after: the queueOffset and the sysFlag of the unit before the first one, (0, 0) if there is none; None: all
                batches count.
        """
    @property
    def copies_after(self) -> tuple[int, int] | None:
        """What leave_out_copies() needs to go on after the last unit that was looked at."""
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
        """The function scan, except that only selected units are listed, and only their CRC is checked."""
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
        """Select among units that are claimed to be at some physical offsets. The units are checked as by scan.

        Args:
            window: the units' bytes, as gather() reads them: `lengths[i]` bytes from `window_offsets[i]` on.
            positions: the physical offsets.
            sizes, queue_offsets: the sizes and queue offsets that selected queues claim for these units.
            chosen: filled with the indices of selected units; at least as long as `positions`.

        Returns:
            Walked: positions[:at] were checked; chosen[:units] are the indices of the selected units. Status LIMIT: all
                were checked; MORE: unit `at` has `expected` bytes, not all of which are in the window; CONTRADICTED:
                another unit is there; any other status: there is no unit.
        """

class UnitKind(enum.IntEnum):
    """The meaning of a ConsumeQueue unit. To a broker that starts, all kinds but NOTHING are units of the queue."""

    NOTHING = ...  # zeros, or noise: an unused unit
    PRE_BLANK = ...  # a queue offset before the queue's first message, in the first message's file
    LOST = ...  # the queue offset of a message that a salvage has not found
    MESSAGE = ...

QUEUE_COLUMNS: tuple[str, ...]  # the columns of queue_units()
QUEUE_FORMAT: dict[str, int]  # UNIT_SIZE, BATCH_UNIT_SIZE; the sizes in units of kind PRE_BLANK and LOST

def queue_units(units: Buffer, number: int, *, unit_size: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """The fields of ConsumeQueue units as stored in a file; a partial unit at the end is left out.

    Args:
        number: the number of the first unit.
        unit_size: bytes of one: 20, or 46 in a BatchCQ.

    Returns:
        an array of QUEUE_COLUMNS, each with a value for every unit; and the UnitKind of every unit. A unit that is no
        message has its number as queue offset, and counts as one message.

    Raises:
        ValueError: there is no such unit_size.
    """

def queue_unit(unit: Buffer, number: int, *, unit_size: int) -> tuple[int, int, int, int, int, int, int] | None:
    """The fields of one ConsumeQueue unit, as queue_units() gives them: number, position, size, tagsCode, queueOffset,
    messages, UnitKind; None for a partial unit.

    Args:
        number, unit_size: as in queue_units().
    """

def last_used_unit(units: Buffer, *, unit_size: int) -> int:
    """The index of the last ConsumeQueue unit that is not NOTHING; -1 where there is none.

    Args:
        unit_size: as in queue_units().
    """

def first_unit_from(
    positions: npt.NDArray[np.int64], kinds: npt.NDArray[np.uint8], position: int, *, index: int = 0
) -> int:
    """The first index of ConsumeQueue units, from `index` on, whose unit does not come before a physical offset, as of
    comes_before(); else the number of units.

    Args:
        positions, kinds: as of queue_units().

    Raises:
        ValueError: there are not as many of both.
    """

def comes_before(unit: Buffer, position: int, *, unit_size: int) -> bool:
    """Whether a ConsumeQueue unit points to before a physical offset, or is PRE_BLANK; not one that is no unit, or cut.

    Args:
        unit_size: as in queue_units().
    """

class QueueWalk:
    """Walks along queues, and copies the fields of message units into arrays, up to the first unit that is unused, or
    whose message begins before the previous one ends."""

    def __init__(self) -> None: ...
    def fill(
        self,
        positions: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int32],
        queue_offsets: npt.NDArray[np.int64],
    ) -> None:
        """Set the arrays to fill from now on, from their beginning: physical offsets, sizes in bytes, queue offsets.
        The arrays are held until others are set.

        Raises:
            ValueError: the arrays are empty, or differ in length.
        """
    def begin(self, number: int, *, unit_size: int, start: int, stop: int) -> None:
        """Begin a queue whose units come next, from this number on.

        Args:
            unit_size: bytes of one: 20, or 46 in a BatchCQ.
            start, stop: the physical offsets [start, stop) that units have to point to.

        Raises:
            ValueError: there is no such number or unit_size.
        """
    def take(self, units: Buffer) -> int:
        """Take the next units of the queue; a partial unit at the end is left out. Returns the number of units
        processed. If some are left, either the arrays are full, or the queue is over: no unit after them counts or
        points before `stop`.

        Raises:
            ValueError: no arrays were set, or no queue was begun.
        """
    @property
    def rows(self) -> int:
        """The number of filled rows of the arrays."""
    def drop(self, rows: int) -> None:
        """Forget the last rows, which are then overwritten.

        Raises:
            ValueError: there are fewer rows.
        """

ZSTD_FUNCTIONS: tuple[str, ...]

class Tiles(NamedTuple):
    """What the units of queues know of stretches of the log.

    Attributes: arrays with a number for each stretch.
        open_ends: the fingerprint of where units end (and have a header behind), without those where others begin.
        furthest: where the last unit ends.
        counts: units.
        crossed: not 0: a unit reaches over the stretch's stop.
        asked_counts: units of the queues that are asked for,
        asked_prints: the fingerprint of where they begin,
        asked_bytes: and the bytes of their messages.
        latest: where the last unit begins.
        followed: the end of the last unit whose queue has a unit in a later segment, too.
    """

    open_ends: npt.NDArray[np.int64]
    furthest: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    crossed: npt.NDArray[np.int64]
    asked_counts: npt.NDArray[np.int64]
    asked_prints: npt.NDArray[np.int64]
    asked_bytes: npt.NDArray[np.int64]
    latest: npt.NDArray[np.int64]
    followed: npt.NDArray[np.int64]

class Tiling:
    """Walks along queues and sums up what these know of stretches of the log.

    Args:
        starts, stops: the physical offsets of the stretches, ascending, none within another.
        segments: the start of each stretch's segment.
        headers: the bytes before each unit of a stretch that wrap it; None: units follow each other everywhere.
    """

    def __init__(
        self,
        starts: npt.NDArray[np.int64],
        stops: npt.NDArray[np.int64],
        segments: npt.NDArray[np.int64],
        headers: npt.NDArray[np.int64] | None = None,
    ) -> None: ...
    def begin(self, number: int, *, unit_size: int, asked: bool) -> None:
        """Begin a queue whose units come next, from this number on.

        Args:
            unit_size: bytes of one: 20, or 46 in a BatchCQ.
            asked: whether the queue's units are also summed up separately.

        Raises:
            ValueError: there is no such unit_size.
        """

    def add(self, units: Buffer) -> bool:
        """Add the next units of the queue; a partial unit at the end is left out. False: the units after them are not
        needed: a unit is unused, begins before the one before it ends, or is after all stretches."""

    @property
    def tiles(self) -> Tiles:
        """The sums over all queues so far; they change when units are added."""

    @property
    def units(self) -> tuple[int, int]:
        """The number of the queue's units in stretches, and the bytes of their messages."""

    @property
    def ends(self) -> list[tuple[int, int, int]]:
        """Physical offset, size and queue offset of the queue's first and last unit in a stretch: one entry where both
        are the same unit, none without a unit."""

def fingerprint(offsets: npt.NDArray[np.int64]) -> int:
    """A number that other offsets would hardly have, independent of their order. The fingerprint of two sets is the sum
    of their fingerprints, modulo 2**64."""

def array_address(capsule: Any) -> int:
    """The memory address of the ArrowArray in a PyCapsule "arrow_array", valid as long as the capsule lives.

    Raises:
        ValueError: the object is no such capsule.
    """

class Decoder:
    """Decodes units into Arrow columns, batch after batch; a column that is not asked for costs nothing.

    Calls raise RuntimeError while another thread uses the decoder, and always after a failure in it.

    Args:
        columns: names out of COLUMNS, and BATCH_INDEX, each once, in the order of the batch.
        explodes: whether a batch of messages (sysFlag 0xC0) gives a row for each of them, else one for the unit.
        expand: how many bytes of bodies are enough for a batch, where compressed bodies are decompressed: scan() and
            Slide.decode() end with FULL then. 0: bodies come as stored.
        zstd: the addresses of ZSTD_FUNCTIONS in a library that stays loaded; without them zstd bodies come as stored.
    """

    columns: tuple[str, ...]
    def __init__(
        self, columns: Sequence[str], *, explodes: bool = False, expand: int = 0, zstd: Sequence[int] = (0, 0, 0)
    ) -> None: ...
    def leave_out_copies(self, after: tuple[int, int] | None) -> None:
        """As of Filter; for scan() without a filter."""
    @property
    def rows(self) -> int:
        """Rows since the last finish()."""
    @property
    def nbytes(self) -> int:
        """Bytes of Arrow data since the last finish()."""
    @property
    def compressed(self) -> int:
        """Rows whose sysFlag says that the body is compressed, where `body` is decoded, decompressed or not."""
    @property
    def unexpanded(self) -> list[int]:
        """Rows since the last finish() whose body should have been decompressed and has been left as stored: it is not
        what sysFlag says, is larger than 16 MiB, or is odd. Ascending."""
    @property
    def non_ascii(self) -> bool:
        """True when text may hold bytes that are not UTF-8 (some byte is not ASCII)."""
    def append(
        self,
        window: Buffer,
        positions: npt.NDArray[np.int64],
        *,
        base: int,
        window_offsets: npt.NDArray[np.int64] | None = None,
        chosen: Filter | None = None,
        most: int = 1 << 40,
    ) -> int:
        """Decode the units at `positions`, up to `most` rows. Bounds are checked again; the CRC is not.

        Args:
            chosen: the filter that chose the units; it also chooses among the messages of a batch.
            window_offsets: where the units begin in the window, when that is not their distance from `base`.

        Returns:
            the number of units that are done. If `most` ended inside a batch, that is the next one, and the next call
            goes on in it.

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
        """The function scan and append() in one, and faster than the two: walk from `position` and decode the units.

        Args:
            most: the most rows to decode; a batch with more of them goes on in the next call, with the same position.

        Returns:
            Walked, as from the function scan; the units are decoded, not listed.

        Raises:
            OverflowError: a column of one batch would pass 2 GiB.
        """
    def finish(self) -> Any:
        """All rows so far as a PyCapsule "arrow_array" (Arrow C data interface): a struct array with these columns:
        int32, int64, timestamp[us] (times that do not fit are null), utf8 / binary, map<utf8, utf8>."""
