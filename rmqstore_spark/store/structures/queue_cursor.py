"""The place of a physical offset in a queue: the one search along a ConsumeQueue, for simple queues and BatchCQs.

A search relies on physical offsets that ascend along the queue. Where they do not (damage, zeros in the middle, units
that a truncation has left over) the answer is only some border: a unit that is not before the offset, after one that
is. So callers that must be right search only the live part of the queue (store/queue_bounds.py finds its end), or check
the answer against the log.
"""

from native_io import comes_before
from rmqstore_spark.store.format.queue_block import QueueBlock, QueueUnit
from rmqstore_spark.store.io.files import ignore_unreadable
from rmqstore_spark.store.structures.consumequeue import FEW_UNITS, Queue, QueueFile, Units

_GUESSES = 4  # guesses of a search, before the range is halved
_AFTER_ALL = (1 << 63) - 1  # no unit points there


class QueueCursor:
    """Finds physical offsets along one queue. An offset after the last one that was sought costs a few requests,
    however long the queue is: the search begins where that offset would be if the queue went on as evenly as before.

    Attributes:
        queue: the queue.

    Args:
        stop: the answer where all units before this number point to before the offset.
    """

    def __init__(self, queue: Queue, stop: int | None = None) -> None:
        self.queue = queue
        self._most = stop
        self._last: tuple[int, int] | None = None  # the last offset sought, and the answer
        self._rate = 0.0  # units for each byte of the log, between the last answer and the one before
        self._block = QueueBlock.of(b"")  # the last units read

    def seek(self, position: int) -> int:
        """The number of the first unit that points to `position` or after it, or is unused: the number after the last
        unit before `position`. PRE_BLANK units come before every position."""
        position = min(position, _AFTER_ALL)
        before, least = self._last or (position, self.queue.first)
        if self._last is not None and position == before:
            return least
        is_later = before < position
        if not is_later:
            least = self.queue.first
        number = self._in_block(position, least)
        if number is None:
            number = self._looked_for(position, least)
        if is_later:
            self._rate = (number - least) / (position - before)
        self._last = position, number
        return number

    def look_at_ends(self) -> None:
        """Look at the queue's first and last units, so that the first search begins where its offset would be if the
        queue went on evenly from one to the other."""
        first, last = self.queue.unit(self.queue.first), self.queue.last()
        if first is not None and last is not None and first.position < last.position:
            self._block = self.queue.block(last.number, 1)
            self._rate = (last.number - first.number) / (last.position - first.position)

    def unit(self, number: int) -> QueueUnit | None:
        """The unit with this number, or None where there is none or the unit stands for no message."""
        index = number - self._start
        if not 0 <= index < len(self._block):
            return self.queue.unit(number)
        unit = self._block[index]
        return unit if unit.is_message else None

    def around(self, start: int | None, stop: int | None) -> tuple[int, int | None]:
        """A range of numbers [first, after) with all units that point into the physical offsets [start, stop), and some
        more: so few that reading them costs less than searching on.

        Args:
            start, stop: None where no unit before, or none after, is to be left out. `after` is None if `stop` is.
        """
        first, most = self.queue.first, self._stop
        if start is not None:
            first = self._narrowed(start, first, most)[0]
        return first, None if stop is None else self._narrowed(stop, first, most)[1]

    @property
    def _start(self) -> int:
        return int(self._block.numbers[0]) if len(self._block) else 0

    @property
    def _stop(self) -> int:
        return self.queue.stop if self._most is None else min(self._most, self.queue.stop)

    def _in_block(self, position: int, least: int) -> int | None:
        """The answer, from the number `least` on, if the last units read contain it."""
        start, end = self._start, self._start + len(self._block)
        if least >= end or start >= self._stop:
            return None
        number = start + self._block.first_from(position, max(0, least - start))
        is_answer = number < end and (start <= least or number > start)
        return min(number, max(least, self._stop)) if is_answer else None

    def _looked_for(self, position: int, least: int) -> int:
        most = max(least, self._stop)
        for tries in range(_GUESSES if len(self._block) > 0 else 0):
            if least == most:
                return least
            start = min(max(least, self._guess(position, FEW_UNITS << tries) - FEW_UNITS // 4), most - 1)
            self._block = self.queue.block(start, min(FEW_UNITS, most - start))
            index = self._block.first_from(position)
            if 0 < index < len(self._block) or (index == 0 < len(self._block) and start == least):
                return start + index
            if len(self._block) == 0:  # a file is missing, or too short
                break
            least, most = (least, start) if index == 0 else (start + index, most)
        return self._bisected(position, least, most)

    def _guess(self, position: int, least_step: int) -> int:
        """The guessed number of an offset that is not among the last units read, at least `least_step` units
        further."""
        block = self._block
        first, last = block[0], block[len(block) - 1]
        rate = self._rate or (len(block) - 1) / max(len(block), last.position - first.position)
        if block.first_from(position, len(block) - 1) == len(block):
            return last.number + max(least_step, int(rate * (position - last.position)))
        return first.number - max(least_step, int(rate * (first.position - position)))

    def _bisected(self, position: int, least: int, most: int) -> int:
        low, high = self._narrowed(position, least, most)
        self._block = self.queue.block(low, high - low)
        index = self._block.first_from(position)
        return low + index if index > 0 else least  # the numbers between them are of a missing file

    def _narrowed(self, position: int, least: int, most: int) -> tuple[int, int]:
        """A range of numbers, both ends included, that has the answer: so few units of one file that one read gets
        them.

        Args:
            least, most: the known bounds of the answer.
        """
        files = [file for file in self.queue.in_files if file.first < min(most, file.end) and file.end > least]
        if not files:
            return least, least
        # The last file that begins before the offset is the one; in the files after it every unit is too late.
        schedule = self.queue.files.schedule
        file = files[schedule.partition_point(1, len(files), lambda n: self._begins_before(files[n], position)) - 1]
        low, end = max(least, file.first), min(most, file.end)
        with ignore_unreadable(), self.queue.opened(file) as opened:
            # Where there is no data no unit is used.
            end = max(low, min(end, file.first - (-opened.data_end() // self.queue.unit_size)))
            if file is self.queue.in_files[-1] and self.queue.end_in_head is not None:
                end = max(low, min(end, self.queue.end_in_head))
            at_once = max(FEW_UNITS, self.queue.files.prices.linear_below)
            if end - low <= at_once:
                return low, end
            # The answer is before the first stretch that begins with a unit that is not before the offset.
            stretches = -(-(end - low) // at_once)
            after = schedule.partition_point(
                1, stretches, lambda n: self._is_before(opened, low + n * at_once - file.first, position)
            )
            return low + (after - 1) * at_once, min(low + after * at_once, end)
        return low, low

    def _begins_before(self, file: QueueFile, position: int) -> bool:
        with ignore_unreadable(), self.queue.opened(file) as opened:
            return self._is_before(opened, 0, position)
        return False

    def _is_before(self, file: Units, index: int, position: int) -> bool:
        size = self.queue.unit_size
        return comes_before(file.read(index * size, size), position, unit_size=size)
