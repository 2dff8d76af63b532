"""Topics, groups and offsets that a broker keeps in RocksDB: the tables have them, or say that they do not know them.

Oracles are what clients of that broker saw, and the same configuration in files.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from oracle import rocksdb
from support import flavours, remote

from rmqstore_spark import Store
from rmqstore_spark.errors import DeletedMeanwhileError
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.io.remote.files import RemoteFiles
from rmqstore_spark.store.rocksdb.database import Database
from rmqstore_spark.store.rocksdb.entries import Entries
from rmqstore_spark.store.structures import config
from rmqstore_spark.store.structures.rocksdb_config import config_in_rocksdb
from rmqstore_spark.store.structures.rocksdb_popped import Popped, popped_in_rocksdb

WITH_OFFSETS = ("rocksdb-all", "rocksdb-all-v2", "rocksdb-metadata")
PLACES = {"rocksdb-all": "consumerOffsets", "rocksdb-all-v2": "rdb", "rocksdb-metadata": "metadata"}

Unpack = Callable[[str], tuple[Path, list[dict[str, Any]]]]


@pytest.fixture
def unpack(tmp_path: Path) -> Unpack:
    return lambda name: flavours.unpack(name, tmp_path)


def consumed(events: list[dict[str, Any]]) -> dict[tuple[str, str, int], int]:
    """What clients consumed: the offset after the last message of each queue, by group, topic and queue."""
    found: dict[tuple[str, str, int], int] = {}
    for event in events:
        if event["event"] == "consumed":
            place = event["group"], event["topic"], event["queueId"]
            found[place] = max(found.get(place, 0), event["queueOffset"] + 1)
    return found


@pytest.mark.parametrize("name", WITH_OFFSETS)
def test_offsets_are_what_clients_consumed(name: str, unpack: Unpack) -> None:
    root, events = unpack(name)
    rows = {(row["group"], row["topic"], row["queueId"]): row for row in Store(root).offsets().to_pylist()}
    expected = consumed(events)
    assert expected
    for place, offset in expected.items():
        assert rows[place]["consumerOffset"] == offset
        assert rows[place]["lag"] == 0


@pytest.mark.parametrize("name", WITH_OFFSETS)
def test_topics_that_clients_sent_to_are_configured(name: str, unpack: Unpack) -> None:
    root, events = unpack(name)
    sent = Counter(event["topic"] for event in events if event["event"] == "sent")
    topics = {row["topic"]: row for row in Store(root).topics().to_pylist()}
    assert sent
    for topic in sent:
        assert topics[topic]["configured"]
        assert (topics[topic]["readQueueNums"], topics[topic]["perm"]) == (2, "RW-")
    assert {row["group"] for row in Store(root).groups().to_pylist() if row["configured"]} >= {
        "rocksdb-all-v2": {"PopG"},
    }.get(name, {"TOOLS_CONSUMER", "SELF_TEST_C_GROUP"})


@pytest.mark.parametrize("name", WITH_OFFSETS)
def test_a_read_starts_where_a_group_stands(name: str, unpack: Unpack, caplog: pytest.LogCaptureFixture) -> None:
    root, events = unpack(name)
    assert Store(root).messages(startingOffsets="group:CG", subscribe="Rk").read_all().num_rows == 0
    assert sum(offset for (group, _, _), offset in consumed(events).items() if group == "CG") == len(
        [event for event in events if event["event"] == "sent" and event["topic"] == "Rk"]
    )
    assert not [text for text in caplog.messages if "config" in text]


@pytest.mark.parametrize("name", WITH_OFFSETS)
def test_the_same_configuration_in_files_gives_the_same_rows(name: str, unpack: Unpack) -> None:
    root, _ = unpack(name)
    of_rocksdb = {table: Store(root).table(table) for table in ("topics", "groups", "offsets")}
    for file in ("topics.json", "subscriptionGroup.json", "consumerOffset.json"):
        member = config.MEMBERS[file]
        (root / "config" / file).write_text(json.dumps({member: config.member_of(str(root), file, member, Files())}))
    for place in (root / "config").iterdir():
        if place.is_dir():
            place.rename(root / place.name)
    assert {table: Store(root).table(table) for table in of_rocksdb} == of_rocksdb


@pytest.mark.parametrize("name", WITH_OFFSETS)
def test_in_object_storage_it_is_the_same(name: str, unpack: Unpack) -> None:
    root, _ = unpack(name)
    for part in ("topics", "groups", "offsets"):
        local = config_in_rocksdb(str(root), part, Files())
        assert local is not None
        assert local.table
        assert config_in_rocksdb(str(root), part, RemoteFiles(bucket=remote.bucket)) == local


@pytest.mark.parametrize("name", WITH_OFFSETS)
def test_offsets_of_one_topic_are_those_among_all(name: str, unpack: Unpack) -> None:
    root, _ = unpack(name)
    found = config_in_rocksdb(str(root), "offsets", Files())
    assert found is not None
    topics = {key.partition("@")[0] for key in found.table or {}}
    assert topics
    rows = Store(root).offsets().to_pylist()
    for topic in (*topics, "R", "Rk@CG", "%LMQ%No"):
        some = config_in_rocksdb(str(root), "offsets", Files(), [topic])
        expected = {key: of for key, of in (found.table or {}).items() if key.partition("@")[0] == topic}
        assert some is not None
        assert {key: of for key, of in (some.table or {}).items() if key in expected} == expected
        selected = [row for row in rows if row["topic"] == topic]
        assert Store(root).offsets(subscribe=topic).to_pylist() == selected


@pytest.mark.parametrize("place", ["consumerOffsets", "metadata"])
def test_offsets_of_one_topic_are_read_without_others(place: str, tmp_path: Path) -> None:
    """However many there are, one table is read for one topic."""

    def read(topics: int) -> int:
        root = tmp_path / str(topics)
        offsets = [
            (f"T{topic:06}@G{group}".encode(), json.dumps({"offsetTable": {"0": topic}}).encode())
            for topic in range(topics)
            for group in range(3)
        ]
        family = "default" if place == "consumerOffsets" else "consumerOffset"
        tables = [{family: offsets[at : at + 1500]} for at in range(0, len(offsets), 1500)]
        rocksdb.write(root / "config" / place, tables, {}, in_block=64)
        files = Files()
        found = config_in_rocksdb(str(root), "offsets", files, ["T000007"])
        assert found is not None
        assert found.table == {f"T000007@G{group}": {"0": 7} for group in range(3)}
        return files.bytes

    few, many = read(1000), read(2000)
    assert few < many < 1.1 * few


@pytest.mark.parametrize("name", WITH_OFFSETS)
def test_a_damaged_database_is_not_an_empty_one(name: str, unpack: Unpack, caplog: pytest.LogCaptureFixture) -> None:
    root, _ = unpack(name)
    directory = root / "config" / PLACES[name]
    for table in directory.glob("*.sst"):
        data = table.read_bytes()
        table.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    found = config_in_rocksdb(str(root), "offsets", Files())
    assert found is not None
    assert (found.table, found.directory) == (None, str(directory))
    assert "expected a block with its CRC-32C" in (found.why_not or "")
    assert Store(root).offsets().num_rows == 0
    what = "consumers' offsets" if name == "rocksdb-all" else "configuration and consumers' offsets"
    assert [text for text in caplog.messages if text.endswith("lacks what is only there")] == [
        f"{directory}: {what} in RocksDB: not read, so table 'offsets' lacks what is only there"
    ]


def test_of_two_databases_none_is_taken(unpack: Unpack) -> None:
    root, _ = unpack("rocksdb-all")
    (root / "config" / "rdb").mkdir()
    (root / "config" / "rdb" / "CURRENT").touch()
    found = config_in_rocksdb(str(root), "topics", Files())
    assert found is not None
    assert found.table is None
    assert found.why_not == f"{root}/config/topics: expected the only database of topics, found config/rdb as well"


def test_a_file_beside_the_database_is_told(unpack: Unpack, caplog: pytest.LogCaptureFixture) -> None:
    root, _ = unpack("rocksdb-metadata")
    file = root / "config" / "consumerOffset.json"
    file.write_text('{"offsetTable":{"Rk@CG":{0:1}}}')
    with caplog.at_level(logging.WARNING):
        rows = Store(root).offsets().to_pylist()
    assert [(row["queueId"], row["consumerOffset"]) for row in rows] == [(0, 3), (1, 3)]
    assert [text for text in caplog.messages if text.startswith(f"{file}: there is a RocksDB as well")]


@pytest.mark.parametrize("name", WITH_OFFSETS)
def test_a_copy_has_the_groups(name: str, unpack: Unpack, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root, events = unpack(name)
    new = tmp_path / "new"
    Store(root).copy(new)
    offsets = {
        (row["group"], row["topic"], row["queueId"]): row["consumerOffset"] for row in Store(new).offsets().to_pylist()
    }
    assert {place: offsets.get(place) for place in consumed(events)} == consumed(events)
    assert not [text for text in caplog.messages if "config" in text and "new store" in text]


# ---- while a broker runs


def test_tables_that_go_away_while_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker compacts configuration and popped messages between the opening of a database and its reading."""
    entries: dict[str, dict[str, list[rocksdb.Record]]] = {
        "config/topics": {"default": [(b"T", b'{"topicName":"T"}')]},
        "config/consumerOffsets": {"default": [(b"T@G", b'{"offsetTable":{"0":7}}')]},
        "kvStore": {"popState": [(b"key", b'{"offset":3}')]},
    }
    for place, part in entries.items():
        rocksdb.write(tmp_path / place, [part], {})
    scan, compacted = Database.scan, []

    def after_compaction(database: Database, *of: Any) -> Iterator[Entries]:
        place = str(Path(database.directory).relative_to(tmp_path))
        if place not in compacted:
            compacted.append(place)
            shutil.rmtree(database.directory)
            rocksdb.write(tmp_path / place, [entries[place]], {}, first=100)
        return scan(database, *of)

    monkeypatch.setattr(Database, "scan", after_compaction)
    topics, offsets = (config_in_rocksdb(str(tmp_path), part, Files()) for part in ("topics", "offsets"))
    assert (topics and topics.table, offsets and offsets.table) == ({"T": {"topicName": "T"}}, {"T@G": {"0": 7}})
    assert popped_in_rocksdb(str(tmp_path), Files()) == Popped([{"offset": 3}])
    assert sorted(compacted) == sorted(entries)


