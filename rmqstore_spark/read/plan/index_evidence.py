"""What index files say of names that are looked up, each by itself, and what the log has where they begin and end.

The files of a store are examined beside each other: what runs so takes values and answers with values, errors among
them. What follows from one file to the next is told from all the answers together (index_path).
"""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.query.selection import ALL, Selection
from rmqstore_spark.read.plan.prune import physical_offset_of
from rmqstore_spark.store.evidence import Evidence
from rmqstore_spark.store.format.clock import may_hold
from rmqstore_spark.store.format.message import Header as UnitHeader
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.live_log import LiveLog
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.indexfile import (
    Hashes,
    Header,
    IndexFile,
    IndexReader,
    Positions,
    by_slot,
    index_paths,
    key_hash,
    likely_slots,
    look_up_price,
)

_AT_ONCE = 64  # files that are open
_FEW = 64  # messages that a file has of the names, up to which it is asked with the look-up whether they are live


class IndexedNames:
    """What is looked up in a store's index files.

    Attributes:
        names: keys or ids.
        topics: in which selected messages can be. A topic of which nothing but messages is left is not known.
        offsets: of the units that ids name as well: a text may be one of two ids.
        hashes: of all names in all topics.

    Args:
        selection: what is selected; it has names or ids.
    """

    def __init__(self, store: Snapshot, selection: Selection) -> None:
        self.names = selection.names or frozenset([min(selection.ids)])
        offsets = [] if selection.names else [physical_offset_of(name) for name in self.names]
        self.offsets = [offset for offset in offsets if offset is not None]
        if selection.topic.among is not None:
            topics = set(selection.topic.among)
        elif selection.assigned is not None:
            topics = set(selection.assigned)
        else:
            topics = store.queues.topics | set(store.topics) | store.consumed_topics
            selection.topic.learn(topics)
        self.topics = [topic for topic in sorted(topics) if selection.wants_topic(topic)]
        hashes = {key_hash(topic, name) for topic in self.topics for name in self.names}
        self.hashes: Hashes = np.fromiter(hashes, np.int32)


class LiveUnit(NamedTuple):
    """A live message of the log: where it ends, and its store time (ms)."""

    stop: int
    timestamp: int


@dataclass(frozen=True)
class LookUp:
    """What a look-up in an index file found.

    Attributes:
        size: bytes of the file.
        file: the file, as IndexReader.check() or check_next() has it.
        positions: as of IndexReader.lookup().
    """

    size: int
    file: IndexFile
    positions: Positions | None


@dataclass(frozen=True)
class FileEvidence:
    """What is known of index files of a store, one or more.

    Attributes:
        headers: of each file by path, or why it cannot be read.
        look_ups: what was found in them, or the error, by path.
        units: what the log has where they begin and end, by physical offset; None: no message that is sure to be live.
        proved: up to where segments are live, by where these start.
    """

    headers: Mapping[str, Header | RmqStoreError] = field(default_factory=dict)
    look_ups: Mapping[str, LookUp | RmqStoreError] = field(default_factory=dict)
    units: Mapping[int, LiveUnit | None] = field(default_factory=dict)
    proved: Mapping[int, int] = field(default_factory=dict)


def merged(parts: Iterable[FileEvidence]) -> FileEvidence:
    """What all of them know. Of the same the last one is believed."""
    found = FileEvidence({}, {}, {}, {})
    for part in parts:
        for whole, more in zip(vars(found).values(), vars(part).values(), strict=True):
            whole.update(more)
    return found


_Answer = TypeVar("_Answer")
Begun = Future[FileEvidence] | None  # what another thread finds out of index files


def begin_look_up(store: Snapshot, selection: Selection) -> Begun:
    """Have another thread examine the first index files, as far as that can be before it is known where the log ends.
    None where a request takes no time, and where nothing is looked up."""
    if not (selection.names or selection.ids):
        return None
    return store.files.schedule.in_background(functools.partial(_begun, store, selection))


