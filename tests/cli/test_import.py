"""`rmqstore import`: what other commands write comes back as the same messages; else it is refused in a line."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from oracle import golden, stores
from support import reading
from support.command import COMMAND, Ran, run

from rmqstore_spark.cli import incoming
from rmqstore_spark.cli.incoming import incoming_rows
from rmqstore_spark.columns import COLUMNS
from rmqstore_spark.errors import OptionError, RmqStoreError

FORMATS = ("json", "csv", "parquet", "arrow")
KEPT = [column.name for column in COLUMNS.values() if column.default and not column.derived]
SMALL = ("--mappedFileSizeCommitLog", "4m")


def kept(root: Path, **options: Any) -> list[dict[str, Any]]:
    rows = reading.read(root, columns=KEPT, **options)
    return [{**row, "sysFlag": row["sysFlag"] & ~0x701} for row in rows]  # bodies are written as they are


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden.unpack(golden.VERSIONS[-1], tmp_path_factory.mktemp("source") / "store")


@pytest.mark.parametrize("kind", FORMATS)
def test_what_messages_writes(tmp_path: Path, source: Path, kind: str) -> None:
    """From a file whose name says what it is; and from a pipe, by its first bytes. Bodies that are no text, too."""
    names = "Plain,Compressed,Properties"
    out = tmp_path / f"rows.{kind}"
    run("messages", str(source), "--topic", names, "--output", str(out))
    new, piped = tmp_path / "new", tmp_path / "piped"
    assert run("import", str(new), str(out), *SMALL).code == 0
    with subprocess.Popen(
        [*COMMAND, "messages", str(source), "--topic", names, "--format", kind], stdout=subprocess.PIPE
    ) as producer:
        consumer = subprocess.run(
            [*COMMAND, "import", str(piped), "-", *SMALL], stdin=producer.stdout, capture_output=True, check=False
        )
    assert (producer.returncode, consumer.returncode, consumer.stderr.count(b"\n")) == (0, 0, 1)
    expected = kept(source, subscribe=names)
    assert any(b"\xff" in row["body"] or b"\0" in row["body"] for row in expected) or len(expected) > 50
    assert kept(new) == kept(piped) == expected


def imported(root: Path, text: str | bytes, *arguments: str) -> Ran:
    """From a file whose name does not say what it is."""
    rows = root.with_name("rows")
    rows.write_bytes(text.encode() if isinstance(text, str) else text)
    return run("import", str(root), str(rows), *SMALL, *arguments)


def test_line_ends_in_csv(tmp_path: Path) -> None:
    """Whoever reads CSV takes a CR outside of quotes for the end of a row."""
    bodies = [b"a\rb", b"\r", b"a\r\nb", b"a\nb", b'"\r"']
    builder = stores.StoreBuilder(tmp_path / "store", segment_size=4096)
    for body in bodies:
        builder.append(topic="T", body=body)
    builder.close()
    out = tmp_path / "rows.csv"
    assert run("messages", tmp_path / "store", "--columns", "queueId,body", "--output", out).code == 0
    with out.open(newline="") as text:
        rows = list(csv.reader(text))
    assert [row[1].encode() for row in rows[1:]] == bodies
    assert out.read_bytes().startswith(b"queueId,body,bodyBase64\n")


def test_rows_of_texts(tmp_path: Path) -> None:
    """Options fill what rows lack; bodies may be JSON, or base64; times as options take them."""
    lines = [
        {"body": {"a": [1, "ü"]}, "keys": "k", "bornTimestamp": "2026-01-01T00:00:00+02:00"},
        {"topic": "Other", "bodyBase64": "AP8=", "queueId": "3", "storeTimestamp": 1795221954986},
        {"body": "", "properties": {"color": "red"}, "commitLogOffset": 7, "store": "/elsewhere"},
    ]
    text = "\n\n".join(json.dumps(line) for line in lines)
    assert imported(tmp_path / "s", text, "--topic", "T").err.endswith(" has 3 new messages\n")
    rows = reading.read(tmp_path / "s")
    assert [(row["topic"], row["body"]) for row in rows] == [
        ("T", '{"a":[1,"ü"]}'.encode()),
        ("Other", b"\x00\xff"),
        ("T", b""),
    ]
    assert imported(tmp_path / "kept", '{"topic": "T", "body": {"a": [1.10, 1e400, -1E-5, 0.5], "b": {}}}').code == 0
    assert [row["body"] for row in reading.read(tmp_path / "kept")] == [b'{"a":[1.10,1e400,-1E-5,0.5],"b":{}}']
    assert rows[0]["bornTimestamp"] == (1767225600 - 7200) * 1_000_000
    assert (rows[1]["queueId"], rows[1]["storeTimestamp"]) == (3, 1795221954986_000)
    assert rows[2]["properties"] == {"color": "red"}
    assert imported(tmp_path / "s", 'topic,body,properties\nT,,"{""a"": ""b""}"\nT,"x\ny",\n').code == 0
    assert [row["body"] for row in reading.read(tmp_path / "s")][3:] == [b"", b"x\ny"]
    assert imported(tmp_path / "s", '{"topic": "N", "body": "x"}', "--mode", "overwrite").code == 0
    assert [row["topic"] for row in reading.read(tmp_path / "s")] == ["N"]
    assert (
        imported(tmp_path / "s", "topic,bodyBase64\nT,\nT,AP8=\n").code == 0
    )  # as --columns topic,bodyBase64 writes it
    assert imported(tmp_path / "s", b'\xef\xbb\xbf{"topic": "T", "body": "after a BOM"}').code == 0
    assert [row["body"] for row in reading.read(tmp_path / "s")] == [b"x", b"", b"\x00\xff", b"after a BOM"]
    assert imported(tmp_path / "s", b"").err.endswith(" has 0 new messages\n")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"topic": "T", "bodi": "x"}', "line 1: unknown column 'bodi'. Did you mean 'body'?"),
        ('\n{"topic": "T", "body": 1}', "line 2: column 'body': expected a text, or JSON, found '1'"),
        ('{"topic": "T", "body": "x", "queueId": 1.5}', "expected a whole number of 32 bits, found '1.5'"),
        ('{"topic": "T", "body": "x", "queueId": true}', "expected a whole number of 32 bits, found 'True'"),
        ('{"topic": "T", "body": "x", "bornTimestamp": "x"}', "expected a time in ISO-8601"),
        ('{"topic": "T", "body": "x", "bornTimestamp": "300000-01-01T00:00:00Z"}', "expected a time in ISO"),
        (
            '{"topic": "T", "body": "x", "bornTimestamp": "294247-01-10T04:00:54.775808Z"}',
            "expected a time in ISO-8601",
        ),
        ('{"topic": "T", "body": "x", "properties": {"a": 1}}', "expected an object of texts"),
        (
            '{"topic": "T", "body": "x", "properties": {"a": 1.10}}',
            "of texts, found \"{'a': 1.10}\"",
        ),
        ('{"topic": "T", "body": "x", "body": "y"}', "line 1: expected a JSON object, found"),
        ('{"topic": "T", "body": {"a": 1, "a": 2}}', ": 'a' is in an object twice"),
        (
            'topic,body,properties\nT,x,"{""a"":""1"",""a"":""2""}"\n',
            "line 2: column 'properties': expected an",
        ),
        ('{"topic": "T", "body": "\\ud800"}', "column 'body': expected a text"),
        ('{"topic": "T", "body": "x", "bodyBase64": "eA=="}', "expected 'body' or 'bodyBase64', found both"),
        ('{"topic": "T", "bodyBase64": "?"}', "column 'bodyBase64': expected base64, found '?'"),
        ('{"topic": "T"}', "line 1: column 'body': expected a text, or 'bodyBase64', found none"),
        ('{"body": "x"}', "column 'topic': expected a string, found null, and no option topic that gives it one"),
        ('{"topic": "T", "body":', "line 1: expected a JSON object"),
        ('{"topic": "T", "body": ' + "[" * 100_000, "line 1: expected a JSON object"),
        ("topic,body\nT,x\nT\n", "line 3: expected 2 cells, found 1"),
        ("topic,colour\nT,x\n", "line 1: unknown column 'colour'"),
        (b"topic,body\nT,\xff\n", "expected CSV in UTF-8"),
        (b"PAR1 and no more", "expected parquet, found something else"),
        (b"ARROW1 and no more", "expected arrow, found something else"),
        (b"\xff\xff\xff\xff\xfe\xff\xff\xff", "rows: expected arrow, found something else"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str | bytes, told: str) -> None:
    root = tmp_path / "store"
    found = imported(root, text)
    assert found.code == 2
    assert told in found.err
    assert found.err.count("\n") == 1
    assert not root.exists() or not list(root.glob("commitlog/*"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"topic": "T", "body": "x"}\n[1]', "line 2: expected a JSON object, found '[1]'"),
        ('\n{"topic": "T"}\n', "line 2: column 'body': expected a text, or 'bodyBase64', found none"),
        (
            '{"topic": "T", "body": "x", "queueId": 2147483648}',
            "expected a whole number of 32 bits, found '2147483648'",
        ),
        ('{"topic": "T", "body": "x", "bornTimestamp": 1.5}', "expected a time in ISO-8601"),
        ('{"topic": "T", "body": "x", "properties": "[1]"}', "expected an object of texts"),
        ('{"topic": "T", "bodyBase64": 7}', "column 'bodyBase64': expected base64, found '7'"),
        ("\n", "expected a line with the names of columns, found none"),
        ('topic,body\nT,"x', "after line 2: expected CSV in UTF-8"),
        ("topic,body\n\nT,x,y\n", "line 3: expected 2 cells, found 3"),
    ],
)
def test_rows_that_are_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "rows").write_text(text)
    with pytest.raises(RmqStoreError) as why, incoming_rows(str(tmp_path / "rows"), None) as batches:
        list(batches)
    assert told in str(why.value)


def test_rows_of_many_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty lines are none; a time is one of ours in any year; and it does not matter how many rows come at once."""
    monkeypatch.setattr(incoming, "_ROWS", 2)
    (tmp_path / "rows.csv").write_text(
        "topic,body,bornTimestamp\n\n" + "".join(f"T,{number},{9999 + number}-01-01T00:00:00Z\n" for number in range(5))
    )
    with incoming_rows(str(tmp_path / "rows.csv"), None) as batches:
        found = list(batches)
    assert [batch.num_rows for batch in found] == [0, 2, 2, 1]
    table = pa.Table.from_batches(found)
    assert table.column("body").to_pylist() == [b"%d" % number for number in range(5)]
    years = table.column("bornTimestamp").cast(pa.int64()).to_numpy().view("datetime64[us]").astype("datetime64[Y]")
    assert [str(year).lstrip("+") for year in years] == [str(9999 + number) for number in range(5)]


