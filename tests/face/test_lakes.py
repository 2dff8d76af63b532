"""The recipes of docs/lakes.md, as the page has them: run, run again, and killed anywhere."""

from __future__ import annotations

import ast
import importlib.util
import io
import json
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.pages import blocks, make_kitchen, run_block
from support.patience import HANG

from rmqstore_spark import Store, write_store

ROOT = Path(__file__).resolve().parents[2]
LACKING = [name for name in ("deltalake", "pyiceberg", "fastavro") if importlib.util.find_spec(name) is None]
needs_libraries = pytest.mark.skipif(bool(LACKING), reason=f"not installed: {', '.join(LACKING)}")
COUNT = 3000

# Defines what the page defines, runs a recipe in one child after the other, and kills each of them a moment after it
# has taken a piece, each time one piece later, until one child is through. Prints how many were killed.
PROGRAM = """
import os, random, signal, sys
{definitions}
rng, pid, killed = random.Random({seed}), 0, 0
while True:
    left, was_named = 2 + killed, named
    if not (pid := os.fork()):
        def named(*of):
            global left
            left -= 1
            if not left and killed < 4:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.0001, 0.03))
            return was_named(*of)
        {call}
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    rng.random()
    if not os.WIFSIGNALED(status):
        print("killed", killed)
        sys.exit(status)
    killed += 1
"""
CATALOG = """SqlCatalog("local", uri="sqlite:///catalog.db", warehouse="file://{home}/iceberg")"""
CALLS = {
    "delta": """into_delta(rmqstore_spark.Store("many"), "delta", "a", nbytes=20_000)""",
    "iceberg": f"""catalog = {CATALOG}
        catalog.create_namespace_if_not_exists("mq")
        into_iceberg(rmqstore_spark.Store("many"), catalog, "mq.messages", "a", nbytes=60_000)""",
    "days": """into_parquet(rmqstore_spark.Store("many"), "days", "a")""",
}


def definitions() -> str:
    """What the page imports and defines, without what it does."""
    parsed = ast.parse("\n".join(block.text for block in blocks("lakes.md", "python lake")))
    kept = (ast.Import, ast.ImportFrom, ast.FunctionDef)
    nodes = [node for node in parsed.body if isinstance(node, kept) or ast.unparse(node).startswith("COLUMNS =")]
    return "\n".join(ast.unparse(node) for node in nodes)


def written(home: Path, recipe: str) -> pa.Table:
    if recipe == "delta":
        from deltalake import DeltaTable

        return DeltaTable(home / "delta").to_pyarrow_table()
    if recipe == "iceberg":
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog("local", uri=f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}/iceberg")
        table: pa.Table = catalog.load_table("mq.messages").scan().to_arrow()
        return table
    return pq.read_table(home / "days", partitioning="hive")


