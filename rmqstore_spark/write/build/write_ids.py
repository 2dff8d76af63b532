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
from rmqstore_spark.query.option_values import WriteId
from rmqstore_spark.store.structures import config
from rmqstore_spark.write.fs.disk import Tree
from rmqstore_spark.write.fs.workshop import write_ids_path

_FORMAT = 1
_VERSIONS = range(-1 << 63, 1 << 63)


def load(tree: Tree) -> dict[str, int]:
    """The last version of each application; an empty mapping where nothing was ever remembered.

    Raises:
        RmqStoreError: the file cannot be read, or not understood.
    """
    path = write_ids_path(tree.path)
    if tree.find(path) is None:
        return {}
    try:
        return _parse(config.read_text(path, tree.files, "strict"))
    except ValueError as why:
        raise RmqStoreError(
            f"{path}: cannot be understood: {why}; delete it if no successful write will be retried"
        ) from None


def is_done(known: Mapping[str, int], write_id: WriteId) -> bool:
    """Has the application written this version already?"""
    return write_id.application in known and known[write_id.application] >= write_id.version


def put(tree: Tree, path: str, known: Mapping[str, int], write_id: WriteId | None) -> None:
    """Make a file of the known versions and of the one that comes with this write; no file where there are none."""
    versions = {**known}
    if write_id is not None:
        versions[write_id.application] = write_id.version
    if versions:
        tree.make_directory(os.path.dirname(path))
        tree.write_file(path, json.dumps({"format": _FORMAT, "transactions": versions}, indent="\t").encode())


def _parse(text: str) -> dict[str, int]:
    table = config.parse(text)
    if not config.is_exactly(table.get("format"), _FORMAT):
        raise ValueError(f"expected format {_FORMAT}, found {table.get('format')!r:.40}")
    versions = table.get("transactions")
    if not isinstance(versions, dict):
        raise ValueError("expected an object as transactions")
    for application, version in versions.items():
        if type(version) is not int or version not in _VERSIONS:
            raise ValueError(f"application {application!r:.80}: expected a version, found {version!r:.40}")
    return versions
