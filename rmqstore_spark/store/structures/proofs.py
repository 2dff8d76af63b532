"""What a plan saw in a store, so that a task can check before its first row that it reads the same store.

A path proves nothing: each broker has a /root/store of its own, a copy may be of yesterday, and a store may be replaced
while a read of it goes on. Object storage has tags for this purpose; on disks some bytes of the log serve, which never
change once written. A log only grows at its end and is deleted from its beginning. So a store with the same last
message has all earlier messages that have not expired, and a store that has only grown is the same store.
"""

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rmqstore_spark.errors import RmqStoreError, StorageError
from rmqstore_spark.store.format.message import MARK_SIZE, Head, mark_of
from rmqstore_spark.store.io.files import Files, Pin
from rmqstore_spark.store.structures.layout import SEGMENT_NAME

PROOF_SIZE = 256  # bytes: of most messages all but the body, and all of a small one
_ADVICE = (
    "give every executor the same store (where all machines reach it, or a copy on each), and load it again if it was "
    "replaced"
)


@dataclass(frozen=True)
class Proof:
    """Some bytes of a file that a plan has looked at.

    Large because a task has to find the same bytes in the same object, and to say who saw them where if it does
    not.

    Attributes:
        root: the store directory.
        path: the file.
        offset: the position of the bytes in the file.
        data: the bytes.
        start: the physical offset that the file begins with; None for a file outside the commitlog.
        pin: the remote object, where the file was one.
        by: the host and process of the plan.
        may_expire: whether a broker may have deleted the file, and the store is still the same.
        before: the proof of an earlier place of the same log: if only that one holds, the log is an older copy.
        key: of the record in a RocksDB that has the bytes; `path` is the database's directory then.
    """

    root: str
    path: str
    offset: int
    data: bytes
    start: int | None
    pin: Pin | None
    by: tuple[str, int]
    may_expire: bool = True
    before: "Proof | None" = None
    key: bytes | None = None

    @property
    def place(self) -> tuple[str, int]:
        """The file, and the position of the bytes in it."""
        return self.path, self.offset

    @property
    def where(self) -> str:
        """A text that names the place."""
        if self.key is not None:
            return f"{self.path}: the record with key {self.key.hex()}"
        return f"{self.path}: position {self.offset}" + (
            "" if self.start is None else f" (commitLogOffset {self.start + self.offset})"
        )

    def in_words(self, data: bytes) -> str:
        """A text that describes the place, if these are its bytes."""
        position = None if self.start is None else self.start + self.offset
        if not any(data):
            return "zeros" if data else "the end of the file" if self.key is None else "no such record"
        mark = None if position is None or len(data) < MARK_SIZE else mark_of(data, position)
        if mark is None:
            return f"bytes {data[:20].hex()}{'...' if len(data) > 20 else ''}"
        head = Head.of(data)
        return (
            f"a message (storeSize {head.size}, queueId {head.queue_id}, queueOffset {head.queue_offset}, "
            f"storeTimestamp {mark.store_timestamp}, bodyCRC {mark.body_crc})"
        )


def proof_of(
    root: str, path: str, offset: int, size: int, files: Files, start: int | None = None, pin: Pin | None = None
) -> Proof | None:
    """The proof of a place in a file as it is now; None where there are no bytes. See proofs_of()."""
    return proofs_of(root, path, [(offset, size)], files, start, pin)[0]


def proofs_of(
    root: str,
    path: str,
    places: Sequence[tuple[int, int]],
    files: Files,
    start: int | None = None,
    pin: Pin | None = None,
) -> list[Proof | None]:
    """The proofs of places in a file as it is now; None where there are no bytes.

    Args:
        root: the store directory.
        places: where in the file each begins, and how many bytes from there on never change; the proof takes PROOF_SIZE
            of them at most.
        files: how to reach files, and where requests and bytes are counted.
        start: the physical offset that the file begins with, for a file of the commitlog.
        pin: the remote object, where the file is one.
    """

    def proof(offset: int, data: bytes) -> Proof | None:
        held = None if pin is None else replace(pin, proof=(offset, data))
        return Proof(root, path, offset, data, start, held, _here()) if data else None

    with files.file(path, pin=pin) as file:
        return [proof(at, file.read(at, min(PROOF_SIZE, size)) if size > 0 else b"") for at, size in places]


def record_proof(root: str, directory: str, key: bytes, data: bytes) -> Proof:
    """The proof of a record of a RocksDB, whose value begins with some bytes."""
    return Proof(root, directory, 0, data, None, None, _here(), key=key)


