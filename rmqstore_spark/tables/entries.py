"""Single values of an entry in a config file, converted to the column's type whatever the file has."""

from typing import Any

Entry = dict[str, Any]


def flag_of(entry: Entry, name: str, default: bool) -> bool | None:
    """True or false; the default if the entry has no such member, None if the member is something else."""
    found = entry.get(name, default)
    return found if isinstance(found, bool) else None


def number_of(entry: Entry, name: str, default: int) -> int | None:
    """A number of 32 bits; default and None as for flag_of()."""
    found = entry.get(name, default)
    return found if type(found) is int and -(1 << 31) <= found < 1 << 31 else None


def attributes_of(entry: Entry) -> dict[str, str]:
    """The attributes of an entry (since RocketMQ 5.0) that are texts."""
    found = entry.get("attributes")
    if not isinstance(found, dict):
        return {}
    return {name: value for name, value in found.items() if isinstance(value, str)}
