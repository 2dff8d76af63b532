"""A stretch of the log, read once: what is damaged in it, and what queues and index files say of its messages.

The kernel derives from the units what a broker would put into queues and index (native_io.Dispatcher); that is held
against what stands there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from native_io import Dispatcher, Taken
from rmqstore_spark.store.commitlog import NO_LIMIT
from rmqstore_spark.store.opened import OpenStore
from rmqstore_spark.store.segments import Damage, Extent
from rmqstore_spark.tables.check.index_items import IndexSpan, IndexStretch
from rmqstore_spark.tables.check.log_view import LogView
from rmqstore_spark.tables.check.problems import Finding
from rmqstore_spark.tables.check.queue_units import QueueStretch

_AT_ONCE = 128 * 1024 * 1024  # bytes of the log whose outcome is held in memory


@dataclass(frozen=True)
class LogPart:
    """Pieces of the log that follow each other, and what they are held against.

    Attributes:
        has_queues: whether the store has ConsumeQueue files at all.
        index: the index files that may have items of these pieces.
        covered: the first and the last physical offset that the store's index has; messages strictly between them
            must be in it.
        index_tags: whether the store's broker puts tags into the index too.
    """

    pieces: tuple[Extent, ...]
    has_queues: bool
    index: tuple[IndexSpan, ...]
    covered: tuple[int, int] | None
    index_tags: bool


class _Scanner:
    """A dispatcher that is handed windows as a decoder is.

    Attributes:
        reached: the first physical offset that it has not passed.
    """

    def __init__(self, index_tags: bool, start: int) -> None:
        self.dispatcher = Dispatcher(index_tags=index_tags)
        self.reached = start

    def scan(self, window: memoryview, **bounds: Any) -> Taken:
        """As of commitlog.Scans."""
        stopped = self.dispatcher.dispatch(window, **bounds)
        self.reached = stopped[1]
        return stopped


def check_log(store: OpenStore, view: LogView, part: LogPart) -> Iterator[Finding]:
    """What is wrong in some pieces of the log, and with what queues and index files say of their messages."""
    start, damages = part.pieces[0].start, list[Damage]()
    scanner = _Scanner(part.index_tags, start)
    queues = QueueStretch(store, view)
    index = IndexStretch(store, view, part.index, part.covered, part.index_tags)

    def compared(stop: int) -> Iterator[Finding]:
        found = scanner.dispatcher.finish()
        if part.has_queues:
            yield from queues.check(found, scanner.dispatcher.queues, start, stop, damages)
        if part.index:
            yield from index.check(found, start, stop, damages)

    for piece in part.pieces:
        with store.reader(piece.segment, verify_crc=True) as reader:
            for damage in store.past_damage(reader).decode(piece.start, piece.stop, scanner, lambda: NO_LIMIT):
                if damage is not None:
                    damages.append(damage)
                    yield _damaged(damage)
                elif scanner.reached - start > _AT_ONCE:
                    yield from compared(scanner.reached)
                    start, damages = scanner.reached, []
    yield from compared(part.pieces[-1].stop)


def _damaged(damage: Damage) -> Finding:
    return Finding(
        "damagedUnit",
        damage.path,
        damage.position,
        damage.start,
        found=damage.reason,
        expected="a message",
        count=damage.stop - damage.start,
    )
