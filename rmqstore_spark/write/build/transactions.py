"""`.rmqstore-spark/transactions.json`: for each application the version of its last write, so that a write that is
tried again writes nothing twice.

As with Delta Lake's `txn`, an application numbers its writes upwards, and nothing is forgotten. A line has less than
100 bytes, one for each application or query of a stream; without it, a write that is tried again after a long time
would come twice. Delta keeps its own for ever, too, unless told otherwise. If no write will be tried again, the file
may be deleted by hand. The file comes into the store with the messages (change.py), never before and never without
them. Brokers do not look there.
"""

import json
import os
from collections.abc import Mapping

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.query.option_values import Transaction
from rmqstore_spark.store.structures import config
from rmqstore_spark.write.fs.disk import Tree
from rmqstore_spark.write.fs.workshop import transactions_path

_FORMAT = 1
_VERSIONS = range(-1 << 63, 1 << 63)


def load(tree: Tree) -> dict[str, int]:
    """The last version of each application; an empty mapping where nothing was ever remembered.

    Raises:
        RmqStoreError: the file cannot be read, or not understood.
    """
    path = transactions_path(tree.path)
    if tree.find(path) is None:
        return {}
    try:
        return _parse(config.read_text(path, tree.files, "strict"))
    except ValueError as why:
        raise RmqStoreError(
            f"{path}: cannot be understood: {why}; delete it if no successful write will be retried"
        ) from None


def is_done(known: Mapping[str, int], transaction: Transaction) -> bool:
    """Has the application written this version already?"""
    return transaction.application in known and known[transaction.application] >= transaction.version


def put(tree: Tree, path: str, known: Mapping[str, int], transaction: Transaction | None) -> None:
    """Make a file of the known transactions and of the one that comes with this write; no file where there are none."""
    transactions = {**known}
    if transaction is not None:
        transactions[transaction.application] = transaction.version
    if transactions:
        tree.make_directory(os.path.dirname(path))
        tree.write_file(path, json.dumps({"format": _FORMAT, "transactions": transactions}, indent="\t").encode())


def _parse(text: str) -> dict[str, int]:
    table = config.parse(text)
    if not config.is_exactly(table.get("format"), _FORMAT):
        raise ValueError(f"expected format {_FORMAT}, found {table.get('format')!r:.40}")
    transactions = table.get("transactions")
    if not isinstance(transactions, dict):
        raise ValueError("expected an object as transactions")
    for application, version in transactions.items():
        if type(version) is not int or version not in _VERSIONS:
            raise ValueError(f"application {application!r:.80}: expected a version, found {version!r:.40}")
    return transactions