def _begun(store: Snapshot, selection: Selection) -> FileEvidence:
    times, log = selection.store_timestamp, store.log_without_end()

    def is_asked(header: Header) -> bool:
        # A broker's rule (LogTimes has the right one), for what is only begun here.
        return times == ALL or may_hold(header.begin_timestamp, header.end_timestamp, times.least, times.most)

    try:
        paths = index_paths(store.layout.index, store.files)
        hashes = IndexedNames(store, selection).hashes
        price = sum(look_up_price(size, len(hashes), store.files) for size in paths.values())
        if price >= sum(segment.size for segment in store.segments):
            return FileEvidence()
        found = examine(store.files, log, list(paths)[: store.files.prices.concurrency + 1], is_asked, hashes)
    except RmqStoreError:  # who needs what cannot be read is told so then
        return FileEvidence()
    look_ups = {path: each for path, each in found.look_ups.items() if isinstance(each, LookUp)}
    return FileEvidence({}, look_ups, {at: unit for at, unit in found.units.items() if unit is not None}, log.proved)


def read_headers(paths: Sequence[str], files: Files) -> dict[str, Header | RmqStoreError]:
    """The headers of index files, or why they cannot be read."""
    files.prefetch((path, 0) for path in paths)
    return dict(zip(paths, files.schedule.mapped(functools.partial(_header, files), paths), strict=True))


def _header(files: Files, path: str) -> Header | RmqStoreError:
    reader = _opened(files, path, None)
    if isinstance(reader, RmqStoreError):
        return reader
    with reader:
        return reader.header


def examine(
    files: Files,
    log: LiveLog,
    paths: Sequence[str],
    is_asked: Callable[[Header], bool],
    hashes: Hashes,
    known: FileEvidence | None = None,
) -> FileEvidence:
    """Look hashes up in index files, and look in the log where these begin and end. Each file is opened once.

    Args:
        log: gets to know what of it is live.
        paths: all files, in order.
        is_asked: whether a file of that header is examined.
        known: what was found out before, of the same hashes.

    Returns:
        Also what is known already.
    """
    found = known or FileEvidence()
    for first in range(0, len(paths), _AT_ONCE):
        found = _examine(files, log, paths[first : first + _AT_ONCE], is_asked, hashes, found)
    return found


def _examine(
    files: Files,
    log: LiveLog,
    paths: Sequence[str],
    is_asked: Callable[[Header], bool],
    hashes: Hashes,
    known: FileEvidence,
) -> FileEvidence:
    with contextlib.ExitStack() as stack:
        opened = _all_opened(files, paths, known.headers)
        readers = [stack.enter_context(each) for each in opened.values() if isinstance(each, IndexReader)]
        there = [reader for reader in readers if not reader.is_empty]
        asked = [reader for reader in there if is_asked(reader.header)]
        ends = [end for end in _ends(there, asked) if not known.units.keys() >= set(end)]
        files.prefetch(_places(log, itertools.chain.from_iterable(ends)))
        new = [reader for reader in asked if reader.path not in known.look_ups]
        slots = {each.size: each.file.slots for each in known.look_ups.values() if isinstance(each, LookUp)}
        works = [functools.partial(_units_of, log, end) for end in ends]
        for reader in new:
            # Nothing says of the first file that it goes on where another one ends, so it is looked at more closely.
            is_first = not known.look_ups and reader is new[0]
            works.append(functools.partial(look_up, files, log, reader, hashes, slots, not is_first, is_first))
        found = merged([known, *files.schedule.mapped(_done, works)])
        slots = {each.size: each.file.slots for each in found.look_ups.values() if isinstance(each, LookUp)}
        again = [reader for reader in new if reader.path not in found.look_ups]
        works = [functools.partial(look_up, files, log, reader, hashes, slots, True, True) for reader in again]
        headers = {path: each.header if isinstance(each, IndexReader) else each for path, each in opened.items()}
        return merged([found, FileEvidence(headers), *files.schedule.mapped(_done, works)])


def _all_opened(
    files: Files, paths: Sequence[str], headers: Mapping[str, Header | RmqStoreError]
) -> dict[str, IndexReader | RmqStoreError]:
    """Some files by path, open, or why they cannot be read.

    Args:
        headers: of those that were opened before.
    """
    files.prefetch((path, 0) for path in paths if path not in headers)
    works = [functools.partial(_opened, files, path, headers.get(path)) for path in paths]
    return dict(zip(paths, files.schedule.mapped(_done, works), strict=True))


