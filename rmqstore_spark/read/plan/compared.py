"""A comparison of two logs, place by place: do they have the same messages at the same physical offsets?

The comparison uses the messages that a read gives of each log, so damage hides no more than the messages in it. Of a
message its fixed fields are compared; one of them is the checksum of the body, so the body itself may be damaged.
"""

import functools
import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from native_io import Filter, Status
from rmqstore_spark.store.format.message import FIXED_SIZE, Fixed, header_in
from rmqstore_spark.store.format.units import Run
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.commitlog import SegmentReader
from rmqstore_spark.store.structures.segments import Extent

_BLOCK = 64 * 1024  # bytes of a segment: a search for a store time looks at one message in each of some blocks
_EQUAL = 8 * 1024 * 1024  # bytes of two segments that are compared at once: as many as one request may well give
_FIRST_UNITS = 16  # first units of a segment that are kept: logs that differ do so within these
_FEW_UNITS, _NEAR = 4, 16 * 1024  # of large units fewer are kept, so that they take few requests


class Unit(NamedTuple):
    """A unit of a log: its physical offset, its size, and the fields that tell its message from others."""

    position: int
    size: int
    topic: str
    message: Fixed


class Verdict(NamedTuple):
    """The finding for one place of two logs.

    Attributes:
        position: a physical offset at which one or both of the logs have a unit.
        is_same: whether both have the same message there. If not, there are two messages, or units that overlap, or one
            of the logs has closed its segment before the other's message.
    """

    position: int
    is_same: bool


class Region(NamedTuple):
    """The common physical offsets of two logs, in one segment of each."""

    one: Extent
    other: Extent

    @property
    def start(self) -> int:
        """The physical offset at which the region begins."""
        return max(self.one.start, self.other.start)

    @property
    def stop(self) -> int:
        """The physical offset at which the region ends."""
        return min(self.one.stop, self.other.stop)


