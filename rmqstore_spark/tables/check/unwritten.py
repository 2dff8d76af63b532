"""Pages of the log with zeros where messages belong, as a copy of a store has them that was made while a broker wrote.

The copying program reads a file from its beginning on, a page at a time, while the broker goes on. Where the program
reaches the log's end, it copies zeros; if it is then held up while the broker writes, messages follow in the next pages
or segments. So such damage is zeros up to the beginning of a page, from the end of a message on, or from the beginning
of a page inside a message. A machine that fails before all pages are on disk leaves the same; the bytes do not tell
which it was.
"""

from rmqstore_spark.store.format.message import HEAD_SIZE, Head
from rmqstore_spark.store.log_end import PAGE
from rmqstore_spark.store.structures.commitlog import SegmentReader
from rmqstore_spark.store.structures.segments import Damage
from rmqstore_spark.tables.check.moment import Moment

_SURELY = 5  # the first bytes of any message, one of which is not 0: totalSize, and the magic code
_AT_ONCE = 1024 * 1024


def problem_of(reader: SegmentReader, damage: Damage, moment: Moment) -> str:
    """The name of the problem for a damage of the log.

    Args:
        reader: the reader of the damage's segment.
    """
    if not moment.is_left:
        return "damagedUnit"
    zeros = _torn_at(reader, damage) if any(reader.read(damage.start, _SURELY)) else damage.start
    if zeros is None:
        return "damagedUnit"
    is_last = damage.stop >= moment.end
    stop = min(_page_from(damage.stop), reader.file_end)  # further zeros in the page are damage of their own
    end = _end_of_zeros(reader, zeros, stop)
    if is_last and end >= damage.stop and end == stop > zeros:
        return "unwrittenEnd"
    return "unwrittenPages" if end - zeros >= _SURELY and _page_from(zeros + _SURELY) <= end else "damagedUnit"


def _torn_at(reader: SegmentReader, damage: Damage) -> int | None:
    """The first page of zeros inside a message whose head is there, as far as that page allows; None if there is no
    such page."""
    head = Head.of(reader.read(damage.start, HEAD_SIZE))
    has_head = damage.start + HEAD_SIZE <= _page_from(damage.start + 1)
    if has_head and head.physical_offset != damage.start:
        return None
    end = min(damage.stop, damage.start + head.size) if has_head else damage.stop
    for page in range(_page_from(damage.start + 1), end, PAGE):
        size = min(PAGE, reader.file_end - page)
        if not any(reader.read(page, size)):
            return page
    return None


def _end_of_zeros(reader: SegmentReader, at: int, stop: int) -> int:
    """The first physical offset from `at` on, up to `stop`, that is not zero."""
    while at < stop:
        data = reader.read(at, min(_AT_ONCE, stop - at))
        rest = data.lstrip(b"\0")
        if rest or not data:
            return at + len(data) - len(rest)
        at += len(data)
    return at


def _page_from(position: int) -> int:
    """The beginning of the first page at or after a physical offset. Segments begin where pages do."""
    return -(-position // PAGE) * PAGE