def _opened(files: Files, path: str, header: Header | RmqStoreError | None) -> IndexReader | RmqStoreError:
    try:
        return IndexReader(path, files, header if isinstance(header, Header) else None)
    except RmqStoreError as error:
        return error


def _done(work: Callable[[], _Answer]) -> _Answer:
    return work()


def _ends(there: Sequence[IndexReader], asked: Sequence[IndexReader]) -> Iterator[tuple[int, ...]]:
    """The physical offsets at which files begin and end: where one ends the next mostly begins, so that one read shows
    both messages."""
    is_begun, paths = False, {reader.path for reader in asked}
    for number, reader in enumerate(there):
        is_asked = reader.path in paths
        if is_asked and not is_begun:
            yield (reader.header.begin_position,)
        if is_asked:
            yield (reader.header.end_position, *(after.header.begin_position for after in there[number + 1 :][:1]))
        is_begun = is_asked


def _places(log: LiveLog, positions: Iterable[int]) -> Iterator[tuple[str, int]]:
    """Where in files the log is read to know of the units at some physical offsets, and what proves them live."""
    for position in set(positions):
        extent = log.extent_at(position)
        following = None if extent is None else log.extent_at(extent.segment.end)
        for at, each in ((position, extent), (0 if following is None else following.start, following)):
            if each is not None:
                yield each.segment.path, at - each.segment.start


def units_at(log: LiveLog, end: Sequence[int]) -> dict[int, LiveUnit | None]:
    """What the log has at one or two physical offsets.

    Raises:
        RmqStoreError: it cannot be read.
    """
    if end[0] < end[-1]:
        before, after = log.two_headers(end[0], end[-1])
        # The later one comes first: where it is live, so is what comes before it.
        return {end[-1]: _live_unit(log, after), end[0]: _live_unit(log, before)}
    return {position: _live_unit(log, log.headers_at(position)) for position in end}


def _units_of(log: LiveLog, end: Sequence[int]) -> FileEvidence:
    with contextlib.suppress(RmqStoreError):  # who asks again is told why
        return FileEvidence(units=units_at(log, end))
    return FileEvidence()


def _live_unit(log: LiveLog, headers: Sequence[UnitHeader]) -> LiveUnit | None:
    """The first one of some units that follow each other, if it is live."""
    if not headers or headers[0].store_timestamp is None:
        return None
    position, size, timestamp = headers[0].position, headers[0].size, headers[0].store_timestamp
    is_live = log.liveness(position, headers=headers) is Evidence.LIVE
    return LiveUnit(position + size, timestamp // 1000) if is_live else None


def look_up(
    files: Files,
    log: LiveLog,
    reader: IndexReader,
    hashes: Hashes,
    slots: Mapping[int, int],
    may_be_next: bool,
    may_check: bool,
) -> FileEvidence:
    """Look hashes up in one file.

    Args:
        log: gets to know whether the messages that are found are live.
        slots: how many files have, by size, as far as that is known.
        may_be_next: whether it mostly begins where another one ends: IndexReader.check_next() does for that.
        may_check: whether it is held against its header else. If not, nothing may be known of it then.
    """
    try:
        own = slots.get(reader.size)
        file = reader.check_next(likely_slots(reader.size)[0] if own is None else own) if may_be_next else None
        positions = None if file is None else reader.lookup(file, by_slot(hashes, file.slots))
        if positions is None and may_check:
            file = reader.check(slots.values() if own is None else [own])
            positions = reader.lookup(file, by_slot(hashes, file.slots))
        if file is None or (positions is None and not file.is_sure):
            return FileEvidence()
    except RmqStoreError as error:
        return FileEvidence(look_ups={reader.path: error})
    if positions is not None:
        _ask_if_live(files, log, positions)
    return FileEvidence(look_ups={reader.path: LookUp(reader.size, file, positions)})


def _ask_if_live(files: Files, log: LiveLog, positions: Positions) -> None:
    """Have the log find out whether messages are live."""
    last = {extent.start: at for at in positions[:_FEW].tolist() if (extent := log.extent_at(at)) is not None}
    files.prefetch(_places(log, last.values()))
    with contextlib.suppress(RmqStoreError):
        for position in last.values():
            log.liveness(position)
