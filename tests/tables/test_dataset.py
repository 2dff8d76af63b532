"""Store.dataset(): the rows are those of the filtered full scan, less is read, and engines take it."""

from __future__ import annotations

import gc
import pickle
import random
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from oracle import stores
from oracle.aged_stores import aged_store
from support.expressions import random_expression

from rmqstore_spark import DamagedStoreError, OptionError, Store
from rmqstore_spark.columns import COLUMNS, DEFAULT_COLUMNS
from rmqstore_spark.query.expressions import understood
from rmqstore_spark.query.selection import EVERYTHING
from rmqstore_spark.read.run.damage_reports import listening
from rmqstore_spark.tables.dataset import StoreDataset, StoreScanner
from rmqstore_spark.tables.registry import TABLES

SAMPLE = Path(__file__).resolve().parents[2] / "sample_store"
SELECTED_BY = [
    *("topic", "queueId", "queueOffset", "tags", "keys", "msgId", "offsetMsgId", "storeTimestamp", "commitLogOffset")
]
MIB = 1 << 20
EXPRESSIONS = 120

f = pc.field


def bytes_read() -> int:
    """What this process has read so far, from disk or not."""
    return int(dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())["rchar"])


@pytest.fixture(scope="module")
def whole() -> pa.Table:
    """All messages of sample_store, read without a filter."""
    return Store(SAMPLE).messages().read_all()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Of 20 MiB in 5 segments, of which every 50th message is of topic Rare; a second apart."""
    builder = stores.StoreBuilder(
        tmp_path_factory.mktemp("large") / "store", 4 * MIB, index=True, index_slots=500, index_items=3000
    )
    for number in range(2000):
        builder.append("Rare" if number % 50 == 7 else "Often", b"x" * 10_000, keys=f"k{number}", messages=1)
    builder.close()
    return Store(builder.root)


def in_duckdb(query: str, **datasets: StoreDataset) -> list[Any]:
    """The rows of a query over datasets."""
    with duckdb.connect() as connection:
        for name, dataset in datasets.items():
            connection.register(name, dataset)
        return connection.execute(query).fetchall()


def damage(store: Path) -> None:
    """Change a byte in each of some messages of a copy of sample_store."""
    path = next((store / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    for at in range(5000, 60_000, 9000):
        data[at] ^= 0xFF
    path.write_bytes(data)


# ---- the rows are those of the filtered full scan


def expect_rows(dataset: StoreDataset, whole: pa.Table, expression: pc.Expression, columns: list[str]) -> bool:
    """Compare with what Arrow makes of all rows. Is the read narrowed?"""
    try:
        wanted = whole.filter(expression).select(columns)
    except pa.ArrowException:  # a value does not fit the type that it is compared as
        return False
    assert dataset.to_table(columns, expression).equals(wanted), expression
    known = understood(expression)
    assert known.columns is not None
    return known.selection != EVERYTHING


def test_random_expressions(rng: random.Random, whole: pa.Table) -> None:
    dataset, table = Store(SAMPLE).dataset(), whole.select([*SELECTED_BY, "flag", "body", "bornTimestamp"])
    narrowed = 0
    for _ in range(EXPRESSIONS):
        columns = rng.sample(DEFAULT_COLUMNS, rng.choice((0, 1, 3, len(DEFAULT_COLUMNS))))
        names = rng.sample(table.schema.names, 4)
        narrowed += expect_rows(dataset, whole, random_expression(rng, table.select(names)), columns)
    assert narrowed > EXPRESSIONS / 4


def test_random_expressions_over_a_store_with_a_past(rng: random.Random, tmp_path: Path) -> None:
    aged_store(tmp_path, rng)
    store = Store(tmp_path, mode="PERMISSIVE")
    names = [*SELECTED_BY, "realTopic", "corrupt", "storeSize"]
    dataset = store.dataset(columns=names)
    whole = store.messages(names).read_all()
    for _ in range(EXPRESSIONS // 2):
        expect_rows(dataset, whole, random_expression(rng, whole.select(rng.sample(names, 4))), names)


def test_random_expressions_over_damage(rng: random.Random, tmp_path: Path) -> None:
    """A row that stands for damage is like any other."""
    shutil.copytree(SAMPLE, tmp_path / "store")
    damage(tmp_path / "store")
    store = Store(tmp_path / "store", mode="PERMISSIVE")
    names = [*SELECTED_BY, "corrupt"]
    whole = store.messages(names).read_all()
    assert whole["corrupt"].null_count < len(whole)
    for _ in range(EXPRESSIONS // 4):
        expression = random_expression(rng, whole.select(rng.sample(names, 3)))
        healthy = f("corrupt").is_null() & expression
        expect_rows(store.dataset(columns=names), whole, healthy, names)


@pytest.mark.parametrize("name", [name for name in TABLES if name not in ("checkpoint", "check")])
def test_random_expressions_over_other_tables(rng: random.Random, name: str) -> None:
    store = Store(SAMPLE)
    whole = store.table(name)
    if not whole.num_rows:
        assert store.dataset(name).count_rows() == 0
        return
    for _ in range(6):
        chosen = [*rng.sample(whole.schema.names, 1), *(["topic"] if "topic" in whole.schema.names else [])]
        expression = random_expression(rng, whole.select(list(dict.fromkeys(chosen))))
        try:
            wanted = whole.filter(expression)
        except pa.ArrowException:
            continue
        key = [(column, "ascending") for column in whole.schema.names if not pa.types.is_nested(whole[column].type)]
        found = store.dataset(name).to_table(filter=expression).sort_by(key)
        assert found.equals(wanted.sort_by(key)), expression


@pytest.mark.parametrize(
    ("expression", "columns"),
    [
        (f(0) == "Plain", None),  # by number: pyarrow does not pickle it
        (f("topic").cast(pa.large_string()) == "Plain", {"topic"}),
        (f("queueId") == 1.5, {"queueId"}),
        (~f("topic").isin(["Plain"]), {"topic"}),
        (f("topic") > "Plain", {"topic"}),
        (pc.match_substring(f("topic"), "lai"), {"topic"}),
        (pc.map_lookup(f("properties"), "KEYS", "last") == "x", {"properties"}),
    ],
    ids=str,
)
def test_what_no_selection_says(whole: pa.Table, expression: pc.Expression, columns: set[str] | None) -> None:
    known = understood(expression)
    assert known.selection == EVERYTHING
    assert known.columns == columns
    assert Store(SAMPLE).dataset().to_table(["keys"], expression).equals(whole.filter(expression).select(["keys"]))


TIME = pa.scalar(1_795_221_955, pa.timestamp("s", "UTC"))


@pytest.mark.parametrize(
    ("expression", "narrows"),
    [
        (pc.scalar(False), True),
        (pc.scalar(True) & (f("queueId") == 1), True),
        (pc.if_else(f("queueId") == 1, f("topic") == "Plain", f("topic") == "Ordered"), True),
        (pc.if_else(f("queueId") > 1, pc.scalar(False), f("queueOffset") < 3), True),
        (pc.coalesce(f("tags") == "a", f("topic") == "Plain"), False),
        (pc.coalesce(f("queueId") == 1, f("queueId") == 3), True),
        (pc.starts_with(f("topic"), "Pl"), True),
        (pc.starts_with(f("topic"), "pl", ignore_case=True), False),
        (f("keys").isin([None, "a"]), False),
        (pc.is_in(f("keys"), pa.array([None, "a"]), skip_nulls=True), True),
        (f("queueId").isin([0, 2]), True),
        (f("queueId").isin([0, 2]) | f("queueId").isin([3]), True),
        (f("queueId").isin([1.5]), False),
        (f("body").isin([b"x"]), False),
        (f("storeTimestamp").isin([TIME]), True),
        (f("storeTimestamp") < TIME, True),
        ((f("storeTimestamp") < TIME) | (f("queueId") == 0), False),
        (pc.struct_field(f("properties"), [0]) == 1, False),
    ],
    ids=str,
)
def test_each_kind_of_expression(whole: pa.Table, expression: pc.Expression, narrows: bool) -> None:
    """The rows are those of the filtered full scan, whether or not it narrows what is read."""
    assert (understood(expression).selection != EVERYTHING) == narrows
    try:
        wanted = whole.filter(expression).select(["keys"])
    except (pa.ArrowException, NotImplementedError):
        return
    assert Store(SAMPLE).dataset().to_table(["keys"], expression).equals(wanted)


@pytest.mark.parametrize(
    ("expression", "is_exact"),
    [
        (f("topic") == "Plain", True),
        (pc.scalar("Plain") == f("topic"), True),
        ((f("topic") == "Plain") & (f("topic") == "Ordered"), True),
        ((f("topic") == "Plain") & (f("keys") == "a"), False),
        ((f("topic") == "Plain") | (f("topic") == "Ordered"), False),
        (f("topic") == "\ufffd", False),
        (f("topic") == pa.scalar(None, pa.string()), False),
        (f("keys") == "a", False),
    ],
    ids=str,
)
def test_a_selection_that_says_it_all(whole: pa.Table, expression: pc.Expression, is_exact: bool) -> None:
    assert understood(expression).is_exact == is_exact
    assert Store(SAMPLE).dataset().to_table(["keys"], expression).equals(whole.filter(expression).select(["keys"]))


@pytest.mark.parametrize("how", [{"asOriginal": True}, {"mode": "PERMISSIVE"}], ids=str)
def test_rows_of_a_topic_where_not_all_rows_are_stored_messages(tmp_path: Path, how: dict[str, Any]) -> None:
    """Their topic is told anew, or a row without a topic tells of damage."""
    shutil.copytree(SAMPLE, tmp_path / "store")
    if "mode" in how:
        damage(tmp_path / "store")
    store, names = Store(tmp_path / "store"), ["topic", "commitLogOffset", "corrupt"]
    whole = store.messages(names, **how).read_all()
    for topic in [topic for topic in set(whole["topic"].to_pylist()) if topic is not None]:
        found = store.dataset(columns=names, **how).to_table(filter=f("topic") == topic)
        assert found.equals(whole.filter(f("topic") == topic)), topic


def test_another_way_of_writing_expressions_reads_all(monkeypatch: pytest.MonkeyPatch, whole: pa.Table) -> None:
    """As a later pyarrow may have one."""
    expression = f("topic") == "Plain"
    for change in (lambda key: key.upper(), lambda key: "comment" if key == "end" else key):
        from rmqstore_spark.query import expressions

        pairs = expressions._metadata
        with monkeypatch.context() as patch:
            patch.setattr(
                expressions,
                "_metadata",
                lambda schema, pairs=pairs, change=change: [(change(key), value) for key, value in pairs(schema)],
            )
            assert understood(expression).columns is None
            assert Store(SAMPLE).dataset().to_table(filter=expression).equals(whole.filter(expression))


# ---- less is read


SHARES: list[tuple[str, pc.Expression, str, float]] = [
    ("topic", f("topic") == "Rare", "topic = 'Rare'", 0.1),
    ("key", f("keys").isin(["k7", "k1007"]), "keys in ('k7', 'k1007')", 0.1),
    (
        "offset",
        (f("commitLogOffset") < 100_000) & (f("queueId") < 5),
        "commitLogOffset < 100000 and queueId < 5",
        0.1,
    ),
    ("no topic", f("topic") == "None", "topic = 'None'", 0.01),
    ("both topics", (f("topic") == "Rare") | (f("topic") == "Other"), "topic = 'Rare' or topic = 'Other'", 0.1),
]


@pytest.mark.parametrize("face", ["pyarrow", "duckdb", "polars"])
@pytest.mark.parametrize(("name", "expression", "sql", "share"), SHARES, ids=[case[0] for case in SHARES])
def test_less_is_read(large: Store, face: str, name: str, expression: pc.Expression, sql: str, share: float) -> None:
    messages = large.dataset()

    def count() -> int:
        if face == "pyarrow":
            return messages.count_rows(expression)
        if face == "duckdb":
            return int(in_duckdb(f"select count(*) from messages where {sql}", messages=messages)[0][0])
        frame = pl.scan_pyarrow_dataset(messages).filter(pl.sql_expr(sql)).select(pl.len())
        return int(frame.collect().item())

    count()  # what is imported for it is read as well
    before = bytes_read()
    rows = count()
    took = bytes_read() - before
    assert (
        rows == large.messages(["topic", "keys", "commitLogOffset", "queueId"]).read_all().filter(expression).num_rows
    )
    assert took < share * 20 * MIB + 64 * 1024


def test_a_full_scan_reads_all(large: Store) -> None:
    """So that what the test before counts is what is read."""
    before = bytes_read()
    assert large.dataset().count_rows(pc.binary_length(f("body")) > 0) == 2000
    assert bytes_read() - before > 19 * MIB


def test_only_what_is_asked_for_is_begun(large: Store) -> None:
    before = bytes_read()
    assert large.dataset().head(3).num_rows == 3
    assert bytes_read() - before < 19 * MIB
    gc.collect()
    assert [thread for thread in threading.enumerate() if thread.name == "rmqstore-decode"] == []


# ---- all that a Dataset does


def test_no_method_is_left_to_the_empty_dataset_below() -> None:
    for kind, own in ((ds.Dataset, StoreDataset), (ds.Scanner, StoreScanner)):
        public = {name for name in dir(kind) if not name.startswith("_") and not name.startswith("from_")}
        assert public - {*vars(own)} - {"schema"} == set()


def test_methods(whole: pa.Table, tmp_path: Path) -> None:
    store = Store(SAMPLE)
    dataset = store.dataset()
    assert isinstance(dataset, ds.Dataset)
    assert dataset.schema == whole.schema
    assert dataset.to_table().equals(whole)
    plain = dataset.filter(f("topic") == "Plain")
    assert repr(plain) == f'<table messages of {SAMPLE}, where (topic == "Plain")>'
    for each in (plain, pickle.loads(pickle.dumps(plain))):
        assert each.count_rows() == 60
        assert each.count_rows(f("queueId") == 1) == each.filter(f("queueId") == 1).count_rows() == 15
    made = dataset.to_table({"one": f("queueId") + 1, "topic": f("topic")}, f("topic") == "Plain")
    assert made.to_pydict() == {
        "one": [number + 1 for number in plain.to_table(["queueId"])["queueId"].to_pylist()],
        "topic": ["Plain"] * 60,
    }
    assert dataset.head(7, ["keys"]).equals(whole.select(["keys"]).slice(0, 7))
    assert dataset.take([5, 3], ["keys"]).equals(whole.select(["keys"]).take([5, 3]))
    assert max(len(batch) for batch in dataset.to_batches(batch_size=10)) == 10
    scanner = dataset.scanner(["topic"], f("queueId") == 0)
    assert scanner.projected_schema.names == ["topic"]
    assert scanner.dataset_schema == dataset.schema
    assert scanner.to_table().num_rows == scanner.count_rows() == pa.table(scanner).num_rows
    assert sum(tagged.record_batch.num_rows for tagged in scanner.scan_batches()) == scanner.count_rows()
    assert sum(each.count_rows() for each in dataset.get_fragments()) == ds.dataset([dataset]).count_rows() == 305
    ds.write_dataset(plain, tmp_path / "parquet", format="parquet")
    assert ds.dataset(tmp_path / "parquet").count_rows() == 60
    offsets = store.dataset("offsets", ["topic", "queueId", "lag"])
    joined = store.dataset("queues", ["topic", "queueId", "messages"]).join(
        offsets, ["topic", "queueId"], join_type="inner"
    )
    assert joined.count_rows() == offsets.count_rows()
    assert store.dataset("queues").sort_by("messages").to_table()["messages"].to_pylist() == sorted(
        store.queues()["messages"].to_pylist()
    )
    assert dataset.replace_schema(pa.schema([("topic", pa.string())])).to_table().num_columns == 1


def test_what_asks_in_c_gets_an_error_and_no_rows() -> None:
    dataset = Store(SAMPLE).dataset("offsets", ["topic", "lag"])
    with pytest.raises(FileNotFoundError, match="own methods only"):
        ds.Scanner.from_dataset(dataset).to_table()
    with pytest.raises(FileNotFoundError, match="own methods only"):
        ds.InMemoryDataset(Store(SAMPLE).table("queues", ["topic"])).join(dataset, "topic").to_table()


def test_options_and_columns() -> None:
    store = Store(SAMPLE, mode="PERMISSIVE")
    dataset = store.dataset(columns="topic,realTopic,store", subscribe="Plain")
    assert dataset.schema.names == ["topic", "realTopic", "store"]
    assert dataset.count_rows(f("topic").isin(["Plain", "Ordered"])) == 60
    original = store.dataset(columns=["topic", "keys"], asOriginal=True)
    whole = store.messages(["topic", "keys"], asOriginal=True).read_all()
    expression = f("topic") == "Plain"
    assert original.to_table(filter=expression).equals(whole.filter(expression))
    assert store.dataset(columns=list(COLUMNS)).count_rows() == 305
    with pytest.raises(OptionError, match=r"unknown column 'topics'\. Did you mean 'topic'"):
        store.dataset(columns="topics")
    with pytest.raises(OptionError, match=r"unknown table 'offset'\. Did you mean 'offsets'"):
        store.dataset("offset")
    with pytest.raises(OptionError, match="option 'tags' does not go with table 'topics'"):
        store.dataset("topics", tags="x")
    with pytest.raises(pa.ArrowInvalid, match=r"No match for FieldRef\.Name\(x\)"):
        dataset.to_table(["x"])
    with pytest.raises(pa.ArrowInvalid, match=r"No match for FieldRef\.Name\(x\)"):
        dataset.scanner(filter=f("x") == 1)
    with pytest.raises(pa.ArrowNotImplementedError, match="no kernel matching input types"):
        dataset.scanner(filter=f("topic") == 1)


def test_damage_is_an_error(large: Store, tmp_path: Path) -> None:
    (root,) = large._options({}).paths
    shutil.copytree(root, tmp_path / "store")
    path = max((tmp_path / "store" / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    data[150] ^= 1
    path.write_bytes(data)
    messages = Store(tmp_path / "store").dataset()
    ways: list[Callable[[], object]] = [
        messages.to_table,
        lambda: messages.scanner().to_reader().read_all(),
        lambda: messages.scanner(use_threads=True).to_table(),
    ]
    for way in ways:
        with pytest.raises(DamagedStoreError, match="bodyCRC"):
            way()
    with pytest.raises(duckdb.Error, match="bodyCRC"):
        in_duckdb("select max(keys) from messages", messages=messages)
    with pytest.raises(Exception, match="bodyCRC"):
        pl.scan_pyarrow_dataset(messages).select(pl.col("keys").max()).collect()


# ---- engines


def test_what_a_thread_meets_is_heard(large: Store, tmp_path: Path) -> None:
    """An engine reads where it likes; `rmqstore sql` has to know of damage."""
    (whole,) = large._options({}).paths
    root = shutil.copytree(whole, tmp_path / "store")
    path = next((root / "commitlog").iterdir())
    with path.open("r+b") as file:
        file.seek(4)
        file.write(b"damaged!")
    with listening(is_silent=True) as damage:
        dataset = Store(root, mode="DROPMALFORMED").dataset(columns=["topic"]).reporting_here()
        with ThreadPoolExecutor(1) as thread:
            assert thread.submit(dataset.to_table).result().num_rows
    assert damage.is_lost


def test_duckdb_joins_tables() -> None:
    store = Store(SAMPLE)
    query = (
        "select q.topic from (select topic, sum(messages) n from queues group by all) q join messages m "
        "on m.topic = q.topic group by q.topic having any_value(q.n) <> count(*)"
    )
    assert in_duckdb(query, messages=store.dataset(), queues=store.dataset("queues")) == []
    (row, *others) = in_duckdb("select * from messages limit 5", messages=store.dataset())
    assert len(row) == len(DEFAULT_COLUMNS)
    assert len(others) == 4


def test_polars_times_and_limits() -> None:
    frame = pl.scan_pyarrow_dataset(Store(SAMPLE).dataset())
    middle = frame.select(pl.col("storeTimestamp").median()).collect().item()
    found = frame.filter(pl.col("storeTimestamp") > middle).select("storeTimestamp", "body").collect()
    assert 0 < found.height < 305
    assert found["storeTimestamp"].min() > middle
    assert frame.filter(pl.col("topic") == "Plain").head(4).collect().height == 4
