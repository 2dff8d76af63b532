"""Errors of databases, in the words of all errors here: file, position, expected, found, what to do."""

from rmqstore_spark.errors import DamagedStoreError

_ADVICE = "start a broker on a copy of the store, which checks and repairs the database, or bring the file back"


def damaged(path: str, position: int, expected: str, found: str) -> DamagedStoreError:
    """The error for bytes of a database that are not what RocksDB writes."""
    return DamagedStoreError(f"{path}: position {position}: expected {expected}, found {found}; {_ADVICE}")


def not_read(path: str, what: str) -> DamagedStoreError:
    """The error for something that RocksDB may write, and no broker does."""
    return DamagedStoreError(f"{path}: expected a database as a broker writes it, found {what}; {_ADVICE}")
