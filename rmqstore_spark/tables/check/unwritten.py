"""Pages of the log that hold zeros where messages belong, as who copies a store leaves them that its broker writes.

A copier reads a file from its beginning on, a page at a time, and the broker goes on meanwhile. Where the copier comes
to the log's end before the broker has written on, it takes zeros; if it is held up then, and the broker goes on,
messages follow in the pages, or in the segments, that it reads next. So such damage is zeros up to where a page begins,
from the end of a message on, or from where a page begins inside of one. That is also what a machine leaves that fails
before it has brought all pages to disk; the bytes do not tell which it was.
"""

from rmqstore_spark.store.format.message import HEAD_SIZE, Head
from rmqstore_spark.store.log_end import PAGE
from rmqstore_spark.store.structures.commitlog import SegmentReader
from rmqstore_spark.store.structures.segments import Damage
from rmqstore_spark.tables.check.moment import Moment

_SURELY = 5  # the first bytes of any message, one of which is not 0: totalSize, and the magic code
_AT_ONCE = 1024 * 1024


def problem_of(reader: SegmentReader, damage: Damage, moment: Moment) -> str:
    """What a damage of the log is called.

    Args:
        reader: of its segment.
    """
    if not moment.is_left:
        return "damagedUnit"
    zeros = _torn_at(reader, damage) if any(reader.read(damage.start, _SURELY)) else damage.start
    if zeros is None:
        return "damagedUnit"
    is_last = damage.stop >= moment.end
    stop = min(_page_from(damage.stop), reader.file_end)  # more zeros in the page are damage by themselves
    end = _end_of_zeros(reader, zeros, stop)
    if is_last and end >= damage.stop and end == stop > zeros:
        return "unwrittenEnd"
    return "unwrittenPages" if end - zeros >= _SURELY and _page_from(zeros + _SURELY) <= end else "damagedUnit"


def _torn_at(reader: SegmentReader, damage: Damage) -> int | None:
    """The first page of zeros inside a message of which the head is there, as far as that page allows; None where there
    is none."""
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
    """The first physical offset from `at` on, up to `stop`, where something else is."""
    while at < stop:
        data = reader.read(at, min(_AT_ONCE, stop - at))
        rest = data.lstrip(b"\0")
        if rest or not data:
            return at + len(data) - len(rest)
        at += len(data)
    return at


def _page_from(position: int) -> int:
    """Where the first page begins from a physical offset on. Segments begin where pages do."""
    return -(-position // PAGE) * PAGE
