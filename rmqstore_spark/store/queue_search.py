"""Physical offsets looked for along one queue in the order of the log: each from where the last one was found."""

import bisect

from rmqstore_spark.store.consumequeue import UNIT, UNIT_SIZE, Queue, QueueUnit

_UNITS_AT_ONCE = 128
_GUESSES = 4  # then it is halved


class QueueSearch:
    """Finds what Queue.search() finds. A place after the last one costs a few requests, however long the queue is: it
    is looked for where it would be if the queue went on as evenly as it did.

    Attributes:
        queue: a simple queue.
    """

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self._found: tuple[int, int] | None = None  # the last position asked for, and the number that was the answer
        self._block = 0, b""  # the units read last, and the number of the first of them
        self._rate = 0.0  # units for each byte of the log between the last answer and the one before

    def first_from(self, position: int) -> tuple[int, QueueUnit | None]:
        """The number of the first unit that points to `position` or after it, or is not used; and that unit, None where
        it is not used."""
        if self._found is None or position < self._found[0]:
            number = self.queue.search(position)
            unit = self.queue.unit(number)
        elif position == self._found[0]:
            number, unit = self._found[1], self.queue.unit(self._found[1])
        else:
            before, least = self._found
            number, unit = self._go_on(least, before, position)
            self._rate = (number - least) / (position - before)
        self._found = position, number
        return number, unit

    def _go_on(self, least: int, before: int, position: int) -> tuple[int, QueueUnit | None]:
        """The answer, which is not before the number `least`, nor is the physical offset `before` after that one's."""
        if (known := self._in_block(least, position)) is not None:
            return known
        most: int | None = None
        guess = least + int(self._rate * (position - before))
        tries = 0
        while most is None or least < most:
            start = max(least, guess - _UNITS_AT_ONCE // 4)
            count = _UNITS_AT_ONCE if most is None else min(_UNITS_AT_ONCE, most - start)
            self._block = start, self.queue.read_units(start, count)
            read = len(self._block[1]) // UNIT_SIZE
            index = self._first_in_block(position, 0)
            further = _UNITS_AT_ONCE << tries
            if index == 0 and start > least:
                most = start
                guess = start - max(further, int(self._rate * (self._unit(0).position - position)) if read else 0)
            elif index == count:
                least = start + count
                guess = least + max(further, int(self._rate * (position - self._unit(count - 1).position)))
            else:
                return start + index, _used(self._unit(index)) if index < read else None
            tries += 1
            if most is not None:
                guess = min(max(guess, least), most - 1) if tries < _GUESSES else (least + most) // 2
        return least, self.queue.unit(least)

    def _in_block(self, least: int, position: int) -> tuple[int, QueueUnit | None] | None:
        """The answer, where the units read last have it."""
        start, data = self._block
        if not start <= least < start + len(data) // UNIT_SIZE:
            return None
        index = self._first_in_block(position, least - start)
        return (start + index, _used(self._unit(index))) if index < len(data) // UNIT_SIZE else None

    def _first_in_block(self, position: int, least: int) -> int:
        """The index of the first unit in it, from `least` on, that points to a physical offset or after it, or is not
        used."""

        def is_not_before(index: int) -> bool:
            unit = self._unit(index)
            return unit.size <= 0 or unit.position >= position

        return bisect.bisect_left(range(len(self._block[1]) // UNIT_SIZE), True, lo=least, key=is_not_before)

    def _unit(self, index: int) -> QueueUnit:
        return QueueUnit(*UNIT.unpack_from(self._block[1], index * UNIT_SIZE))


def _used(unit: QueueUnit) -> QueueUnit | None:
    return unit if unit.is_used else None
