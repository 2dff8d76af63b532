"""Compressed bodies up to the largest one that is believed."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pytest

from rmqstore_spark.store.format import bodies

FLAGS = {"lz4": 0x100, "zstd": 0x200, "zlib": 0x300}


@pytest.mark.parametrize("chunk", [1, 300, 1 << 20])
@pytest.mark.parametrize("name", FLAGS)
def test_the_largest_body(name: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "LARGEST_BODY", 1000)
    monkeypatch.setattr(bodies, "_CHUNK", chunk)
    for size in (1, 300, 999, 1000, 1001, 5000, 1 << 20):
        sent = bytes(size)
        if name == "zlib":
            body = zlib.compress(sent)
        else:
            sink = pa.BufferOutputStream()
            with pa.CompressedOutputStream(sink, name) as stream:
                stream.write(sent)
            body = sink.getvalue().to_pybytes()
        if size <= 1000:
            assert bodies.decompress(body, 1 | FLAGS[name]) == sent
        else:
            with pytest.raises(bodies.BadBodyError, match="more than 1000 bytes: read it with decompress=false"):
                bodies.decompress(body, 1 | FLAGS[name])
