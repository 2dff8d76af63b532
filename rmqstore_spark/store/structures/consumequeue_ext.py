"""ConsumeQueueExt: data that does not fit into a ConsumeQueue unit, where `enableConsumeQueueExt` is on (since 4.1).

A unit's tagsCode is then an address: the position of the unit's other part in the files of
consumequeue_ext/<topic>/<queueId>/, taken as one file, less 2**63. A file's name is its first position, and no part
crosses a file's end. A part is
    0  i16 its size, 20 and the bitmap's   2  i64 tagsCode   10  i64 storeTimestamp (ms)   18  i16 bytes of the bitmap
followed by the bitmap, in which a broker notes which consumers' filters a message passes.
Source: org.apache.rocketmq.store.ConsumeQueueExt.
"""

import bisect
import os
import struct
from collections.abc import Iterable
from typing import NamedTuple

from rmqstore_spark.store.io.files import Files, ignore_unreadable
from rmqstore_spark.store.structures.layout import queue_path, start_in

_FIRST_ADDRESS = -(1 << 63)
LAST_ADDRESS = -(1 << 31) - 1  # a larger tagsCode is the hash of a tag, or a time
_HEAD = struct.Struct(">hqqh")
_MOST_SIZE = (1 << 15) - 1
_READ_AHEAD = 256 * 1024


class ExtUnit(NamedTuple):
    """The other part of a ConsumeQueue unit; times in ms. A broker leaves the bitmap empty where it has none."""

    tags_code: int
    store_timestamp: int
    filter_bit_map: bytes


def is_address(tags_code: int) -> bool:
    """Is a tagsCode an address? (ConsumeQueueExt.isExtAddr)"""
    return tags_code <= LAST_ADDRESS


def read_ext(root: str, topic: str, queue_id: int, addresses: Iterable[int], files: Files) -> dict[int, ExtUnit]:
    """The parts at some addresses of a queue. Addresses without a part that makes sense are left out.

    Args:
        root: the store directory.
        files: how to reach files, and where requests and bytes are counted.
    """
    path = queue_path(topic, queue_id)
    wanted = sorted({address - _FIRST_ADDRESS for address in addresses})
    if path is None or not wanted:
        return {}
    directory = os.path.join(root, "consumequeue_ext", path)
    try:
        names = files.names(directory)
    except OSError:
        return {}
    starts = sorted(start for name in names if (start := start_in(name)) is not None)
    found: dict[int, ExtUnit] = {}
    for index, start in enumerate(starts):
        stop = starts[index + 1] if index + 1 < len(starts) else 1 << 63
        here = wanted[bisect.bisect_left(wanted, start) : bisect.bisect_left(wanted, stop)]
        if here:
            found.update(_read_file(os.path.join(directory, f"{start:020d}"), start, here, files))
    return found


def _read_file(path: str, start: int, wanted: list[int], files: Files) -> dict[int, ExtUnit]:
    """The parts at some addresses of one file, which begins at `start`; `wanted` ascends."""
    found: dict[int, ExtUnit] = {}
    with ignore_unreadable(), files.file(path) as file:
        data, base = b"", 0
        for offset in wanted:
            at = offset - start - base
            if at + _MOST_SIZE > len(data):
                base = offset - start
                at, data = 0, file.read(base, _READ_AHEAD)
            unit = _unit(data, at)
            if unit is not None:
                found[offset + _FIRST_ADDRESS] = unit
    return found


def _unit(data: bytes, at: int) -> ExtUnit | None:
    if at + _HEAD.size > len(data):
        return None
    size, tags_code, store_timestamp, bits = _HEAD.unpack_from(data, at)
    end = at + _HEAD.size + bits
    if bits < 0 or size != _HEAD.size + bits or end > len(data):
        return None
    return ExtUnit(tags_code, store_timestamp, data[at + _HEAD.size : end])
