"""The losses of a salvage, as rows like those of the table `check`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from rmqstore_spark.errors import one_line
from rmqstore_spark.jobs.copying.config import Config
from rmqstore_spark.jobs.copying.source import Source
from rmqstore_spark.store.structures.config import OFFSETS
from rmqstore_spark.tables.check.problems import Finding
from rmqstore_spark.write.build.kept_offsets import Lost

_REUSED = (
    "these messages are the last of the log, so the new store's queue goes on with these queueOffsets: config/ was set "
    "accordingly, but consumers that keep offsets elsewhere have to go back to the first of them; send the messages "
    "again if their producer can"
)
_SELECTED = (
    "consumers skip these places: the options did not select these messages, or the source lacks them, too, of which "
    "check of the source tells"
)
_NO_OFFSETS = (
    "the new store does not know where consumer groups were: each begins where its clients say "
    "(consumeFromWhere), unless set-offsets puts it elsewhere"
)


class Losses:
    """Collects the messages that a salvage leaves out because they are damaged.

    Attributes:
        damages: by source number, in the order of the log.
    """

    def __init__(self) -> None:
        self.damages: dict[int, list[Finding]] = {}

    def damaged(self, source: Source, file: str, position: int, reason: str) -> None:
        """Report a damaged message; how many messages were lost with it is unknown."""
        found = Finding("damagedUnit", file, position=position, expected="messages", found=reason, count=None)
        self.damages.setdefault(source.number, []).append(found)


def of_end(source: Source, known: Iterable[Finding]) -> Iterator[Finding]:
    """One row if index files or the checkpoint know of messages after the end of a log.

    Args:
        known: their findings.
    """
    told = [f"{each.file}: expected {each.expected}, found {each.found}" for each in known]
    if told:
        store = source.store
        yield Finding(
            "lostEnd",
            store.segments[-1].path if store.segments else None,
            position=store.end,
            expected="a log that goes on here",
            found="; ".join(told),
            count=None,
        )


def of_config(config: Config) -> Iterator[Finding]:
    """A row for each file of config/ that could not be parsed."""
    for name, why in config.unread.items():
        path = os.path.join(config.root, "config", name)
        advice = _NO_OFFSETS if name in OFFSETS else None
        yield Finding("brokenConfig", path, expected="what a broker writes", found=why, count=None, advice=advice)


def of_queues(gaps: Iterable[Lost], is_whole: bool) -> Iterator[Finding]:
    """A row for each gap in a queue, with `count`, the number of messages lost; in the order of queues.

    Args:
        is_whole: all messages were to be copied.
    """
    advice = None if is_whole else _SELECTED
    for gap in sorted(gaps, key=lambda gap: (gap.queue, gap.queue_offset, gap.count)):
        topic, queue_id = gap.queue
        found = f"none from {gap.queue_offset} to {gap.queue_offset + gap.count - 1}"
        yield Finding(
            "lostMessages",
            topic=topic,
            queue_id=queue_id,
            queue_offset=gap.queue_offset,
            expected="a message for each queueOffset",
            found=f"{found}; {one_line(gap.known)}" if gap.known else found,
            count=gap.count,
            advice=_REUSED if gap.is_reused else advice,
        )
