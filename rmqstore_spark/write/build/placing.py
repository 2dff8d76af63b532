"""The places of messages in a log: one rule for the end of a segment, and units that are placed by that rule."""

import contextlib
from collections.abc import Generator, Iterable
from typing import NamedTuple

import numpy as np

from native_io import FORMAT, Dispatched, Dispatcher, Status
from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.progress import Progress
from rmqstore_spark.store.format.by_queue import Integers
from rmqstore_spark.store.format.clock import milliseconds_now
from rmqstore_spark.store.format.message import failed_check
from rmqstore_spark.store.format.queue_block import lost_unit
from rmqstore_spark.write.build import times
from rmqstore_spark.write.build.logfiles import InPlaceWriter, LogWriter, Run, Space
from rmqstore_spark.write.build.staging import Chunk, UnitSizes
from rmqstore_spark.write.build.store_files import StoreFiles
from rmqstore_spark.write.build.target import Target
from rmqstore_spark.write.fs.background import Lane

_CHUNKS_AHEAD = 4


class Places(NamedTuple):
    """Places of units: the physical offset of each, and the units as runs. Between two runs a segment ends."""

    positions: Integers
    runs: list[Run]


class Rolling:
    """Gives units places in a log: a segment ends with a blank before the first unit that does not fit into it.

    Args:
        root: the store, for error texts.
        position: the physical offset of the log's end.
        size: bytes of a segment.
    """

    def __init__(self, root: str, position: int, size: int) -> None:
        self._root = root
        self._position = position
        self._size = size

    def take(self, sizes: UnitSizes | Integers, begins_segment: bool) -> Places:
        """Places for the next units.

        Args:
            sizes: bytes of each unit.
            begins_segment: whether the first of these units has to begin a segment.

        Raises:
            RmqStoreError: a unit is larger than a segment.
        """
        if begins_segment:
            self._position += -self._position % self._size
        ends = np.cumsum(sizes, dtype=np.int64)
        positions, runs = ends - sizes, []
        first = before = 0
        while first < len(sizes):
            left = self._size - self._position % self._size - FORMAT["BLANK_SIZE"]
            stop = int(np.searchsorted(ends, before + left, "right"))
            if stop > first:
                nbytes = int(ends[stop - 1]) - before
                positions[first:stop] += self._position - before
                runs.append(Run(self._position, nbytes))
                self._position += nbytes
                first, before = stop, before + nbytes
            elif self._position % self._size == 0:
                raise RmqStoreError(
                    f"{self._root}: a message does not fit into a segment of {self._size} bytes; give "
                    "option 'mappedFileSizeCommitLog' a larger value (the broker's must be the same)"
                )
            if first < len(sizes):
                self._position += -self._position % self._size
        return Places(positions, runs)


class Placing:
    """Gives units their positions, and writes the units and all files that follow from them, chunk by chunk.

    Large because positions, queue offsets, the clock and store times all go on from chunk to chunk.

    Args:
        target: the store before the write.
        log: takes the units.
        files: takes the entries that follow from the units.
        index_tags: whether tags are index keys, too.
        keep: whether units keep the queue offsets they have; messages missing between two of a queue count as lost.

    """

    def __init__(
        self,
        target: Target,
        log: LogWriter | InPlaceWriter,
        files: StoreFiles,
        index_tags: bool,
        keep: bool = False,
    ) -> None:
        self._root = target.root
        self._segment_size = target.sizes.segment
        self._rolling = Rolling(target.root, target.end, target.sizes.segment)
        self._dispatcher = Dispatcher(index_tags=index_tags, batch_topics=files.batch_topics, light_queues=keep)
        for (topic, queue_id), offset in target.queues.items():
            self._dispatcher.set_next(topic, queue_id, offset)
        self._log = log
        self._files = files
        self._keep = keep
        self._position = target.end  # the physical offset of the log's end
        self._lost = lost_unit(target.end)
        self._last_timestamp = self._clock = target.last_timestamp
        self._times = times.Times(target)

    def append(self, chunks: Iterable[Chunk], total: int) -> int:
        """Append all units.

        Args:
            total: about how many bytes all units have.

        Returns:
            The number of units.
        """
        count = 0
        progress = Progress(f"writing {self._root}", total)
        with Lane(_CHUNKS_AHEAD) as derives, contextlib.closing(self._read(chunks)) as read:
            for chunk, space in read:
                self._clock = max(self._clock, milliseconds_now())  # never before the store's last message
                if chunk.after_gap:
                    self._lost = lost_unit(space.runs[0].position)
                self._place(space)
                dispatched = self._dispatcher.finish()
                self._times.add(dispatched, self._position)
                self._last_timestamp = dispatched.last_timestamp or self._last_timestamp
                derives.submit(self._derive, dispatched, self._dispatcher.queues, self._lost if self._keep else None)
                progress.add(chunk.nbytes)
                count += len(chunk.sizes)
            derives.submit(self._files.finish_index)
            self._log.finish()
            derives.wait()
        return count

    def finish(self) -> None:
        """Make the files that cover all messages."""
        with self._log.reader() as reader:
            record = self._times.record(reader.mark(self._times.last_position))
            self._files.put_times(record)
            self._files.finish(reader.store_timestamp, self._last_timestamp, self._position, record)

    def _read(self, chunks: Iterable[Chunk]) -> Generator[tuple[Chunk, Space], None, None]:
        """Chunks that were read and are to be placed; the next chunk is read while the caller works on this one."""
        waiting: tuple[Chunk, Space] | None = None
        with Lane(1) as reads:
            for chunk in chunks:
                places = self._rolling.take(chunk.sizes, chunk.after_gap)
                space = self._log.space(places.runs)
                reads.submit(chunk.read_into, space.units, places.positions)
                if waiting is not None:
                    yield waiting
                waiting = chunk, space
                reads.wait()
            if waiting is not None:
                yield waiting

    def _place(self, space: Space) -> None:
        """Place the units of a chunk that was read, and hand them over to be written."""
        units, at = space.units, 0
        for position, nbytes in space.runs:
            segment_end = position - position % self._segment_size + self._segment_size
            _, self._position, status, expected, found = self._dispatcher.place(
                units[at : at + nbytes],
                position=position,
                segment_end=segment_end,
                store_timestamp=self._clock,
                keep=self._keep,
            )
            if status is not Status.LIMIT:
                raise RmqStoreError(
                    f"{self._root}: a message to write is damaged: {failed_check(status, expected, found)}"
                )
            at += nbytes
        self._log.write(space)

    def _derive(self, dispatched: Dispatched, names: list[tuple[str, int]], lost: bytes | None) -> None:
        for number, queue_offset, units in dispatched.runs():
            self._files.put_units(names[number], queue_offset, units, lost)
        self._files.put_keys(dispatched.key_hash, dispatched.key_position, dispatched.key_timestamp)
