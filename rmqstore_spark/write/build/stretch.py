"""A few messages behind the end of a log, in the segment that is there: all of them with one small write.

A copy of a segment that is half full may cost a gigabyte. So messages that fit into the last segment are written behind
its end. Until the last step they are hidden:

    | units of the log ... | blank | new units, except the first one's first 8 bytes | zeros ...   and an empty segment
    | units of the log ... | head  | new units, except the first one's first 8 bytes | zeros ...

    A blank (8 bytes: size, magic) ends a segment, and the log goes on in the next segment, in which there is nothing. A
    reader of the log, or a broker that recovers it, sees the end of the log there, goes on in the next segment, and
    never looks at bytes behind a blank. The commit point is the write of the first unit's head (8 bytes: size, magic)
    over the blank. Blank and head are in one sector, so neither a kill nor a power cut leaves half of them.

The new units cannot simply wait behind zeros: a broker that starts after a kill would write its own messages over the
first of them, and take the following ones for its own wherever the end of its message meets the start of one of ours.
Nobody writes behind a blank.

    If the write is given up or was killed, the units are wiped out, and then the blank. If a broker has gone on in the
    next segment meanwhile, the blank stays for ever. The next segment stays in any case, as the spare one that a broker
    makes.

    A follower of the log (store/log_end.py) takes the log to end before a blank as long as the next segment is empty.
"""

import hashlib
import os
import stat
import struct
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from native_io import FORMAT, Status
from rmqstore_spark.store.io.files import ReadFile
from rmqstore_spark.store.structures.commitlog import SegmentReader
from rmqstore_spark.store.structures.layout import name_of
from rmqstore_spark.store.structures.segments import Segment
from rmqstore_spark.write.fs.disk import Tree

_MOST_BYTES = 32 * 1024 * 1024  # of messages: they are held in memory
_SECTOR = 512  # bytes that every disk writes whole
_HEAD = FORMAT["BLANK_SIZE"]  # bytes: a unit begins with size and magic, as a blank does
_BLANK = struct.Struct(">ii")
_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class InPlaceAppend:
    """The place of some messages in the log, and how they begin.

    Attributes:
        segment: where the segment starts, as a physical offset.
        segment_size: bytes of each segment.
        start: the physical offset of the first message.
        size: bytes of all messages.
        head: the first message's size and magic, in hexadecimal.
        digest: SHA-256 of all messages, in hexadecimal. The size does not suffice: a broker's own message in that place
            may well be as long as ours.
    """

    segment: int
    segment_size: int
    start: int
    size: int
    head: str
    digest: str

    @property
    def position(self) -> int:
        """The position in the file of the segment at which the messages begin."""
        return self.start - self.segment

    @property
    def blank(self) -> bytes:
        """The bytes at that position as long as the messages are hidden."""
        return _BLANK.pack(self.segment_size - self.position, FORMAT["MAGIC_BLANK"])

    @staticmethod
    def understood(found: Any) -> "InPlaceAppend | None":
        """The append that a journal describes; None where no writer makes such a one."""
        names = ("segment", "segment_size", "start", "size", "head", "digest")
        if not isinstance(found, dict) or set(found) != set(names):
            return None
        *numbers, head, digest = (found[name] for name in names)
        if not all(type(number) is int and 0 <= number < 1 << 62 for number in numbers):
            return None
        segment, segment_size, start, size = numbers
        if not (segment <= start and _HEAD < size <= _MOST_BYTES and start + size + _HEAD <= segment + segment_size):
            return None
        if not (_is_hexadecimal(head, _HEAD) and _is_hexadecimal(digest, hashlib.sha256().digest_size)):
            return None
        return InPlaceAppend(segment, segment_size, start, size, head, digest)


def digest_of(units: bytes | memoryview) -> str:
    """The digest by which an InPlaceAppend knows its messages."""
    return hashlib.sha256(units).hexdigest()


def _is_hexadecimal(found: object, nbytes: int) -> bool:
    return isinstance(found, str) and len(found) == 2 * nbytes and set(found) <= set("0123456789abcdef")


