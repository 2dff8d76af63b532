"""The types of entries, in tables and in logs: those that are read, and the names of the others.

Source: RocksDB's db/dbformat.h (ValueType).
"""

DELETION, VALUE, MERGE, SINGLE_DELETION, RANGE_DELETION = 0, 1, 2, 7, 0xF

_OTHERS = {
    **dict.fromkeys((0x9, 0xA, 0xB, 0xC, 0x12, 0x13, 0x15), "a transaction"),
    **dict.fromkeys((0x10, 0x11), "a value in a blob file"),
    0x14: "a deletion with a timestamp",
    **dict.fromkeys((0x16, 0x17), "a wide column"),
    **dict.fromkeys((0x18, 0x19), "a value with a time of writing"),
}


def name_of_other(number: int) -> str | None:
    """The name of a type that RocksDB has, and that is not read here; None where it has none."""
    return _OTHERS.get(number)
