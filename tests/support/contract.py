"""What holds for a store wherever it is kept: it answers as the one on the disk, what changes there meanwhile is told,
and so is in one line what is wrong with whom and what is asked for. Each kind of storage is held to it by a test of its
own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqstore_spark import NotAStoreError, StorageError, Store
from rmqstore_spark.read.plan.stores import files_of
from rmqstore_spark.store.io.files import Pin
from rmqstore_spark.tables.registry import TABLES
from support import reading
from support.backends import Backend

UNSEEN = ("allocated", "sizeOnDisk", "locked")  # what a file takes on a disk, and a lock, nobody can see from elsewhere


def assert_same(backend: Backend, key: str, root: Path) -> None:
    """Messages, whatever selects them, and all tables.

    Args:
        key: of a copy of the store.
        root: the store on the disk.
    """
    uri = f"{backend.uri}/{key}"
    there, here = Store(uri, **backend.options), Store(root)  # type: ignore[arg-type]

    def rows(table: pa.Table) -> list[dict[str, Any]]:
        kept = [name for name in table.column_names if name not in UNSEEN]
        return [
            {name: value.replace(uri, str(root)) if isinstance(value, str) else value for name, value in row.items()}
            for row in table.select(kept).to_pylist()
        ]

    known = here.messages(columns=["keys", "topic"]).read_all()
    word = next(keys for keys in known["keys"].to_pylist() if keys).split()[0]
    selections: list[dict[str, Any]] = [
        {},
        {"key": word},
        {"subscribe": known["topic"].to_pylist()[-1]},
        {"startingTimestamp": "2000-01-01"},
        {"minPartitions": 5},
    ]
    for given in selections:
        expected = rows(here.messages(columns=[*reading.ALL_COLUMNS], **given).read_all())
        assert expected
        assert rows(there.messages(columns=[*reading.ALL_COLUMNS], **given).read_all()) == expected, given
    for name in TABLES:
        assert rows(there.table(name)) == rows(here.table(name)), name
    assert repr(there) == repr(here).replace(str(root), uri)


def assert_pinned(backend: Backend, root: Path) -> None:
    """An object that is replaced or deleted after it was seen is told, and no object is taken for another one.

    Args:
        root: a store on the disk; a copy of its first segment is put into the backend.
    """
    content = min((root / "commitlog").iterdir()).read_bytes()
    key = f"changing/commitlog/{'0' * 20}"
    backend.client.put(key, content)
    uri = f"{backend.uri}/{key}"
    options = reading.parse_options({"path": f"{backend.uri}/changing", **backend.options})
    files = files_of(options)
    pin = files.pin(uri)
    assert pin is not None
    assert pin.tag

    def head(pin: Pin) -> bytes:
        with files_of(options).file(uri, pin=pin) as file:
            return file.read(0, 100)

    assert head(pin) == content[:100]
    backend.client.put(key, content[:-1] + b"x")
    for old in (pin, Pin(pin.size, "none"), Pin(pin.size, '"none"')):
        with pytest.raises(StorageError, match="replaced since the read was planned; load the store again"):
            head(old)
    newer = files_of(options).pin(uri)
    assert newer is not None
    assert head(newer) == content[:100]
    backend.client.delete(key)
    with pytest.raises(StorageError, match="gone since the read was planned; load the store again"):
        head(newer)


def assert_told(backend: Backend, uri: str, wrong: dict[str, str]) -> None:
    """What is wrong with whom and what is asked for: one line each.

    Args:
        uri: of a store in the backend.
        wrong: options with a key that the server does not know, and the text that must be told nowhere.
    """

    def told(uri: str, kind: type[Exception], text: str, **options: Any) -> str:
        with pytest.raises(kind, match=text) as error:
            Store(uri, **{**backend.options, **options})
        assert "\n" not in str(error.value)
        return str(error.value)

    told(f"{backend.uri}/nothing", NotAStoreError, "no such directory")
    if not uri.startswith("gs:"):  # fake-gcs-server answers 500
        told(uri.replace("//stores", "//elsewhere"), StorageError, "there is no such bucket")
    backend.client.put("store.tar.gz", b"packed")
    told(f"{backend.uri}/store.tar.gz", NotAStoreError, "this is an archive: unpack it")
    for name, text in wrong.items():
        assert text not in told(uri, StorageError, "access denied", **{name: text})