class Log:
    """A store's log as it is compared with others: units that were looked at are kept."""

    def __init__(self, store: Snapshot) -> None:
        self.store = store
        self._units: dict[int, Unit | None] = {}
        self._firsts: dict[int, tuple[list[Unit], bool]] = {}
        self._are_whole: dict[int, bool] = {}

    def at(self, position: int) -> Unit | None:
        """The unit at a physical offset; None where there is none, or its lengths are damaged."""
        if position not in self._units:
            extent = self.store.log.extent_at(position)
            if extent is None:
                return None
            with self.store.reader(extent.segment) as reader:
                self._units[position] = next(_units_at(reader, position, extent.stop), None)
        return self._units[position]

    def is_damaged(self, position: int) -> bool:
        """Does the body of the unit at a physical offset differ from its checksum?"""
        if position not in self._are_whole:
            extent = self.store.log.extent_at(position)
            assert extent is not None
            with self.store.reader(extent.segment, verify_crc=True) as reader:
                self._are_whole[position] = reader.status_at(position, extent.stop) is not Status.BAD_BODY_CRC
        return not self._are_whole[position]

    def first_in(self, extent: Extent) -> Unit | None:
        """The first whole unit of an extent."""
        return next(self.some_in(extent), None)

    def some_in(self, extent: Extent) -> Iterator[Unit]:
        """A few of the first units of an extent, past damage if need be."""
        units, _ = self._first_units(extent)
        unit = None if units else _Walked(self.store, extent).unit()
        yield from units if unit is None else [unit]

    def first_of(self, region: Region, number: int) -> Unit | None:
        """The first whole unit that begins in a region.

        Args:
            number: which of the region's two extents, 0 or 1.
        """
        cursor = _Walked(self.store, region[number])
        cursor.to(region.start)
        unit = cursor.unit()
        if unit is not None and unit.position < region.start:
            cursor.to(unit.position + unit.size)
            unit = cursor.unit()
        return unit if unit is not None and unit.position < region.stop else None

    def has_of_time(self, unit: Unit, store_timestamp: int | None) -> bool:
        """Does the log have the message of another log's unit, at any place? A binary search: where store times do not
        ascend, the message may not be found.

        Args:
            store_timestamp: the message's store time in microseconds.
        """
        extents = self.store.log.extents
        if store_timestamp is None or not extents:
            return False
        begins = functools.partial(self._is_before, extents, store_timestamp)
        number = self.store.files.schedule.partition_point(0, len(extents), begins)
        return any(self._has_in(extent, unit, store_timestamp) for extent in extents[max(number - 1, 0) : number + 1])

    def _is_before(self, extents: Sequence[Extent], store_timestamp: int, number: int) -> bool:
        known = self.store.log.timestamp(extents[number].start)
        return known is not None and known * 1000 < store_timestamp

    def _has_in(self, extent: Extent, unit: Unit, store_timestamp: int) -> bool:
        with self.store.reader(extent.segment) as reader:

            def is_before(block: int) -> bool:
                at = reader.find(extent.start + block * _BLOCK, extent.stop)
                header = None if at is None else reader.header(at)
                return (
                    header is not None
                    and header.store_timestamp is not None
                    and header.store_timestamp < store_timestamp
                )

            blocks = -(-(extent.stop - extent.start) // _BLOCK)
            block = max(self.store.files.schedule.partition_point(0, blocks, is_before) - 1, 0)
            at = reader.find(extent.start + block * _BLOCK, extent.stop)
            while at is not None:
                for found in _units_at(reader, at, extent.stop):
                    if are_one(found, unit):
                        return True
                    at = found.position + found.size
                header = reader.header(at) if at < extent.stop else None
                if header is None or header.store_timestamp is None or header.store_timestamp > store_timestamp:
                    return False
        return False

    def few(self, extent: Extent) -> "tuple[_Cursor, bool]":
        """The first units of an extent, up to damage, and whether these are all of its units."""
        units, are_all = self._first_units(extent)
        return _Listed(units, are_all and extent.stop == extent.segment.end), are_all

    def all(self, extent: Extent) -> "_Cursor":
        """All units of an extent, with damage between them."""
        return _Walked(self.store, extent)

    def _first_units(self, extent: Extent) -> tuple[list[Unit], bool]:
        if extent.start not in self._firsts:
            with self.store.reader(extent.segment) as reader:
                units: list[Unit] = []
                at = extent.start
                while at < extent.stop and len(units) < _FIRST_UNITS:
                    if at - extent.start > _NEAR and len(units) >= _FEW_UNITS:
                        break
                    some = list(itertools.islice(_units_at(reader, at, extent.stop), _FIRST_UNITS - len(units)))
                    if not some:
                        break
                    units += some
                    at = some[-1].position + some[-1].size
                are_all = at >= extent.stop or (len(units) < _FIRST_UNITS and reader.is_closed_at(at))
            self._firsts[extent.start] = units, are_all
        return self._firsts[extent.start]


def are_one(here: Unit, there: Unit) -> bool:
    """Do two units have the same message? One byte may be damaged, as no checksum covers most of the fields: different
    messages differ in both times, and mostly in more."""
    one, other = here.message, there.message
    if here.topic != there.topic or len(one.fields) != len(other.fields) or one.store_host != other.store_host:
        return False
    return one == other or sum(a != b for a, b in zip(one.fields, other.fields, strict=True)) == 1


def is_proof(one: Log, other: Log, verdict: Verdict) -> bool:
    """Is a difference between messages real, that is, is neither message damaged as far as checksums tell?"""
    return not any(log.is_damaged(verdict.position) for log in (one, other))


def regions(one: Snapshot, other: Snapshot) -> Iterator[Region]:
    """The regions in which two logs have the same physical offsets, in order."""
    extents, others = one.log.extents, other.log.extents
    if not extents or not others:
        return
    here, there = _first_after(extents, others[0].start), _first_after(others, extents[0].start)
    while here < len(extents) and there < len(others):
        region = Region(extents[here], others[there])
        if region.start < region.stop:
            yield region
        if region.one.stop <= region.other.stop:
            here += 1
        else:
            there += 1


def _first_after(extents: list[Extent], position: int) -> int:
    """The index of the first extent that ends after a physical offset."""
    return bisect_right(extents, position, key=lambda extent: extent.stop)


def verdicts(one: Log, other: Log, region: Region) -> Iterator[Verdict]:
    """The findings for the places of a region, in order. There are none where no unit can be compared, because the
    other log is damaged at the place of each."""
    (some, are_all), (others, are_all_others) = one.few(region.one), other.few(region.other)
    last = -1
    for verdict in _joined(some, others, region, region):
        yield verdict
        last = verdict.position
    if not (are_all and are_all_others):
        rest = _joined(one.all(region.one), other.all(region.other), region, region)
        yield from (verdict for verdict in rest if verdict.position > last)


class Span(NamedTuple):
    """Physical offsets [start, stop)."""

    start: int
    stop: int


def verdicts_in(spans: Sequence[Span], one: Log, other: Log, region: Region) -> Iterator[Verdict]:
    """The findings for some parts of a region, in order."""
    here, there = one.all(region.one), other.all(region.other)
    for span in spans:
        yield from _joined(here, there, region, span)


def unequal(one: Log, other: Log, region: Region) -> list[Span]:
    """The blocks of a region in which the bytes of two logs differ."""
    found = []
    with one.store.reader(region.one.segment) as reader, other.store.reader(region.other.segment) as reader_of_other:
        for at in range(region.start, region.stop, _EQUAL):
            stop = min(at + _EQUAL, region.stop)
            if reader.read(at, stop - at) != reader_of_other.read(at, stop - at):
                found.append(Span(at, stop))
    return found


class _Cursor(Protocol):
    """A position that goes along the units of a log."""

    def unit(self) -> Unit | None:
        """The present unit; None after the last."""

    def to(self, position: int) -> None:
        """Go on to the first unit that ends after a physical offset: a unit that lies across the offset is not
        skipped."""

    @property
    def is_closed(self) -> bool:
        """After the last unit: was it the last of the segment? Else there is damage, or the log ends."""


def _joined(one: _Cursor, other: _Cursor, region: Region, part: Region | Span) -> Iterator[Verdict]:
    one.to(part.start)
    other.to(part.start)
    while (here := one.unit()) is not None and (there := other.unit()) is not None:
        if min(here.position, there.position) >= part.stop:
            return
        if here.position == there.position:
            yield Verdict(here.position, are_one(here, there))
            end = here.position + min(here.size, there.size)
            one.to(end)
            other.to(end)
            continue
        first, second, behind = (here, there, one) if here.position < there.position else (there, here, other)
        end = first.position + first.size
        if end > second.position:
            yield Verdict(second.position, False)
        behind.to(max(end, second.position))
    for ended, rest in ((one, other), (other, one)):
        unit = rest.unit()
        if ended.unit() is None and ended.is_closed and unit is not None and unit.position < region.stop:
            yield Verdict(unit.position, False)


class _Listed:
    def __init__(self, units: Sequence[Unit], is_closed: bool) -> None:
        self._units = units
        self._at = 0
        self.is_closed = is_closed

    def unit(self) -> Unit | None:
        return self._units[self._at] if self._at < len(self._units) else None

    def to(self, position: int) -> None:
        self._at = max(self._at, bisect_right(self._units, position, key=lambda unit: unit.position + unit.size))


class _Walked:
    def __init__(self, store: Snapshot, extent: Extent) -> None:
        self._extent = extent
        self._runs = self._read(store)
        self.is_closed = extent.stop == extent.segment.end
        self._run = next(self._runs, None)
        self._at = 0

    def unit(self) -> Unit | None:
        return None if self._run is None else _unit_in(self._run, self._at)

    def to(self, position: int) -> None:
        while self._run is not None:
            after = int(np.searchsorted(self._run.positions, position, side="right"))
            if after > self._at:
                before = _unit_in(self._run, after - 1)
                self._at = after - (before.position + before.size > position)
            if self._at < len(self._run.positions):
                return
            self._run, self._at = next(self._runs, None), 0

    def _read(self, store: Snapshot) -> Iterator[Run]:
        extent = self._extent
        with store.reader(extent.segment) as reader:
            for found in store.past_damage(reader).select(extent.start, extent.stop, Filter()):
                if isinstance(found, Run):
                    yield found
                elif found.stop >= extent.stop:
                    self.is_closed = False


def _unit_in(run: Run, number: int) -> Unit:
    position = int(run.positions[number])
    at = position - run.base if run.window_offsets is None else int(run.window_offsets[number])
    header = header_in(run.window, at, position)
    return Unit(position, header.size, header.topic, Fixed.of(bytes(run.window[at : at + FIXED_SIZE])))


def _units_at(reader: SegmentReader, position: int, stop: int) -> Iterator[Unit]:
    """The unit at a physical offset and the next units, as far as the same read shows them."""
    for header in reader.headers_at(position):
        if header.position + header.size > stop:
            return
        yield Unit(
            header.position, header.size, header.topic, Fixed.of(bytes(reader.seen(header.position, FIXED_SIZE)))
        )