def test_wrong_files(tmp_path: Path) -> None:
    new = str(tmp_path / "new")
    table = pa.table({"topic": ["T"], "body": [b"x"]})
    pq.write_table(table.append_column("colour", pa.array(["red"])), tmp_path / "a.parquet")
    assert "a.parquet: unknown column 'colour'" in run("import", new, str(tmp_path / "a.parquet")).err
    pq.write_table(table.append_column("queueId", pa.array(["1"])), tmp_path / "b.parquet")
    assert "column 'queueId': expected type int32, found string" in run("import", new, str(tmp_path / "b.parquet")).err
    pq.write_table(pa.table({"topic": ["T"], "bodyBase64": ["AP8="]}), tmp_path / "c.parquet")
    assert run("import", new, str(tmp_path / "c.parquet"), *SMALL).code == 0
    assert [row["body"] for row in reading.read(Path(new))] == [b"\x00\xff"]
    assert run("import", new, str(tmp_path / "none.json")).code == 2
    for other in ({"bodyBase64": [1]}, {"body": [b"x"], "bodyBase64": ["AP8="]}):
        pq.write_table(pa.table({"topic": ["T"], **other}), tmp_path / "e.parquet")
        with pytest.raises(OptionError, match="expected texts, and no column 'body' beside it"):
            incoming_rows(str(tmp_path / "e.parquet"), None).__enter__()
    (tmp_path / "d.jsonl").write_bytes((tmp_path / "c.parquet").read_bytes())
    assert "d.jsonl: line 1: expected a JSON object" in run("import", new, str(tmp_path / "d.jsonl")).err