def fits(tree: Tree, segment: Segment, end: int, nbytes: int) -> bool:
    """Do messages fit into the last segment as it is, or must the segment be copied?

    Args:
        segment: the last segment that has messages.
        end: the physical offset of the log's end.
        nbytes: bytes of the messages.
    """
    position = end - segment.start
    if not _HEAD < nbytes <= _MOST_BYTES or position < 0 or position + nbytes + _HEAD > segment.size:
        return False
    if position % _SECTOR > _SECTOR - _HEAD or not tree.may_be_changed(segment.path):
        return False
    following = os.path.join(os.path.dirname(segment.path), name_of(segment.end))
    # Look farther behind, too: units that a broker has cut off would be live again after an older message.
    return not _any(tree, segment.path, position, segment.size - position) and _is_spare(tree, following, segment.size)


def _is_spare(tree: Tree, path: str, size: int) -> bool:
    """Is a segment empty, or missing so far?"""
    found = tree.find(path)
    if found is None:
        return True
    return stat.S_ISREG(found.st_mode) and found.st_size == size and not _any(tree, path, 0, _HEAD)


def _any(tree: Tree, path: str, position: int, size: int) -> bool:
    """Is there any byte other than zero in a part of a file?"""
    with ReadFile(path, tree.files) as file:
        for start, stop in file.extents(position, position + size):
            for at in range(start, stop, _AT_ONCE):
                if any(file.read(at, min(_AT_ONCE, stop - at))):
                    return True
    return False


class Laying:
    """A stretch in a store.

    Args:
        tree: the store.
        commitlog: the directory of its segments.
        workshop: where new files are made.
    """

    def __init__(self, tree: Tree, commitlog: str, workshop: str, stretch: InPlaceAppend) -> None:
        self._tree = tree
        self._commitlog = commitlog
        self._workshop = workshop
        self._stretch = stretch
        self._path = os.path.join(commitlog, name_of(stretch.segment))
        self._following = os.path.join(commitlog, name_of(stretch.segment + stretch.segment_size))

    @property
    def path(self) -> str:
        """The path of the segment."""
        return self._path

    @property
    def is_published(self) -> bool:
        """Do the messages count?"""
        if self._tree.find(self._path) is None:  # a broker has deleted it
            return False
        with ReadFile(self._path, self._tree.files) as file:
            return digest_of(file.read(self._stretch.position, self._stretch.size)) == self._stretch.digest

    def lay(self, units: memoryview) -> None:
        """End the log with a blank, and write the units behind it."""
        tree, stretch = self._tree, self._stretch
        if tree.find(self._following) is None:
            new = os.path.join(self._workshop, name_of(stretch.segment + stretch.segment_size))
            with tree.new_file(new, stretch.segment_size, self._following) as file:
                file.sync()
            tree.rename(new, self._following)
            tree.sync_directory(self._commitlog)
        with tree.open_to_change(self._path) as file:
            file.write(stretch.blank, stretch.position)
            file.sync()
            file.write(units[_HEAD:], stretch.position + _HEAD)
            file.sync()

    def publish(self) -> None:
        """Let the messages count."""
        with self._tree.open_to_change(self._path) as file:
            file.write(bytes.fromhex(self._stretch.head), self._stretch.position)

    def sync(self) -> None:
        """Wait until what publish() has written is on disk."""
        with self._tree.open_to_change(self._path) as file:
            file.sync()

    def take_back(self) -> None:
        """Wipe out the bytes behind the end of the log, unless the log goes on there: then they are not ours."""
        stretch, path = self._stretch, self._path
        if not self._tree.may_be_changed(path) or self._where_units_end() != stretch.start:
            return
        with self._tree.open_to_change(path) as file:
            for start, stop in _pieces(stretch.position + _HEAD, stretch.position + stretch.size):
                if any(file.read(start, stop - start)):
                    file.write(bytes(stop - start), start)
            file.sync()
            if _is_spare(self._tree, self._following, stretch.segment_size):
                file.write(bytes(_HEAD), stretch.position)
                file.sync()

    def _where_units_end(self) -> int:
        """The physical offset in the segment at which the units end."""
        stretch = self._stretch
        size = self._tree.status(self._path).st_size
        segment = Segment(self._path, stretch.segment, stretch.segment + stretch.segment_size, size)
        with SegmentReader(segment, self._tree.files, verify_crc=False) as reader:
            _, walked = reader.walk(segment.start, segment.end)
        return walked.at if walked.status is not Status.LIMIT else -1


def _pieces(start: int, stop: int) -> Generator[tuple[int, int], None, None]:
    for at in range(start, stop, _AT_ONCE):
        yield at, min(at + _AT_ONCE, stop)
