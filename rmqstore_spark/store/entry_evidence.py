"""What proves an entry where the order of a log of entries stops: its header may have one damaged field, or be what a
truncation left.

No checksum covers an entry's header. But its index and size are known from what is beside them, the next entry goes on
from it, and the node notes each entry's index, term, place and size beside the log, too. One of these may lie, not two.
So an entry that follows the last one, but for one field, belongs to the log, and what comes behind it has to go on from
what that field was to say.
"""

from typing import NamedTuple

from rmqstore_spark.store.format.message import Header
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures.commitlog import SegmentReader
from rmqstore_spark.store.structures.entries import Entry, EntryOrder, NotedEntry, order_in
from rmqstore_spark.store.structures.kinds import noted_entry


class LikelyEntry(NamedTuple):
    """A whole message whose entry may be the next one, with a damaged header.

    Attributes:
        unit: the message.
        order: up to that entry.
        is_sure: whether it belongs to the log; else it does where anything later does.
    """

    unit: Header
    order: EntryOrder
    is_sure: bool


class EntryEvidence:
    """Judges single entries.

    Args:
        root: the store.
        files: how to reach its files.
    """

    def __init__(self, root: str, files: Files) -> None:
        self._root = root
        self._files = files
        self._notes: dict[int, NotedEntry | None] = {}  # by number

    def sure(self, order: EntryOrder) -> EntryOrder:
        """An order up to an entry, with that entry's term as the node has noted it: the header's may lie."""
        noted = None if order.last is None else self._noted(order.last.number)
        return order if noted is None or noted.end != order.end else EntryOrder(noted.entry, order.end)

    def likely(self, reader: SegmentReader, begin: int, order: EntryOrder) -> LikelyEntry | None:
        """The entry at a physical offset where the order stops, if it may be the next one all the same.

        Args:
            reader: of its segment; bodies are compared with their CRC.
            order: up to the entry before.
        """
        wrapping = reader.segment.wrapping
        unit = None if wrapping is None else reader.header(begin + wrapping.header)
        if unit is None or wrapping is None or unit.position != begin + wrapping.header:
            return None
        order, end = self.sure(order), unit.position + unit.size
        assert order.last is not None
        number = order.number_at(begin, wrapping.header)
        noted = self._noted(number)
        if noted is None:
            found = order_in(reader.read(begin, wrapping.header), wrapping)
            likely = None if found is None else _next_of(order.last, number, found, _entry_at(reader, end))
        else:
            is_noted = (noted.position, noted.end) == (begin, end) and noted.entry.term >= order.last.term
            likely = (noted.entry, True) if is_noted else None
        return None if likely is None else LikelyEntry(unit, EntryOrder(likely[0], end), likely[1])

    def lost(self, reader: SegmentReader, begin: int, end: int, order: EntryOrder) -> EntryOrder:
        """The order up to an entry at the physical offsets [begin, end) whose message is lost; as far as it is known.

        Args:
            order: up to the entry before.
        """
        wrapping, last = reader.segment.wrapping, order.last
        if wrapping is None or last is None:
            return EntryOrder()
        number = order.number_at(begin, wrapping.header)
        noted = self._noted(number)
        terms = [last.term]
        if noted is not None and noted.position == begin:
            terms.append(noted.entry.term)
        elif begin >= reader.segment.start:
            header = reader.read(begin, wrapping.header)
            found = order_in(header, wrapping)
            if found is not None and (found.number == number or wrapping.entry_size(header, begin) == end - begin):
                terms.append(found.term)
        return EntryOrder(Entry(number, max(terms)), end)

    def _noted(self, number: int) -> NotedEntry | None:
        if number not in self._notes:
            self._notes[number] = noted_entry(self._root, number, self._files)
        return self._notes[number]


def _entry_at(reader: SegmentReader, begin: int) -> Entry | None:
    """The entry at a physical offset, with a message."""
    wrapping = reader.segment.wrapping
    unit = None if wrapping is None else reader.header(begin + wrapping.header)
    return None if unit is None else reader.entry(unit)


def _next_of(last: Entry, number: int, found: Entry, following: Entry | None) -> tuple[Entry, bool] | None:
    """The next entry, with this number, after the last one, and whether that is sure; None where what was found is not
    it.

    Args:
        following: the entry that follows the one found; None where there is none.
    """
    if found.term >= last.term:
        if found.number == number:
            return found, True
        is_by_itself = following is not None and (found.number + 1, True) == (
            following.number,
            found.term <= following.term,
        )
        return None if is_by_itself else (Entry(number, found.term), True)
    if found.number != number:
        return None
    goes_on = following is not None and following.number == number + 1 and following.term >= last.term
    return Entry(number, last.term), goes_on
