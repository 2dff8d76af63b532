"""Copies of a store that its broker wrote meanwhile, page by page: who copies may overtake the writer and be overtaken.

A copier reads a file from its beginning on, a page at a time; between two pages the broker goes on by as much as it
likes. Files of the log and of queues only grow. So a page is what had come so far, and zeros: and a copy may have zeros
where the store has messages, with later messages after them.
"""

from __future__ import annotations

import bisect
import random
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

from oracle import reference
from oracle.stores import StoreBuilder, Stored

PAGE = 4096


class Copier:
    """Copies a whole store as if its log had grown meanwhile.

    Args:
        builder: the store as it was at last.
        begun: the physical offset up to which the log had come when the copy was begun.
        lag: bytes of the log by which the queues are behind.

    Attributes:
        now: up to which physical offset the log has come.
    """

    def __init__(self, builder: StoreBuilder, rng: random.Random, begun: int, lag: int) -> None:
        self._builder = builder
        self._rng = rng
        self._lag = lag
        self.now = self._moment(begun)
        self._queues: dict[tuple[str, int], list[Stored]] = {}
        for message in builder.messages:
            if message.queued:
                self._queues.setdefault((message.topic, message.queue_id), []).append(message)

    def copy(self, root: Path) -> Path:
        """The copy, with `abort`. The checkpoint is older than all else."""
        for name in ("abort", "lock", "config/topics.json"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes((self._builder.root / name).read_bytes())
        known = max((m.store_timestamp for m in self._builder.messages if m.end <= self.now - self._lag), default=0)
        (root / "checkpoint").write_bytes(struct.pack(">qqq", known, known, 0).ljust(PAGE, b"\0"))
        parts = [self._copy_log, self._copy_queues]
        self._rng.shuffle(parts)
        for part in parts:
            part(root)
        return root

    def _copy_log(self, root: Path) -> None:
        size = self._builder.segment_size
        # The one that begins next is there already.
        names = [path for path in reference.segment_files(self._builder.root) if int(path.name) <= self.now + size]
        for path in self._in_any_order(names):
            start = int(path.name)
            self._copy(path, root / "commitlog" / path.name, partial(self._logged_from, start))

    def _copy_queues(self, root: Path) -> None:
        for (topic, queue_id), messages in self._queues.items():
            directory = self._builder.queue_directory(topic, queue_id)
            here = root / directory.relative_to(self._builder.root)
            here.mkdir(parents=True, exist_ok=True)
            names = [path for path in sorted(directory.iterdir()) if int(path.name) < self._written(messages)]
            for path in self._in_any_order(names):
                start = int(path.name)
                self._copy(path, here / path.name, partial(self._written_from, messages, start))

    def _logged_from(self, start: int) -> int:
        return self.now - start

    def _written_from(self, messages: list[Stored], start: int) -> int:
        return self._written(messages) - start

    def _written(self, messages: list[Stored]) -> int:
        """Bytes of a queue that are there by now; of a unit rarely a part, up to a page."""
        size = reference.QUEUE_UNIT_SIZE
        count = sum(message.end <= self.now - self._lag for message in messages)
        page = -(-count * size // PAGE) * PAGE
        is_torn = count < len(messages) and page < (count + 1) * size and self._rng.random() < 0.3
        return page if is_torn else count * size

    def _in_any_order(self, paths: list[Path]) -> list[Path]:
        if self._rng.random() < 0.3:
            self._rng.shuffle(paths)
        return paths

    def _copy(self, source: Path, target: Path, written: Callable[[], int]) -> None:
        data, found = source.read_bytes(), bytearray()
        for at in range(0, len(data), PAGE):
            self._go_on()
            page = data[at : at + PAGE]
            found += page[: max(0, written() - at)].ljust(len(page), b"\0")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(found)

    def _go_on(self) -> None:
        if self._rng.random() < 0.3:
            self.now = self._moment(self.now + self._rng.choice((1, 50, 300, 3000, 3000, 9000)))

    def _moment(self, position: int) -> int:
        """Where the writer can be seen near a physical offset: after a message, or where a page begins. A broker copies
        a message into the file at once, and is held up only where it touches a page for the first time."""
        at = bisect.bisect_right(self._builder.messages, position, key=lambda message: message.position) - 1
        if at < 0:
            return self._builder.start
        message = self._builder.messages[at]
        if position >= message.end:
            return message.end
        return max(message.position, position // PAGE * PAGE)