def hold(proofs: Sequence[Proof], files: Files) -> None:
    """Check that a store is the one that a plan has seen.

    Args:
        proofs: what the plan saw. Proofs that do not expire come first, as they say more.
        files: how the store's files are reached here.

    Raises:
        StorageError: the store is another one, an older copy, or missing.
        RmqStoreError: the store cannot be read; or a segment is gone and all else unchanged, or all that is left is
            later: the segment has expired.
    """

    if not proofs:  # of each segment that the plan itself reads
        return
    together: dict[str | tuple[str, int], list[Proof]] = {}  # those of one file on a disk
    for proof in proofs:
        together.setdefault(proof.path if proof.pin is None else proof.place, []).append(proof)

    def hold_some(some: list[Proof]) -> None:
        if some[0].pin is not None:
            files.hold(some[0].path, some[0].pin)
            return
        for proof, found in zip(some, _found(some, files), strict=True):
            if found is not None:
                raise _differs(proof, found, files)

    files.schedule.mapped(hold_some, together.values())


def _found(proofs: list[Proof], files: Files) -> list[str | None]:
    """Texts on the bytes in the places of proofs of one path; None where the bytes are those that the plan saw."""
    try:
        return [_difference(proof, data) for proof, data in zip(proofs, _bytes_of(proofs, files), strict=True)]
    except RmqStoreError:
        first = proofs[0]
        if not _is_missing(first.path, files):
            raise
        if _is_missing(os.path.dirname(first.path), files):
            raise _unseen(first) from None
        if first.may_expire or _is_overtaken(first, files):
            raise
        return ["no such file" for _ in proofs]


def _difference(proof: Proof, data: bytes) -> str | None:
    """A text on the bytes in a proof's place; None where the bytes are those that the plan saw.

    A file that has been cut since then, but shows enough to tell a message from others, is the same file, damaged: its
    reader reports that.
    """
    if data == proof.data or (len(data) >= MARK_SIZE and proof.data.startswith(data)):
        return None
    expected, found = proof.in_words(proof.data), proof.in_words(data)
    if expected != found:
        return found
    first = next((at for at, (one, other) in enumerate(zip(proof.data, data, strict=False)) if one != other), len(data))
    return f"one that differs from byte {first} on"


def _bytes_of(proofs: list[Proof], files: Files) -> list[bytes]:
    """The bytes that are in the places of proofs of one path."""
    keys = [proof.key for proof in proofs if proof.key is not None]
    if not keys:
        with files.file(proofs[0].path) as file:
            return [file.read(proof.offset, len(proof.data)) for proof in proofs]
    # Imported here, as most stores have no such database.
    from rmqstore_spark.store.rocksdb.database import Database

    database = Database.open(proofs[0].path, files)
    return [(database.get(key) or b"")[: len(proof.data)] for key, proof in zip(keys, proofs, strict=True)]


def _is_missing(path: str, files: Files) -> bool:
    try:
        files.status(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # the file may be there
        pass
    return False


def _is_overtaken(proof: Proof, files: Files) -> bool:
    """Does the log go on after a segment that is gone, with nothing left of what the plan saw? So it is where a broker
    deletes faster than a read goes on: the first segment that is left is a later one, and begins with a message that
    belongs there, stored later. It may be the log of another broker as well. Either way it is an error, and a new plan
    sees what is there."""
    directory, name = os.path.split(proof.path)
    if proof.start is None or (was := mark_of(proof.data, proof.start + proof.offset)) is None:
        return False
    try:
        first = min(other for other in files.names(directory) if SEGMENT_NAME.fullmatch(other))
        with files.file(os.path.join(directory, first)) as file:
            found = mark_of(file.read(0, MARK_SIZE), int(first))
    except (OSError, RmqStoreError, ValueError):
        return False
    return first > name and found is not None and found.store_timestamp >= was.store_timestamp


def _differs(proof: Proof, found: str, files: Files) -> StorageError:
    is_older = proof.before is not None and _holds(proof.before, files)
    which = " (it begins alike: an older copy, or one that was cut)" if is_older else ""
    return StorageError(
        f"{_who(proof)} sees another store under {proof.root} than the plan{which}: {proof.where}: expected "
        f"{proof.in_words(proof.data)}, found {found}; {_ADVICE}"
    )


def _holds(proof: Proof, files: Files) -> bool:
    try:
        return _found([proof], files) == [None]
    except RmqStoreError:
        return False


def _unseen(proof: Proof) -> StorageError:
    above, name = os.path.split(proof.path)
    if proof.by == _here():
        return StorageError(f"{above}: it is gone since a read was planned that saw {name} in it; load the store again")
    return StorageError(
        f"{_who(proof)} does not see the driver's directories: expected {proof.path}, found no such directory; "
        f"{_ADVICE}"
    )


def _who(proof: Proof) -> str:
    here = _here()
    return "this process" if here == proof.by else f"this executor ({here[0]})"


def _here() -> tuple[str, int]:
    return socket.gethostname(), os.getpid()
