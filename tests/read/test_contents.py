"""Options bodyContains and property select what a filter on the columns of a full scan selects, in the kernel."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from oracle import reference
from oracle.random_stores import COMPRESSED_FLAGS, random_store
from oracle.stores import StoreBuilder
from support.command import run

from rmqstore_spark import DamagedStoreError, OptionError, Store
from rmqstore_spark.query.options import parse_options
from rmqstore_spark.query.stream_options import parse_stream_options

COLUMNS = ["commitLogOffset", "body", "properties"]


def positions(root: Path, **options: Any) -> list[int]:
    found = Store(root).messages(columns=["commitLogOffset"], **options).read_all()
    return found.column(0).to_pylist()  # type: ignore[no-any-return]


def lower(name: str) -> str:
    return "".join(c.lower() if c.isascii() else c for c in name)


@pytest.mark.parametrize("number", range(3))
def test_as_a_full_scan(tmp_path: Path, rng: random.Random, number: int) -> None:
    root = random_store(tmp_path / "store", rng, messages=150, segment_size=16384).root
    rows = Store(root).messages(columns=COLUMNS).read_all().to_pylist()
    bodies = [row["body"] for row in rows if len(row["body"]) > 3]
    for _ in range(20):
        body = rng.choice(bodies)
        start = rng.randrange(len(body))
        some = rng.choice((body[start : start + rng.randrange(1, 9)], body, b"hello", b"lo h", b"nowhere", b"\0"))
        selected = [row for row in rows if some in row["body"]]
        wanted = [row["commitLogOffset"] for row in selected]
        assert positions(root, bodyContains=some) == wanted
        assert Store(root).messages(columns=COLUMNS, bodyContains=some).read_all().to_pylist() == selected
        if wanted:
            assert positions(root, bodyContains=some.hex().join(("hex:", ""))) == wanted
    pairs = [pair for row in rows for pair in row["properties"]]
    for _ in range(20):
        name, value = rng.choice(pairs)
        if {"\1", "\2"} & {*name, *value} or "\ufffd" in name:
            continue
        wanted = [row["commitLogOffset"] for row in rows if _last(row["properties"], name) == value]
        assert (
            positions(root, property={rng.choice((name, name.swapcase() if name.isascii() else name)): value}) == wanted
        )
    name, value = pairs[0]
    both = {"UNIQ_KEY": next(value for name, value in pairs if name == "UNIQ_KEY"), "TAGS": "TagA"}
    wanted = [r["commitLogOffset"] for r in rows if both.items() <= dict(r["properties"]).items()]
    assert positions(root, property=both) == wanted


def _last(properties: list[tuple[str, str]], name: str) -> str | None:
    """The value of the last property of this name, whatever its case; names in a row are in the order of the unit."""
    values = [value for other, value in properties if lower(other) == lower(name)]
    return values[-1] if values else None


@pytest.mark.parametrize("flag", COMPRESSED_FLAGS)
def test_compressed_bodies(tmp_path: Path, flag: int) -> None:
    """Of any kind and size: what the kernel leaves alone Python decompresses."""
    builder = StoreBuilder(tmp_path, segment_size=1 << 20)
    large = b"a" * 17_000_000 + b"needle"
    for body in (b"", b"needle", b"x" * 70_000 + b"needle", b"y" * 70_000, large):
        builder.append("T", reference.compress_body(body, flag), sys_flag=flag)
    builder.append("T", b"", sys_flag=flag)
    builder.close()
    wanted = [builder.messages[n].position for n in (1, 2, 4)]
    assert positions(tmp_path, bodyContains="needle") == wanted
    assert positions(tmp_path, bodyContains="needle", decompress=False) == wanted


def test_a_body_that_cannot_be_decompressed_is_reported(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.append("T", b"needle")
    builder.append("T", b"no zlib", sys_flag=1)
    builder.append("T", b"other")
    builder.close()
    with pytest.raises(DamagedStoreError, match="should be zlib-compressed"):
        Store(tmp_path).messages(bodyContains="needle").read_all()
    rows = Store(tmp_path).messages(columns=["body", "corrupt"], bodyContains="needle", mode="PERMISSIVE").read_all()
    assert [row["body"] for row in rows.to_pylist()] == [b"needle", None]
    assert positions(tmp_path, bodyContains="needle", mode="DROPMALFORMED")[0] == builder.messages[0].position


def test_a_damaged_body_is_no_body_without_it(tmp_path: Path) -> None:
    """A wrong CRC decides nothing."""
    builder = StoreBuilder(tmp_path)
    for body in (b"needle", b"neeele", b"other"):
        builder.append("T", body)
    builder.close()
    path = builder.segment(0)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"neeele", b"neefle"))
    with pytest.raises(DamagedStoreError, match="bodyCRC"):
        positions(tmp_path, bodyContains="needle")
    assert positions(tmp_path, bodyContains="needle", mode="DROPMALFORMED") == [0]
    assert positions(tmp_path, bodyContains="needle", verifyCrc=False) == [0]


def test_in_batches(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    inner = [reference.Inner(f"body {n}".encode(), f"n\x01{n % 2}\x02".encode(), n) for n in range(6)]
    builder.append("B", reference.encode_batch(inner), sys_flag=0xC0, messages=6)
    builder.close()
    rows = Store(tmp_path).messages(columns=["body"], property={"N": "1"}).read_all()
    assert rows.column(0).to_pylist() == [b"body 1", b"body 3", b"body 5"]
    assert Store(tmp_path).messages(columns=["body"], bodyContains="y 4").read_all().to_pylist() == [
        {"body": b"body 4"}
    ]


def test_the_last_of_equal_names_counts(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    for properties in (b"a\x01x\x02a\x01y", b"a\x01y\x02A\x01x\x02", b"a\x01\x02a\x01x\x02b\x01a\x01x", b"ab\x01x"):
        builder.append("T", b"", properties=properties)
    builder.close()
    assert positions(tmp_path, property="a=x") == [builder.messages[n].position for n in (1, 2)]
    assert positions(tmp_path, property="b=a") == []


# ---- how it is said


def test_spellings() -> None:
    wanted = frozenset({("color", "red"), ("Size", "1=1")})
    for given in (
        {"property.color": "red", "property.Size": "1=1"},
        {"Property.color": "red", "PROPERTY.Size": "1=1"},
        {"property": '{"color": "red", "Size": "1=1"}'},
    ):
        assert parse_options({"path": "/x", **given}).selection.properties == wanted
        assert parse_stream_options({"path": "/x", **given}).read.selection.properties == wanted
    assert parse_options({"path": "/x", "property": "a=b=c"}).selection.properties == {("a", "b=c")}
    assert parse_options({"path": "/x", "bodyContains": "hex:00ff"}).selection.body == b"\0\xff"
    assert parse_options({"path": "/x", "bodyContains": "Zürich"}).selection.body == "Zürich".encode()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"bodyContains": ""}, "option 'bodyContains': expected a text that is not empty, found ''"),
        ({"bodyContains": "hex:0"}, "option 'bodyContains': expected pairs of hex digits after hex:, found 'hex:0'"),
        ({"property": "red"}, "option 'property': expected JSON such as .*, or NAME=VALUE, found 'red'"),
        ({"property": "=red"}, "neither of them empty"),
        ({"property.a": ""}, "neither of them empty"),
        ({"property": '{"a": 1}'}, "neither of them empty"),
        ({"property": "a=\x02"}, "without the characters 1 and 2"),
        ({"property": "a=b", "property.c": "d"}, "options 'property' and 'property.c' are given together"),
    ],
)
def test_what_is_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        parse_options({"path": "/x", **given})


def test_calls_and_commands(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    for number in range(10):
        builder.append(
            "T", b'{"n": %d}' % number, properties={"color": "red" if number % 2 else "blue", "n": str(number)}
        )
    builder.close()
    store = Store(builder.root)
    assert store.messages(columns=["topic"], **{"property.color": "red"}).read_all().num_rows == 5  # type: ignore[arg-type]
    assert store.usage(property={"color": "blue"}, bodyContains='"n": 4').column("messages").to_pylist() == [1]
    assert store.copy(tmp_path / "copy", property={"color": "red"}).messages == 5
    told = run("messages", str(builder.root), "--property", "color=red", "--property", "n=3", "--format", "json").out
    assert [json.loads(line)["body"] for line in told.splitlines()] == ['{"n": 3}']
    told = run("tail", str(builder.root), "--body-contains", "n", "-n", "1", "--format", "json").out
    assert json.loads(told)["body"] == '{"n": 9}'
    assert run("messages", str(builder.root), "--property", "a=1", "--property", "a=2").code == 2