def test_a_database_that_changes_all_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rocksdb.write(tmp_path / "config" / "topics", [{"default": [(b"T", b"{}")]}], {})

    def gone(database: Database, *of: Any) -> Iterator[Entries]:
        raise DeletedMeanwhileError("gone")

    monkeypatch.setattr(Database, "scan", gone)
    found = config_in_rocksdb(str(tmp_path), "topics", Files())
    assert found is not None
    assert found.why_not == f"{tmp_path}/config/topics: its files come and go while they are read"


@pytest.mark.parametrize(
    "value", [b'{"offsetTable":{"0":1}', b'{"offsetTable":{}},{"offsetTable":{}}', b'{"offsets":{}}', b"[]", b"\xff"]
)
def test_an_entry_that_is_none_is_named(value: bytes, tmp_path: Path) -> None:
    """Many are parsed at once; the one that is no object is told, and none is taken for another."""
    sound = [(f"T{number}@G".encode(), json.dumps({"offsetTable": {"0": number}}).encode()) for number in range(50)]
    rocksdb.write(tmp_path / "config" / "consumerOffsets", [{"default": [*sound, (b"T7@H", value)]}], {})
    found = config_in_rocksdb(str(tmp_path), "offsets", Files())
    assert found is not None
    assert found.table is None
    assert "expected an entry" in (found.why_not or "")


