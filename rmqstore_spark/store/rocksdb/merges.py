"""Merge operands: what is to be added to a key's value. What that means is up to the merge operator, which only the
database's options name.

Brokers' databases have RocksDB's StringAppendOperator: the value, and the operands after it, with a delimiter between.
No broker up to 5.5.0 writes operands.
Source: RocksDB's utilities/merge_operators/string_append/stringappend.cc, options/options_parser.cc.
"""

import os
import re
from collections.abc import Iterable

from rmqstore_spark.store.io.files import Files, cannot_read
from rmqstore_spark.store.rocksdb.entry_types import DELETION, MERGE, SINGLE_DELETION, VALUE, name_of_other
from rmqstore_spark.store.rocksdb.faults import not_read

_NAMED = re.compile(r"OPTIONS-([0-9]{6,19})")
_MOST_BYTES = 1024 * 1024  # of the options; a broker's have 20 KB
_SECTION = re.compile(r'\[CFOptions "(.*)"\]')
_OPERATOR = re.compile(r"merge_operator=(.*)")
_APPENDING = re.compile(r"\{id=StringAppendOperator;delimiter=([^;\\{}]*);\}")

Version = tuple[int, int, bytes]  # sequence number, type and value of an entry


def delimiter_of(directory: str, family: str, files: Files) -> bytes:
    """The delimiter that a column family's operands are appended with.

    Args:
        directory: the database's directory.
        family: the column family's name.
        files: how to reach files, and where requests and bytes are counted.

    Raises:
        RmqStoreError: the options cannot be read, or the column family has another merge operator.
    """
    try:
        numbers = [(int(found[1]), name) for name in files.names(directory) if (found := _NAMED.fullmatch(name))]
    except OSError as why:
        raise cannot_read(directory, why) from None
    if not numbers:
        raise not_read(directory, "merge operands, and no OPTIONS that name their operator")
    path = os.path.join(directory, max(numbers)[1])
    with files.file(path) as file:
        text = file.read(0, min(file.size, _MOST_BYTES)).decode(errors="replace")
    operator = _operator_of(text, family)
    appending = _APPENDING.fullmatch(operator)
    if appending is None:
        raise not_read(path, f"merge operands with the operator {operator:.80}")
    return appending[1].encode()


def _operator_of(options: str, family: str) -> str:
    """The merge operator that options name for a column family."""
    is_here = False
    for line in map(str.strip, options.splitlines()):
        if section := _SECTION.fullmatch(line):
            is_here = section[1] == family
        elif is_here and (found := _OPERATOR.fullmatch(line)):
            return found[1]
    return "nullptr"


def merged(versions: Iterable[Version], deleted_before: int, delimiter: bytes, directory: str) -> bytes | None:
    """The value of a key that has operands; None where there is none.

    Args:
        versions: all entries of the key.
        deleted_before: older entries than this sequence number are in a deleted range.
        delimiter: what operands are appended with.
        directory: the database's directory.

    Raises:
        DamagedStoreError: an entry is of a type that is not read.
    """
    parts: list[bytes] = []
    for number, kind, value in sorted({version[0]: version for version in versions}.values(), reverse=True):
        if number < deleted_before or kind in (DELETION, SINGLE_DELETION):
            break
        if kind not in (VALUE, MERGE):
            raise not_read(directory, name_of_other(kind) or f"an entry of type {kind}")
        parts.append(value)
        if kind == VALUE:
            break
    return delimiter.join(reversed(parts)) if parts else None