@pytest.mark.parametrize("damage", ["layout", "text", "name"])
def test_arrow_that_contradicts_itself(tmp_path: Path, damage: str) -> None:
    """Arrow itself takes offsets, and bytes that are no UTF-8, as they come."""
    table = pa.table({"topic": ["Topic"], "body": [b"x" * 77], "keys": ["some-key"]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    old, new = {
        "layout": ((77).to_bytes(4, "little"), b"\xff\xff\xff\x7f"),
        "text": (b"some-key", b"some\xffkey"),
        "name": (b"keys", b"key\xff"),
    }[damage]
    whole = sink.getvalue().to_pybytes()
    found = imported(tmp_path / "new", whole.replace(old, new))
    assert whole.count(old) >= 1
    assert (found.code, found.err.count("\n")) == (2, 1)
    assert found.err.startswith("rmqstore: " + str(tmp_path))
    assert not list((tmp_path / "new").glob("commitlog/*"))


def test_a_stream_that_ends_too_soon(tmp_path: Path) -> None:
    """All of the rows or none."""
    table = pa.table({"topic": ["T"] * 3000, "body": [b"x" * 50] * 3000})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=500)
    found = imported(tmp_path / "new", sink.getvalue().to_pybytes()[:-30_000])
    assert (found.code, "nothing was written" in found.err) == (2, True)
    assert not list((tmp_path / "new").glob("commitlog/*"))
