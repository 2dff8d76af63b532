"""A store somewhere else answers as the one on the disk."""

from __future__ import annotations

from pathlib import Path

from rmqstore_spark import Store
from rmqstore_spark.tables.registry import TABLES


def assert_same(there: Store, uri: str, root: Path) -> None:
    """Messages, a look-up by key, and all tables, but for what nobody can see there.

    Args:
        uri: of the one that is asked.
        root: the same store on the disk.
    """
    here = Store(root)
    assert there.messages().read_all() == here.messages().read_all()
    word = next(key for key in here.messages(columns=["keys"]).read_all()["keys"].to_pylist() if key).split()[0]
    assert there.messages(key=word).read_all() == here.messages(key=word).read_all()
    for name in set(TABLES) - {"messages"}:
        found, expected = there.table(name), here.table(name)
        names = [name for name in found.column_names if name not in ("allocated", "sizeOnDisk", "locked")]
        rows = str(found.select(names).to_pylist()).replace(uri, str(root))
        assert rows == str(expected.select(names).to_pylist()), name
