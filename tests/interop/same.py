"""A store somewhere else answers as the one on the disk; and what changes there is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import reading

from interop.buckets import Bucket
from rmqstore_spark import NotAStoreError, StorageError, Store
from rmqstore_spark.read.stores import files_of
from rmqstore_spark.store.files import Pin
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


def assert_pinned(bucket: Bucket, root: Path) -> None:
    """An object that is replaced or deleted after it was seen is told, and no object is taken for another one.

    Args:
        root: a store on the disk; a copy of its first segment is put into the bucket.
    """
    content = min((root / "commitlog").iterdir()).read_bytes()
    key = f"changing/commitlog/{'0' * 20}"
    bucket.client.put(key, content)
    uri = f"{bucket.uri}/{key}"
    options = reading.parse_options({"path": f"{bucket.uri}/changing", **bucket.options})
    files = files_of(options)
    pin = files.pin(uri)
    assert pin is not None
    assert pin.tag

    def head(pin: Pin) -> bytes:
        with files_of(options).file(uri, pin=pin) as file:
            return file.read(0, 100)

    assert head(pin) == content[:100]
    bucket.client.put(key, content[:-1] + b"x")
    for old in (pin, Pin(pin.size, "none"), Pin(pin.size, '"none"')):
        with pytest.raises(StorageError, match="another one since the read was planned; load the store again"):
            head(old)
    newer = files_of(options).pin(uri)
    assert newer is not None
    assert head(newer) == content[:100]
    bucket.client.delete(key)
    with pytest.raises(StorageError, match="gone since the read was planned; load the store again"):
        head(newer)


def assert_told(bucket: Bucket, uri: str, wrong: dict[str, str]) -> None:
    """What is wrong with whom and what is asked for: one line each.

    Args:
        uri: of a store in the bucket.
        wrong: options with a key that the server does not know, and the text that must be told nowhere.
    """

    def told(uri: str, kind: type[Exception], text: str, **options: Any) -> str:
        with pytest.raises(kind, match=text) as error:
            Store(uri, **{**bucket.options, **options})
        assert "\n" not in str(error.value)
        return str(error.value)

    told(f"{bucket.uri}/nothing", NotAStoreError, "no such directory")
    if not uri.startswith("gs:"):  # fake-gcs-server answers 500
        told(uri.replace("//stores", "//elsewhere"), StorageError, "there is no such bucket")
    bucket.client.put("store.tar.gz", b"packed")
    told(f"{bucket.uri}/store.tar.gz", NotAStoreError, "this is an archive: unpack it")
    for name, text in wrong.items():
        assert text not in told(uri, StorageError, "access denied", **{name: text})
