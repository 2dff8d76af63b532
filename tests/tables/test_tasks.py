"""Store.tasks(): the rows are those of the read itself, in any process, and no secret is in a pickled task."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from oracle import stores
from support.expressions import random_expression

import rmqstore_spark
from rmqstore_spark import OptionError, RmqStoreError, Store
from rmqstore_spark.store.io.storage import STORAGE_OPTIONS, Storage
from rmqstore_spark.tables.registry import TABLES
from rmqstore_spark.tables.tasks import StoreTask

SAMPLE = Path(__file__).resolve().parents[2] / "sample_store"
READ = """
import pickle, sys
import pyarrow as pa
task = pickle.load(sys.stdin.buffer)
with pa.ipc.new_stream(sys.stdout.buffer, task.schema) as out:
    for batch in task.read():
        out.write_batch(batch)
assert "pyspark" not in sys.modules
"""

f = pc.field


def rows(tasks: list[StoreTask]) -> pa.Table:
    return pa.Table.from_batches((batch for task in tasks for batch in task.read()), tasks[0].schema)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Of 2 MB in 3 segments."""
    builder = stores.StoreBuilder(tmp_path_factory.mktemp("many") / "store", 1 << 20)
    for number in range(2000):
        builder.append("Rare" if number % 50 == 7 else "Often", b"x" * 1000, keys=f"k{number}")
    builder.close()
    return Store(builder.root)


def test_a_filter_on_columns_that_exist_by_name_only(many: Store) -> None:
    (path,) = set(many.messages(columns=["store"]).read_all()["store"].to_pylist())
    is_wanted = (f("realTopic") == "Rare") & (f("store") == path)
    found = rows(many.tasks(columns=["keys"], filter=is_wanted))
    assert found.equals(many.messages(columns=["keys"], subscribe="Rare").read_all())
    assert rows(many.tasks(filter=is_wanted)).schema.equals(many.messages().schema)
    for name in ("topics", "check"):
        table = many.table(name)
        assert rows(many.tasks(name, filter=f("store") == path)).equals(table)
    with pytest.raises(OptionError, match="unknown column 'nothing'"):
        many.tasks(columns=["keys"], filter=f("nothing") == 1)


def test_messages(many: Store) -> None:
    whole = many.messages().read_all()
    tasks = many.tasks(maxPartitionBytes="100k")
    assert len(tasks) > 15
    sizes = [task.size or 0 for task in tasks]
    assert max(sizes) < 250_000
    assert 2_000_000 < sum(sizes) < 2_300_000
    assert rows(tasks).equals(whole)
    assert rows(tasks).equals(whole), "a second time"
    assert len(many.tasks(minPartitions=5)) >= 5
    with ThreadPoolExecutor(4) as threads:  # each task twice at the same time
        read = list(threads.map(lambda task: pa.Table.from_batches(task.read(), task.schema), [*tasks, *tasks]))
    assert pa.concat_tables(read).equals(pa.concat_tables([whole, whole]))


def test_columns_options_and_filter(many: Store) -> None:
    whole = many.messages(["keys", "topic", "store", "queueOffset"]).read_all()
    tasks = many.tasks(columns="keys,store", subscribe="Rare", filter=f("queueOffset") < 10)
    assert tasks[0].schema.names == ["keys", "store"]
    wanted = whole.filter((f("topic") == "Rare") & (f("queueOffset") < 10))
    assert wanted.num_rows == 10
    assert rows(tasks).equals(wanted.select(["keys", "store"]))
    of_all, of_one = many.tasks(), many.tasks(filter=f("commitLogOffset") < 1000)
    assert sum(task.size or 0 for task in of_one) < sum(task.size or 0 for task in of_all) / 100
    with pytest.raises(OptionError, match=r"unknown column 'key'"):
        many.tasks(columns="key")
    with pytest.raises(OptionError, match=r"unknown column 'key'\. Did you mean 'keys'"):
        many.tasks(filter=f("key") == "x")
    with pytest.raises(OptionError, match=r"unknown column 'topics'\. Did you mean 'topic'"):
        many.tasks("queues", filter=f("topics") == "x")


def test_random_filters(rng: random.Random) -> None:
    store = Store(SAMPLE)
    whole = store.messages().read_all()
    names = ["topic", "queueId", "keys", "storeTimestamp", "commitLogOffset"]
    for _ in range(10):
        expression = random_expression(rng, whole.select(names))
        try:
            wanted = whole.filter(expression)
        except pa.ArrowException:
            continue
        tasks = store.tasks(columns=["queueOffset", "topic"], filter=expression, maxPartitionBytes="20k")
        if tasks or wanted.num_rows:
            assert rows(tasks).equals(wanted.select(["queueOffset", "topic"])), expression


@pytest.mark.parametrize("name", [name for name in TABLES if name != "check"])
def test_other_tables(name: str) -> None:
    store = Store(SAMPLE)
    tasks = store.tasks(name)
    if not tasks:
        assert store.table(name).num_rows == 0
        return
    assert rows(pickle.loads(pickle.dumps(tasks))).equals(store.table(name))


def test_other_processes(many: Store) -> None:
    tasks = many.tasks(columns=["keys", "body"], filter=f("topic") == "Rare", maxPartitionBytes="1m")
    tasks += Store(SAMPLE).tasks("offsets")
    root = str(Path(rmqstore_spark.__file__).parents[1])
    for task in tasks:
        made = subprocess.run(
            [sys.executable, "-c", READ],
            input=pickle.dumps(task),
            capture_output=True,
            check=True,
            cwd="/",
            env={**os.environ, "PYTHONPATH": root},
        ).stdout
        assert pa.ipc.open_stream(made).read_all().equals(rows([task]))


def test_a_store_that_was_replaced_is_an_error(tmp_path: Path) -> None:
    for body in (b"old", b"new"):
        with pytest.MonkeyPatch.context():
            builder = stores.StoreBuilder(tmp_path / body.decode())
            builder.append("T", body)
            builder.close()
    (task,) = pickle.loads(pickle.dumps(Store(tmp_path / "old").tasks()))
    (tmp_path / "old").rename(tmp_path / "older")
    (tmp_path / "new").rename(tmp_path / "old")
    with pytest.raises(RmqStoreError):
        list(task.read())


def test_pickled_tasks_have_no_secrets() -> None:
    secrets = {name: f"hidden-{number}" for number, name in enumerate(STORAGE_OPTIONS) if name != "allow_http"}
    kept = Storage(secrets).without_secrets()
    hidden = {name for name, option in STORAGE_OPTIONS.items() if option.is_secret} | {"aws_access_key_id"}
    assert {*kept._given} == secrets.keys() - hidden
    store = Store(SAMPLE, **{name: secrets[name] for name in sorted(hidden)}, aws_region="far-away")  # type: ignore[arg-type]
    for table in ("messages", "offsets"):
        pickled = pickle.dumps(store.tasks(table, filter=f("topic") == "Plain"))
        assert not [name for name in hidden if secrets[name].encode() in pickled]
        assert b"far-away" in pickled
        assert not [name for name in hidden if secrets[name] in repr(store.tasks(table))]


def test_options_of_a_read() -> None:
    (task, *_) = Store(SAMPLE).tasks(columns="topic")
    assert sum(batch.num_rows for batch in task.read(aws_secret_access_key="x", aws_region="y")) == 305
    with pytest.raises(OptionError, match="option 'subscribe' does not say how storage is reached"):
        task.read(subscribe="Plain")  # type: ignore[call-arg]