def rows(table: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.sort_by("commitLogOffset").to_pylist()
    return found


@needs_libraries
def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_kitchen(tmp_path)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks("lakes.md", "python lake"):
        run_block(block, names)
    wanted = rows(names["named"](Store("sample_store").messages(names["COLUMNS"]).read_all(), "broker-a"))
    write_store("sample_store", pa.table({"topic": ["Plain"], "body": ["one more"]}))
    store = Store("sample_store")
    assert names["into_delta"](store, "lake/delta", "broker-a") == 1
    assert names["into_iceberg"](store, names["catalog"], "mq.messages", "broker-a") == 1
    names["into_parquet"](store, "lake/days", "broker-a")
    # Another store is another name.
    assert names["into_delta"](store, "lake/delta", "broker-b", subscribe="Plain") == 61
    lakes = {
        "delta": names["DeltaTable"]("lake/delta").to_pyarrow_table(),
        "iceberg": names["catalog"].load_table("mq.messages").scan().to_arrow(),
        "days": pq.read_table("lake/days", partitioning=None),
    }
    for name, lake in lakes.items():
        found = [row for row in rows(lake) if row["store"] == "broker-a"]
        assert found[:-1] == wanted, name
        assert found[-1]["body"] == b"one more", name


@needs_libraries
@pytest.mark.slow
@pytest.mark.parametrize("recipe", CALLS)
def test_killed_runs(tmp_path: Path, recipe: str) -> None:
    """Each message is there once, whenever runs were killed."""
    days = [1_700_000_000_000 + 40_000 * n for n in range(COUNT)]  # over more than a day
    many = pa.table({"topic": ["T"] * COUNT, "body": [b"%d " % n * 20 for n in range(COUNT)]})
    times = pa.array(days, pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
    write_store(tmp_path / "many", many.append_column("storeTimestamp", times), mappedFileSizeCommitLog="64k")
    call = CALLS[recipe].replace("{home}", str(tmp_path))
    program = PROGRAM.format(definitions=definitions(), seed=os.environ["RMQ_TEST_SEED"], call=call)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HANG
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout.split()[-1]) >= 2, ran.stdout
    store = Store(tmp_path / "many").messages(["body", "commitLogOffset"]).read_all()
    assert rows(written(tmp_path, recipe).select(["body", "commitLogOffset"])) == rows(store)


@needs_libraries
def test_two_runs_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them fails where both would write the same messages."""
    from deltalake.exceptions import CommitFailedError
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import CommitFailedException

    monkeypatch.chdir(tmp_path)
    write_store("store", pa.table({"topic": ["T"] * 3, "body": ["1", "2", "3"]}))
    store = Store("store")
    names: dict[str, Any] = {}
    exec(definitions(), names)
    catalog = SqlCatalog("local", uri="sqlite:///catalog.db", warehouse=f"file://{tmp_path}/iceberg")
    catalog.create_namespace("mq")
    recipes: dict[str, Any] = {
        "delta": lambda: names["into_delta"](store, "delta", "a"),
        "iceberg": lambda: names["into_iceberg"](store, catalog, "mq.messages", "a"),
    }
    named = names["named"]
    for error, recipe in ((CommitFailedError, "delta"), (CommitFailedException, "iceberg")):
        assert recipes[recipe]() == store.messages(["topic"]).read_all().num_rows
        write_store("store", pa.table({"topic": ["T"], "body": ["4"]}))

        def overtaken(*of: Any, recipe: str = recipe) -> pa.Table:
            names["named"] = named
            assert recipes[recipe]() == 1
            return named(*of)

        names["named"] = overtaken
        with pytest.raises(error):
            recipes[recipe]()
        count = Store("store").messages(["topic"]).read_all().num_rows
        assert recipes[recipe]() == 0
        assert written(tmp_path, recipe).num_rows == count


@needs_libraries
def test_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    import fastavro

    names: dict[str, Any] = {"pa": pa}
    for block in blocks("lakes.md", "python lake"):
        if "def parsed(" in block.text or "import fastavro" in block.text:
            exec(block.text.partition("paid =")[0], names)
    told = {"number": 2, "state": "paid"}
    encoded = io.BytesIO()
    fastavro.schemaless_writer(encoded, names["schema"], told)
    avro, framed = encoded.getvalue(), b"\0\0\0\0\7" + encoded.getvalue()
    wrong = [b"", b"\xff", b"{}x"]

    def parsed(bodies: list[bytes], decode: Any) -> list[Any]:
        table = names["parsed"](pa.table({"body": pa.array(bodies, pa.binary())}), decode, names["order"])
        assert table["body"].to_pylist() == bodies
        values: list[Any] = table["value"].to_pylist()
        return values

    text = json.dumps(told).encode()
    assert parsed([text, *wrong, b'{"number": "x"}', b"[1]"], json.loads) == [told, None, None, None, None, None]
    assert parsed([avro, *wrong], names["avro"])[0] == told
    assert parsed([framed, avro, b"\0\0\0\0\x08x", *wrong], names["avro_of_registry"]) == [told] + [None] * 5

    module = order_pb2()
    monkeypatch.setitem(sys.modules, "orders_pb2", module)
    (block,) = [block for block in blocks("lakes.md", "python") if "def protobuf" in block.text]
    exec(block.text, names)
    body = module.Order(number=2, state="paid").SerializeToString()
    assert parsed([body, b"\xff"], names["protobuf"]) == [told, None]
    assert parsed([b"\0\0\0\0\7\0" + body], lambda body: names["protobuf"](body[6:])) == [told]


def order_pb2() -> Any:
    """What protoc makes of `message Order { int32 number = 1; string state = 2; }`."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="orders.proto", package="rmq", syntax="proto3")
    message = file.message_type.add(name="Order")
    kinds = descriptor_pb2.FieldDescriptorProto
    for number, (name, kind) in enumerate((("number", kinds.TYPE_INT32), ("state", kinds.TYPE_STRING)), 1):
        message.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("rmq.Order"))
    return types.SimpleNamespace(Order=made)
