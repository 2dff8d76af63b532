"""A commitlog of DLedger (enableDLegerCommitLog): entries of a Raft log, each with one message unit.

    <root>/dledger-<id>/data/<20 digits>    the entries; storePathDLedgerCommitLog may name another directory
    <root>/dledger-<id>/index/<20 digits>   where each entry is, again: asked where an entry's header may be damaged
    <root>/dledger-<id>/checkpoint          committedIndex and endIndex, as of some time ago
    <root>/dledger-<id>/currterm            the term, and whom the node voted for
    <root>/commitlog/<20 digits>            messages from before the broker was switched to DLedger, if any

An entry is i32 magic, i32 size of the entry, i64 index, i64 term, i64 physical offset of its first byte, i32 channel,
i32 chainCrc, i32 bodyCrc, i32 bodyLength, body: 48 bytes before the body. The body is a message unit; entries that only
make a new leader known, or change the members, have none. index/ has for each entry i32 magic, i64 physical offset, i32
size, i64 index, i64 term, at 32 times its index; a truncation leaves what was there.
Source: docs/format.md (DLedger); io.openmessaging.storage.dledger.store.file.DLedgerMmapFileStore,
entry.DLedgerEntryCoder; org.apache.rocketmq.store.dledger.DLedgerCommitLog.
"""

import os
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from native_io import Wrapping
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures.entries import Entry, Marks, NotedEntry

_DIRECTORY = "dledger-"
_MARK = re.compile(r"^\s*(committedIndex|endIndex)\s*[=:]\s*(-?[0-9]{1,19})\s*$", re.MULTILINE | re.ASCII)
_FILE = re.compile(r"[0-9]{20}", re.ASCII)
_MOST_TEXT = 4096  # bytes
_HEADER = struct.Struct(">iiqqqiiii")
_NOTE = struct.Struct(">iqiqq")
_MOST = (1 << 63) // _NOTE.size  # entries
_MAGICS = (1, 2, 3)  # a message; an entry without one; a change of the members


_WRAPPING = Wrapping(_HEADER.size, 4, 24, 44, (8, 16))


@dataclass(frozen=True)
class DLedgerLog:
    """The kind of store; see kinds.WrappedLog."""

    what: str = "a log of DLedger"
    wrapping: Wrapping = _WRAPPING

    def directories(self, root: str, names: Iterable[str], files: Files) -> list[str]:
        """The directories with entries, of each DLedger node that has been in this store."""
        found = (os.path.join(root, name, "data") for name in sorted(names) if name.startswith(_DIRECTORY))
        return [path for path in found if files.is_directory(path)]

    def begins(self, head: bytes, start: int) -> bool:
        """Does a file that starts at a physical offset begin with an entry?"""
        if len(head) < _HEADER.size:
            return False
        magic, size, *_, position, _channel, _chain, _crc, body = _HEADER.unpack_from(head)
        return magic in _MAGICS and size == _HEADER.size + body and body >= 0 and position == start

    def marks(self, root: str, names: Iterable[str], files: Files) -> Marks | None:
        """What the node had written down; None where it has not, or in no form that can be understood."""
        for name in sorted(names):
            path = os.path.join(root, name, "checkpoint")
            if name.startswith(_DIRECTORY) and files.exists(path):
                with files.file(path) as file:
                    text = file.read(0, _MOST_TEXT).decode("latin-1")
                found = {key: int(number) for key, number in _MARK.findall(text)}
                if found.keys() >= {"committedIndex", "endIndex"}:
                    return Marks(found["committedIndex"], found["endIndex"])
        return None

    def led_by(self, root: str, names: Iterable[str]) -> list[str]:
        """The files with the term: a node that hears of a leader in a later one writes that down, and only then takes
        entries back (MemberState.nextTerm)."""
        return [os.path.join(root, name, "currterm") for name in sorted(names) if name.startswith(_DIRECTORY)]

    def noted(self, root: str, names: Iterable[str], number: int, files: Files) -> NotedEntry | None:
        """What index/ has of an entry."""
        found = [os.path.join(root, name, "index") for name in names if name.startswith(_DIRECTORY)]
        found = [path for path in found if files.is_directory(path)]
        return _note(found[0], number, files) if len(found) == 1 and 0 <= number < _MOST else None


def _note(directory: str, number: int, files: Files) -> NotedEntry | None:
    """What a directory with notes has of an entry."""
    at = number * _NOTE.size
    starts = (int(name) for name in files.names(directory) if _FILE.fullmatch(name))
    start = max((start for start in starts if start <= at), default=None)
    if start is None:
        return None
    with files.file(os.path.join(directory, f"{start:020d}")) as file:
        data = file.read(at - start, _NOTE.size)
    magic, position, size, index, term = _NOTE.unpack(data.ljust(_NOTE.size, b"\0"))
    is_noted = magic in _MAGICS and index == number
    return NotedEntry(Entry(index, term), position, position + size) if is_noted else None


DLEDGER = DLedgerLog()