def test_broken_entries_that_make_whole_ones_together(tmp_path: Path) -> None:
    """There are as many objects between commas as there are entries, and each has what it needs."""
    values = [b'{"offsetTable":{"0":1}', b'"b":2}', b'{"offsetTable":{}},{"offsetTable":{}}']
    entries = [(f"T{number}@G".encode(), value) for number, value in enumerate(values)]
    rocksdb.write(tmp_path / "config" / "consumerOffsets", [{"default": entries}], {})
    found = config_in_rocksdb(str(tmp_path), "offsets", Files())
    assert found is not None
    assert found.table is None
    assert "expected an entry that is an object" in (found.why_not or "")


def _sized(text: bytes) -> bytes:
    return len(text).to_bytes(2, "big") + text


_TOPICS, _OFFSETS = b"\1\0\3\2", b"\1\0\1\2"  # how keys of v2 begin
_OF_GROUP = _OFFSETS + _sized(b"G") + b"\1" + _sized(b"T") + b"\1"


@pytest.mark.parametrize(
    ("part", "key", "value", "fault"),
    [
        ("topics", _TOPICS + _sized(b"T"), b"\2{}", r"the entry of 'T', found b'\\x02' before it"),
        ("topics", _TOPICS + b"\0\5T", b"\1{}", "a key with names"),
        ("topics", _TOPICS + b"\0\0", b"\1{}", "a key with names"),
        ("topics", _TOPICS + _sized(b"\xff"), b"\1{}", "a name in UTF-8"),
        ("topics", _TOPICS + _sized(b"T"), b"\1[]", "an entry that is an object"),
        ("offsets", _OF_GROUP + bytes(4), bytes(7), "an offset of 'G', found 4 and 7 bytes"),
        ("offsets", _OF_GROUP + bytes(3), bytes(8), "an offset of 'G', found 3 and 8 bytes"),
        ("offsets", _OFFSETS + _sized(b"G") + b"\2" + _sized(b"T") + b"\1" + bytes(4), bytes(8), "a key with names"),
    ],
)
def test_entries_of_v2_that_are_none(part: Any, key: bytes, value: bytes, fault: str, tmp_path: Path) -> None:
    """Nothing of a part is taken whose database has one; the other parts are."""
    sound = [
        (_TOPICS + _sized(b"S"), b'\1{"perm":6}'),
        (_OFFSETS + _sized(b"G") + b"\1" + _sized(b"S") + bytes([1, 0, 0, 0, 2]), bytes([0] * 7 + [9])),
    ]
    rocksdb.write(tmp_path / "config" / "rdb", [{"default": [*sound, (key, value)]}], {})
    found = config_in_rocksdb(str(tmp_path), part, Files())
    assert found is not None
    assert found.table is None
    assert re.search(f"config/rdb: expected {fault}", found.why_not or "")
    other = config_in_rocksdb(str(tmp_path), "offsets" if part == "topics" else "topics", Files())
    assert other is not None
    assert other.table == ({"S@G": {"2": 9}} if part == "topics" else {"S": {"perm": 6}})


def test_more_entries_than_any_broker_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rocksdb.write(tmp_path / "config" / "topics", [{"default": [(b"A", b"{}"), (b"B", b"{}")]}], {})
    for most, told in ((2, None), (1, f"{tmp_path}/config/topics: expected at most 1 rows, found more; bring it back")):
        monkeypatch.setattr("rmqstore_spark.store.structures.rocksdb_config._MOST_ROWS", most)
        found = config_in_rocksdb(str(tmp_path), "topics", Files())
        assert found is not None
        assert (found.table, found.why_not) == (None if told else {"A": {}, "B": {}}, told)
