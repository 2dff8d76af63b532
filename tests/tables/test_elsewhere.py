"""Of what lies in RocksDB or in a tiered store, check and tables say that they do not know it."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest
from support import flavours
from support.tables import rows_of

from rmqstore_spark import OptionError, Store
from rmqstore_spark.cli.findings import show_findings, show_verdict
from rmqstore_spark.cli.show import show_summary
from rmqstore_spark.jobs.copying.config import NEEDED_BY_COPIES
from rmqstore_spark.jobs.findings import Findings
from rmqstore_spark.jobs.summary import IN_SUMMARIES, summarize
from rmqstore_spark.jobs.verdict import verdict
from rmqstore_spark.query.options import MESSAGES
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.kinds import KINDS
from rmqstore_spark.tables.check.table import CHECK
from rmqstore_spark.tables.registry import TABLES

ROOT = Path(__file__).resolve().parents[2]

Rows = list[tuple[str, str]]  # of check: where, and what is there
CONFIG = {"topics", "groups", "offsets", "transactions"}
IN_ROCKSDB = "configuration and consumers' offsets in RocksDB"
# What a broker would have put there, what check says of it, and which tables warn.
PLACES = {
    "consumequeue_rocksdb": ("CURRENT", "ConsumeQueues in RocksDB", {"topics", "queues", "consumequeue"}),
    "config/topics": ("CURRENT", "topics' configuration in RocksDB", {"topics"}),
    "config/subscriptionGroups": ("CURRENT", "groups' configuration in RocksDB", {"groups"}),
    "config/consumerOffsets": ("CURRENT", "consumers' offsets in RocksDB", CONFIG),
    "config/metadata": ("CURRENT", IN_ROCKSDB, CONFIG),
    "config/rdb": ("CURRENT", IN_ROCKSDB, CONFIG),
    "kvStore": ("CURRENT", "popped messages in flight, in RocksDB", {"inflight"}),
    "config/tieredStoreMetadata.json": (
        None,
        "what is in a tiered store",
        {"messages", "topics", "queues", "offsets", "index"},
    ),
    "rocksdbstore": ("000013.sst", "an index, timers or transactions in RocksDB", {"index"}),
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    shutil.copytree(ROOT / "tests" / "data" / "rocketmq-5.3.3", root)
    return root


def not_looked_at(root: Path) -> Rows:
    rows = [row for row in rows_of(CHECK, root) if row["problem"] == "notLookedAt"]
    assert all((row["severity"], row["area"], row["count"]) == ("info", "layout", 1) for row in rows)
    return sorted((str(Path(row["file"]).relative_to(root)), row["found"]) for row in rows)


def warnings(root: Path, table: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        Store(root).table(table)
    return [text for text in caplog.messages if text.endswith(f"table {table!r} lacks what is only there")]


@pytest.mark.parametrize("place", PLACES)
def test_place(store: Path, place: str, caplog: pytest.LogCaptureFixture) -> None:
    inside, what, tables = PLACES[place]
    assert not_looked_at(store) == []
    path = store / place
    (path if inside is None else path / inside).parent.mkdir(parents=True, exist_ok=True)
    (path if inside is None else path / inside).touch()
    assert not_looked_at(store) == [(place, what)]
    for table in ["messages", *TABLES]:
        expected = [f"{path}: {what}: not read, so table {table!r} lacks what is only there"]
        assert warnings(store, table, caplog) == (expected if table in tables else [])


def test_compaction_logs(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    """check looks at them; messages without the option `compacted` do not."""
    (store / "compaction" / "compactionLog").mkdir(parents=True)
    assert not_looked_at(store) == []
    what = "the compacted copy of topics, which may outlive the commitlog's messages (option compacted reads it)"
    assert warnings(store, "messages", caplog) == [
        f"{store / 'compaction'}: {what}: not read, so table 'messages' lacks what is only there"
    ]


def test_copies_say_what_stays_behind(store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("config/consumerOffsets", "config/subscriptionGroups", "consumequeue_rocksdb"):
        (store / name).mkdir(parents=True)
        (store / name / "CURRENT").touch()
    with caplog.at_level(logging.WARNING):
        Store(store).copy(tmp_path / "new")
    assert [text for text in caplog.messages if "not read" in text] == [
        f"{store}/config/{name}: {what} in RocksDB: not read, so the new store does not have it"
        for name, what in (("subscriptionGroups", "groups' configuration"), ("consumerOffsets", "consumers' offsets"))
    ]


def test_empty_places(store: Path) -> None:
    """What every broker makes."""
    (store / "compaction").mkdir()
    (store / "compaction" / "position-checkpoint").write_text("{}")
    (store / "rocksdbstore").mkdir()
    (store / "rocksdbstore" / "CURRENT").touch()
    assert not_looked_at(store) == []


def test_queues_that_are_there_twice(store: Path) -> None:
    for name in ("CURRENT", "MANIFEST-000005"):
        (store / "consumequeue" / name).touch()
    assert not_looked_at(store) == [("consumequeue", "ConsumeQueues in RocksDB")]  # as that one cannot be read


def test_config_in_rocksdb_is_not_missed(store: Path) -> None:
    """Topics that only RocksDB knows are not told to have no configuration."""
    problems = {row["problem"] for row in rows_of(CHECK, store)}
    (store / "config" / "topics").mkdir(parents=True)
    (store / "config" / "topics" / "CURRENT").touch()
    assert problems - {row["problem"] for row in rows_of(CHECK, store)} == {"noTopicConfig"}


# ---- real ones

_BESIDE = "beside those in files: of each queue, only the one that knows more is taken"
_STORE = ("rocksdbstore", "an index, timers or transactions in RocksDB")
FLAVOURS: dict[str, Rows] = {
    "batchcq": [],
    "combined": [("consumequeue", f"ConsumeQueues in RocksDB {_BESIDE}")],
    "compaction": [],
    "compaction2": [],
    "dledger": [],
    "recover": [],
    "retry": [],
    "rocksdb-all": [_STORE],
    "rocksdb-all-v2": [_STORE],
    "rocksdb-metadata": [],
    "rocksdb-trans": [_STORE],
    "system": [],
    "tiered": [("config/tieredStoreMetadata.json", "what is in a tiered store")],
}


@pytest.mark.parametrize("name", FLAVOURS)
def test_flavours(name: str, tmp_path: Path) -> None:
    assert not_looked_at(flavours.unpack_store(name, tmp_path)) == FLAVOURS[name]


_KEPT = {
    ("rocksdb-all", "config/topics"): "topics",
    ("rocksdb-all", "config/subscriptionGroups"): "groups",
    ("rocksdb-all", "config/consumerOffsets"): "offsets",
    ("rocksdb-all", "kvStore"): "inflight",
    ("rocksdb-all", "consumequeue"): "consumequeue",
    ("rocksdb-all-v2", "config/rdb"): "offsets",
    ("rocksdb-metadata", "config/metadata"): "groups",
}


@pytest.mark.parametrize(("flavour", "place"), _KEPT)
def test_a_database_that_lost_its_current(
    flavour: str, place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is there, and cannot be read: tables of what it has say so, and check does."""
    root = flavours.unpack_store(flavour, tmp_path)
    assert not not_looked_at_in(root, place)
    (root / place / "CURRENT").unlink()
    Store(root).table(_KEPT[flavour, place])
    assert any(message.startswith(str(root / place)) for message in caplog.messages)
    assert not_looked_at_in(root, place)


