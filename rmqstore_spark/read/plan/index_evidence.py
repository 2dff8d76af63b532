"""The evidence of each index file on the names that are looked up, and the messages of the log where files begin and
end.

The files of a store are examined side by side: the functions that run so take values and return values, errors among
them. Conclusions from one file to the next are drawn from all the answers together (index_path).
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
from rmqstore_spark.store.format.system_topics import RETRY_PREFIX, TRANSACTION_TOPICS, WAITING_TOPICS
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.live_log import LiveLog
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.config import group_entries
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

_AT_ONCE = 64  # files that are open at a time
_FEW = 64  # matches in a file, up to which the log is asked already during the look-up whether they are live


class IndexedNames:
    """The names that are looked up in a store's index files.

    Attributes:
        names: keys or ids.
        topics: the topics that selected messages can be in. A topic of which only messages are left is not among them.
        are_sure: whether all topics are known that have queues. Not if a RocksDB of queues cannot be read.
        offsets: of the units that ids name as well: a text may be one of two kinds of id.
        hashes: the hashes of all names in all topics.

    Args:
        selection: what is selected; it has names or ids.
    """

    def __init__(self, store: Snapshot, selection: Selection) -> None:
        self.names = selection.names or frozenset([min(selection.ids)])
        offsets = [] if selection.names else [physical_offset_of(name) for name in self.names]
        self.offsets = [offset for offset in offsets if offset is not None]
        self.are_sure = True
        if selection.topic.among is not None:
            topics = set(selection.topic.among)
        elif selection.assigned is not None:
            topics = set(selection.assigned)
        else:
            topics = store.queues.topics | set(store.topics) | store.consumed_topics | _of_the_broker(store)
            self.are_sure = store.queues.why_not is None
            selection.topic.learn(topics)
        self.topics = [topic for topic in sorted(topics) if selection.wants_topic(topic)]
        hashes = {key_hash(topic, name) for topic in self.topics for name in self.names}
        self.hashes: Hashes = np.fromiter(hashes, np.int32)


def _of_the_broker(store: Snapshot) -> set[str]:
    """The topics that a broker makes by itself, and names nowhere but in its queues, if it is not sure that queues have
    all there are: in RocksDB they may lack the end. (Config v2 has no topics of retries.)"""
    if not store.queues.may_lack_topics:
        return set()
    groups = {*group_entries(store.root, store.files), *(group for group, _ in store.consumer_offsets)}
    return {*WAITING_TOPICS, *TRANSACTION_TOPICS, *(RETRY_PREFIX + group for group in groups)}


class LiveUnit(NamedTuple):
    """A live message of the log.

    Attributes:
        stop: the physical offset where it ends.
        timestamp: its store time (ms).
        following: the physical offset of the next message, if it is in the same segment and right after this one.
    """

    stop: int
    timestamp: int
    following: int


@dataclass(frozen=True)
class LookUp:
    """The result of a look-up in an index file.

    Attributes:
        size: bytes of the file.
        file: the file, as returned by IndexReader.check() or check_next().
        positions: as returned by IndexReader.lookup().
    """

    size: int
    file: IndexFile
    positions: Positions | None


@dataclass(frozen=True)
class FileEvidence:
    """The evidence of one or more index files of a store.

    Attributes:
        headers: the header of each file by path, or the error that kept it from being read.
        look_ups: the result of each look-up by path, or the error.
        units: the units of the log where files begin and end, by physical offset; None: no message there is surely
            live.
        proved: the physical offsets up to which segments are live, by the starts of the segments.
    """

    headers: Mapping[str, Header | RmqStoreError] = field(default_factory=dict)
    look_ups: Mapping[str, LookUp | RmqStoreError] = field(default_factory=dict)
    units: Mapping[int, LiveUnit | None] = field(default_factory=dict)
    proved: Mapping[int, int] = field(default_factory=dict)


def merged(parts: Iterable[FileEvidence]) -> FileEvidence:
    """All parts together. Where two parts have an entry for one key, the later part counts."""
    found = FileEvidence({}, {}, {}, {})
    for part in parts:
        for whole, more in zip(vars(found).values(), vars(part).values(), strict=True):
            whole.update(more)
    return found


_Answer = TypeVar("_Answer")
Begun = Future[FileEvidence] | None  # evidence that another thread gathers from index files


def begin_look_up(store: Snapshot, selection: Selection) -> Begun:
    """Let another thread examine the first index files, as far as possible before the end of the log is known. None
    where a request takes no time, and where nothing is looked up."""
    if not (selection.names or selection.ids):
        return None
    return store.files.schedule.in_background(functools.partial(_begun, store, selection))


def _begun(store: Snapshot, selection: Selection) -> FileEvidence:
    times, log = selection.store_timestamp, store.log_without_end()

    def is_asked(header: Header) -> bool:
        # A broker's rule (LogTimes has the right one), which suffices for a look-up that only begins here.
        return times == ALL or may_hold(header.begin_timestamp, header.end_timestamp, times.least, times.most)

    try:
        paths = index_paths(store.layout.index, store.files)
        hashes = IndexedNames(store, selection).hashes
        price = sum(look_up_price(size, len(hashes), store.files) for size in paths.values())
        if price >= sum(segment.size for segment in store.segments):
            return FileEvidence()
        some = list(paths)[: store.files.prices.concurrency + 1]
        found = examine(store.files, log, some, is_asked, hashes, may_have_old_pages=store.may_have_old_pages)
    except RmqStoreError:  # the error comes again where the file is needed
        return FileEvidence()
    look_ups = {path: each for path, each in found.look_ups.items() if isinstance(each, LookUp)}
    return FileEvidence({}, look_ups, {at: unit for at, unit in found.units.items() if unit is not None}, log.proved)


def read_headers(paths: Sequence[str], files: Files) -> dict[str, Header | RmqStoreError]:
    """The headers of index files, or the errors that kept them from being read."""
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
    *,
    may_have_old_pages: bool,
) -> FileEvidence:
    """Look hashes up in index files, and look in the log where files begin and end. Each file is opened once.

    Args:
        log: learns which of its parts are live.
        paths: all files, in order.
        is_asked: whether a file with that header is examined.
        known: earlier evidence for these hashes.
        may_have_old_pages: see IndexReader.

    Returns:
        The evidence, including the known one.
    """
    found = known or FileEvidence()
    for first in range(0, len(paths), _AT_ONCE):
        found = _examine(files, log, paths[first : first + _AT_ONCE], is_asked, hashes, found, may_have_old_pages)
    return found


def _examine(
    files: Files,
    log: LiveLog,
    paths: Sequence[str],
    is_asked: Callable[[Header], bool],
    hashes: Hashes,
    known: FileEvidence,
    may_have_old_pages: bool,
) -> FileEvidence:
    with contextlib.ExitStack() as stack:
        opened = _all_opened(files, paths, known.headers, may_have_old_pages)
        readers = [stack.enter_context(each) for each in opened.values() if isinstance(each, IndexReader)]
        there = [reader for reader in readers if not reader.is_empty]
        asked = [reader for reader in there if is_asked(reader.header)]
        ends = [end for end in _ends(there, asked) if not known.units.keys() >= set(end)]
        files.prefetch(_places(log, itertools.chain.from_iterable(ends)))
        new = [reader for reader in asked if reader.path not in known.look_ups]
        slots = {each.size: each.file.slots for each in known.look_ups.values() if isinstance(each, LookUp)}
        works = [functools.partial(_units_of, log, end) for end in ends]
        for reader in new:
            # The first file has no file before it that would prove its beginning, so it is examined more closely.
            is_first = not known.look_ups and reader is new[0]
            works.append(functools.partial(look_up, files, log, reader, hashes, slots, not is_first, is_first))
        found = merged([known, *files.schedule.mapped(_done, works)])
        slots = {each.size: each.file.slots for each in found.look_ups.values() if isinstance(each, LookUp)}
        again = [reader for reader in new if reader.path not in found.look_ups]
        works = [functools.partial(look_up, files, log, reader, hashes, slots, True, True) for reader in again]
        headers = {path: each.header if isinstance(each, IndexReader) else each for path, each in opened.items()}
        return merged([found, FileEvidence(headers), *files.schedule.mapped(_done, works)])


def _all_opened(
    files: Files, paths: Sequence[str], headers: Mapping[str, Header | RmqStoreError], may_have_old_pages: bool
) -> dict[str, IndexReader | RmqStoreError]:
    """Some files by path, open, or the errors that kept them from being read.

    Args:
        headers: the headers of those files that were opened before.
    """
    files.prefetch((path, 0) for path in paths if path not in headers)
    works = [functools.partial(_opened, files, path, headers.get(path), may_have_old_pages) for path in paths]
    return dict(zip(paths, files.schedule.mapped(_done, works), strict=True))


def _opened(
    files: Files, path: str, header: Header | RmqStoreError | None, may_have_old_pages: bool = False
) -> IndexReader | RmqStoreError:
    try:
        return IndexReader(path, files, header if isinstance(header, Header) else None, may_have_old_pages)
    except RmqStoreError as error:
        return error


def _done(work: Callable[[], _Answer]) -> _Answer:
    return work()


def _ends(there: Sequence[IndexReader], asked: Sequence[IndexReader]) -> Iterator[tuple[int, ...]]:
    """The physical offsets at which files begin and end: where one file ends the next one mostly begins, so that one
    read shows both messages."""
    is_begun, paths = False, {reader.path for reader in asked}
    for number, reader in enumerate(there):
        is_asked = reader.path in paths
        if is_asked and not is_begun:
            yield (reader.header.begin_position,)
        if is_asked:
            yield (reader.header.end_position, *(after.header.begin_position for after in there[number + 1 :][:1]))
        is_begun = is_asked


def _places(log: LiveLog, positions: Iterable[int]) -> Iterator[tuple[str, int]]:
    """The places in files to read for the units of the log at some physical offsets, and for the proofs that they are
    live."""
    for position in set(positions):
        extent = log.extent_at(position)
        following = None if extent is None else log.extent_at(extent.segment.end)
        for at, each in ((position, extent), (0 if following is None else following.start, following)):
            if each is not None:
                yield each.segment.path, at - each.segment.start


def units_at(log: LiveLog, end: Sequence[int]) -> dict[int, LiveUnit | None]:
    """The units of the log at one or two physical offsets.

    Raises:
        RmqStoreError: the log cannot be read.
    """
    if end[0] < end[-1]:
        before, after = log.two_headers(end[0], end[-1])
        # The later unit comes first: if it is live, so are the units before it.
        return {end[-1]: _live_unit(log, after), end[0]: _live_unit(log, before)}
    return {position: _live_unit(log, log.headers_at(position)) for position in end}


def _units_of(log: LiveLog, end: Sequence[int]) -> FileEvidence:
    with contextlib.suppress(RmqStoreError):  # the error comes again when the units are asked for
        return FileEvidence(units=units_at(log, end))
    return FileEvidence()


def _live_unit(log: LiveLog, headers: Sequence[UnitHeader]) -> LiveUnit | None:
    """The first of some consecutive units, if it is live; else None."""
    if not headers or headers[0].store_timestamp is None:
        return None
    position, size, timestamp = headers[0].position, headers[0].size, headers[0].store_timestamp
    extent = log.extent_at(position)
    if extent is None or log.liveness(position, headers=headers) is not Evidence.LIVE:
        return None
    return LiveUnit(position + size, timestamp // 1000, position + size + extent.segment.header)


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
        log: learns whether the messages that are found are live.
        slots: the number of slots of a file, by its size, as far as known.
        may_be_next: whether the file probably begins where another one ends, so that IndexReader.check_next() suffices.
        may_check: whether the file is otherwise checked against its header. If not, the evidence may be empty.
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
    """Let the log find out whether messages are live."""
    last = {extent.start: at for at in positions[:_FEW].tolist() if (extent := log.extent_at(at)) is not None}
    files.prefetch(_places(log, last.values()))
    with contextlib.suppress(RmqStoreError):
        for position in last.values():
            log.liveness(position)