@pytest.mark.parametrize(("flavour", "place"), _KEPT)
def test_a_manifest_that_lost_its_end(
    flavour: str, place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Wherever it is cut, or zeros follow: a table that lacks rows says so. But not in a store whose broker was killed,
    which may leave tables that MANIFEST does not name."""
    root = flavours.unpack_store(flavour, tmp_path)
    table = _KEPT[flavour, place]
    (manifest,) = (root / place).glob("MANIFEST-*")
    data, rows = manifest.read_bytes(), Store(root).table(table)
    told: list[int] = []
    for cut in range(0, len(data), -(-len(data) // 16)):
        manifest.write_bytes(data[:cut] + bytes(cut % 3))
        caplog.clear()
        lacks = Store(root).table(table) != rows
        assert not lacks or any(str(root / place) in message for message in caplog.messages), cut
        told += [cut] * any("that MANIFEST does not name" in message for message in caplog.messages)
    manifest.write_bytes(data[: told[0]])
    assert [name for name, _ in not_looked_at(root) if name == place or name.startswith(f"{place}/")]
    (root / "abort").touch()
    caplog.clear()
    Store(root).table(table)
    assert not any("that MANIFEST does not name" in message for message in caplog.messages)


def not_looked_at_in(root: Path, place: str) -> Rows:
    return [row for row in not_looked_at(root) if row[0] == place]


@pytest.mark.parametrize("place", ["consumerOffsets", "metadata", "rdb"])
def test_groups_in_rocksdb(store: Path, place: str, caplog: pytest.LogCaptureFixture) -> None:
    """Where one stands is not known, but for what a file from before still says."""
    directory = store / "config" / place
    directory.mkdir(parents=True)
    (directory / "CURRENT").touch()
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@Old":{0:0}}}')
    told = rf"'New' stands is not known: {directory} has .*consumers' offsets in RocksDB, which is not read; give the"
    for ask in (
        lambda: Store(store).offsets_of("New"),
        lambda: Store(store).messages(startingOffsets="group:New"),
    ):
        with pytest.raises(OptionError, match=told) as error:
            ask()
        assert "\n" not in str(error.value)
    assert not caplog.messages
    Store(store).offsets_of("Old")
    (warned,) = caplog.messages
    assert warned.startswith(f"{directory}: ")
    assert warned.endswith("consumers' offsets in RocksDB: not read; consumerOffset.json is, and may be older")


# ---- on a terminal


def test_screens(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (store / "config" / "topics").mkdir(parents=True)
    (store / "config" / "topics" / "CURRENT").touch()
    place = f"{store}/config/topics: topics' configuration in RocksDB"
    found = Store(store).check().to_pylist()
    answer = verdict(Findings.of(found), str(store))
    show_verdict(answer, "")
    show_findings(Findings.of(found), None)
    shown = capsys.readouterr().out
    assert " ".join(shown.split()).startswith(f"Cannot tell: {store}/config/topics was not looked at. Nothing is wrong")
    assert not answer.is_good
    assert not answer.commands
    assert f"not looked at: {place}\n" in shown
    assert "notLookedAt" not in shown
    show_summary(summarize(Snapshot.find(str(store), Files())))
    assert f"  not read: {place}\n" in capsys.readouterr().out


def test_every_kind_has_a_place() -> None:
    of_their_own = {"consumequeue", "compaction"}
    assert {kind.path for kind in KINDS} == of_their_own | PLACES.keys(), "a new kind has a line in PLACES, above"


def test_kinds_hide_tables_that_there_are() -> None:
    """Kinds are below tables in the house, and can only name them."""
    assert {name for kind in KINDS for name in kind.hides} <= {MESSAGES, *TABLES}
    assert {MESSAGES, *TABLES} >= (IN_SUMMARIES | NEEDED_BY_COPIES)
