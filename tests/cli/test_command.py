"""A command prints the rows that Store gives, in each format, in a pipe and at a terminal; its exit code is one of
those documented, and what is wrong is told in one line."""

from __future__ import annotations

import csv
import functools
import io
import json
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from oracle import stores
from oracle.tiered import GrowingQueue
from support import reading
from support.command import COMMAND, ESCAPE, at_terminal, nothing_found, run
from support.patience import HANG

from rmqstore_spark.cli.commands import Rmqstore
from rmqstore_spark.tables.registry import TABLES

COMMANDS = [
    "show",
    "messages",
    "tail",
    "get",
    "history",
    "check",
    "lag",
    "usage",
    "sql",
    "explain",
    "rebuild",
    "set-offsets",
    "copy",
    "salvage",
    "import",
]
COMMANDS += [name for name in TABLES if name not in COMMANDS]


# ---- help and wrong use


def test_every_command_is_tried() -> None:
    with click.Context(Rmqstore()) as context:
        assert Rmqstore().list_commands(context) == COMMANDS, "a new command is also in COMMANDS, above"


@pytest.mark.slow
def test_help_names_every_command() -> None:
    ran = run("--help")
    assert ran.code == 0
    listed = re.findall(r"^  ([\w-]+) +\S", ran.out, re.MULTILINE)
    assert [name for name in listed if name in COMMANDS] == COMMANDS
    assert run().out.startswith("Usage:") or run().err.startswith("Usage:")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_with_an_example_that_works(command: str, store: Path, tmp_path: Path) -> None:
    ran = run(command, "--help")
    assert ran.code == 0
    example = " ".join(ran.out.partition("Example: rmqstore ")[2].split())
    assert example.startswith(f"{command} ")
    example = example.replace("/data/store", str(store)).replace("orders.parquet", str(tmp_path / "x.parquet"))
    if command in ("rebuild", "set-offsets"):
        return  # tests/write has them
    if command in ("copy", "salvage"):
        return  # test_copy.py has them
    if command == "import":
        return  # test_import.py has it
    example = example.replace("order-4711", "order-47").replace("Orders", "Orders1")
    subprocess.run([*COMMAND, *shlex.split(example)], capture_output=True, check=True, timeout=HANG)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["mesages", "x"], "there is no command 'mesages'. Did you mean 'messages'? See rmqstore --help"),
        (["messages", ""], "option 'path': expected a directory, found ''"),
        (["show", ""], "option 'paths': expected paths that are not empty"),
        (["messages"], "Missing argument 'PATH...'"),
        (
            ["messages", "{store}", "--subscibe", "T"],
            "there is no option '--subscibe'. Did you mean '--subscribe'? See rmqstore messages -",
        ),
        (["messages", "{store}", "--SUBSCRIBE", "T"], "there is no option '--SUBSCRIBE'. Did you mean '--subscribe'?"),
        (["messages", "{store}", "--tag=a"], "there is no option '--tag'. Did you mean '--tags'?"),
        (["--verson"], "there is no option '--verson'. Did you mean '--version'? See rmqstore --help"),
        (["topics", "{store}", "--columns", "Topic"], "unknown column 'Topic'. Did you mean 'topic'?"),
        (["history", "{store}", "x", "--columns", "evnt"], "unknown column 'evnt'. Did you mean 'event'?"),
        (["messages", "{store}", "--startingOffsets", "group:nosuch"], "no store has an offset of consumer group"),
        (["gal", "{store}"], "there is no command 'gal'; see rmqstore --help"),
        (["messages", "{store}", "--tags", "TagA &&"], "there is no &&, found 'TagA &&'"),
        (["messages", "{store}", "--no-decompress=x"], "--no-decompress"),
        (["messages", "{store}", "--deduplicate=maybe"], "messages: --deduplicate: expected true or false, or nothing"),
        (["messages", "{store}", "--verify-crc="], "--verify-crc: expected true or false, or nothing, found ''"),
        (["tail", "{store}", "a\nb"], r"Got unexpected extra argument (a\nb); see"),
        (["--format", "json", "topics"], "there is no option '--format' here: a command comes before its options; see"),
        (["{store}"], "Did you mean 'show {store}'? See rmqstore --help"),
        (["tail", "-f", "{store}", "--limit", "3", "--from", "2020-01-01"], "--limit: counts the last"),
        (["tail", "-f", "{store}", "-n", "0", "--starting-offsets", "earliest"], "--limit: counts the last"),
        (["copy", "{store}", ""], "expected the path of a directory, found ''"),
        (["copy", "", "/nowhere"], "option 'path': expected a directory, found ''"),
        (["rebuild", ""], "option 'path': expected a directory, found ''"),
        (["messages", "{store}", "--output", ""], "expected a file's name, found ''"),
        (["messages", "{store}", "--storePathCommitLog", ""], "option 'storePathCommitLog': expected"),
        (["history", "{store}", "x", "--columns", ""], "option 'columns': expected"),
        (["get", "{store}", "x", "--columns", ""], "option 'columns': expected"),
        (["get", "{store}", ""], "option 'msgId': expected a text that is not empty"),
        (["messages", "{store}", "--startingTimestamp", "one day"], "startingTimestamp"),
        (["messages", "{store}", "--columns", "bodi"], "unknown column 'bodi'. Did you mean 'body'?"),
        (["messages", "{store}", "--subscribe", "Orders11"], "Did you mean 'Orders1'"),
        (["messages", "/nowhere"], "/nowhere"),
        (["messages", "{store}", "--format", "xml"], "'xml' is not one of"),
        (["messages", "{store}", "--output", "x"], "give --format too"),
        (["messages", "{store}", "--output", "x.json", "--format", "table"], "a table is for people"),
        (["get", "{store}"], "give an ID, or --key"),
        (["get", "{store}", "x", "--key", "y"], "give an ID, or --key"),
        (["segments", "{store}", "--limit", "-1"], "-1 is not in the range"),
        (["rebuild", "/nowhere"], "/nowhere"),
        (["messages", "{store}", "--\x1b[31m"], r"there is no option '--\x1b[31m'"),
        (
            ["messages", "{store}", "--output", "/nowhere/x.json"],
            "--output /nowhere/x.json: cannot be written: No such",
        ),
        (["messages", "{store}", "--output", "{store}", "--format", "json"], "this is a directory; give a file's name"),
    ],
)
def test_wrong_use(store: Path, arguments: list[str], told: str) -> None:
    ran = run(*(argument.format(store=store) for argument in arguments))
    assert ran.code == 2
    (line,) = ran.err.splitlines()
    assert line.startswith("rmqstore")
    assert told.replace("{store}", str(store)) in line
    assert not ran.out


def test_damage_is_one_line_and_exit_code_1(store: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(store, damaged)
    (segment,) = [path for path in (damaged / "commitlog").iterdir() if b'{"n": 100}' in path.read_bytes()]
    data = bytearray(segment.read_bytes())
    data[data.index(b'{"n": 100}')] ^= 1
    segment.write_bytes(data)
    ran = run("messages", damaged, "--format", "json")
    assert ran.code == 1
    (line,) = ran.err.splitlines()
    assert line.startswith("rmqstore: ")
    assert str(segment) in line
    assert run("messages", damaged, "--mode", "DROPMALFORMED", "--format", "json").out.count("\n") == 301


FACES = [
    [],
    ["--limit", "1"],
    ["--format", "json", "--limit", "1"],
    ["--format", "parquet", "--output", "{out}", "--force"],
]


@pytest.mark.parametrize("face", FACES, ids=" ".join)
def test_exit_code_follows_what_is_found_and_not_what_is_shown(face: list[str], tmp_path: Path) -> None:
    face = [argument.format(out=tmp_path / "out") for argument in face]
    builder = stores.StoreBuilder(tmp_path / "store")
    builder.append(keys="one")
    builder.close()
    for columns in "", "file,store":
        asked = [*face, "--columns", columns] if columns else face
        assert run("check", builder.root, *asked).code == 0
        assert run("get", builder.root, "--key", "one", *asked).code == 0
        for command in (["get", "--key", "two"], ["messages", "--key", "two"], ["tail", "--tags", "none"]):
            missing = run(command[0], builder.root, *command[1:], *asked)
            assert missing.code == 4
            told = nothing_found(f"{command[1][2:]} {command[2]!r}", builder.root)
            assert missing.err.splitlines()[-1] == told
    shutil.rmtree(builder.root / "consumequeue")
    for columns in "", "problem,file", "found,store", "severity":
        ran = run("check", builder.root, *face, *(["--columns", columns] if columns else []))
        assert ran.code == 1
        if columns and "json" in face:
            assert list(json.loads(ran.out.splitlines()[0])) == columns.split(",")


def test_what_is_odd_is_said_once(store: Path, tmp_path: Path) -> None:
    """However often a command opens the store; and not over the findings of check, which name damage themselves."""
    shutil.copytree(store, copy := tmp_path / "store")
    (copy / "commitlog" / "core.1").touch()
    for command, *rest in (["history", "order-7"], ["get", "no"], ["salvage", str(tmp_path / "new")]):
        assert run(command, copy, *rest).err.count("core.1: not a commitlog file") == 1
    (copy / "commitlog" / "core.1").unlink()
    segment = min((copy / "commitlog").iterdir())
    data = bytearray(segment.read_bytes())
    data[3000:3100] = bytes(100)
    segment.write_bytes(data)
    ran = run("check", copy)
    assert (ran.code, ran.err) == (1, "")
    assert "damagedUnit: " in ran.out.splitlines()[0]
    saved = run("salvage", copy, tmp_path / "saved")
    assert (saved.code, saved.err.count("cannot be read")) == (1, 0)
    assert "error damagedUnit: 2 places  " in saved.out
    shutil.rmtree(copy / "consumequeue")  # so the log is asked for the ends of queues
    shown = run("show", copy)
    assert "cannot be read" not in shown.err
    assert shown.code == 3
    assert shown.out.splitlines()[1].startswith(f"  error: the log is damaged: {segment}: position ")
    assert any(str(segment) in text for text in json.loads(run("show", copy, "--format", "json").out)["damage"])


def test_what_is_said_stands_above_bars(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store, copy := tmp_path / "store")
    (copy / "commitlog" / "core.1").touch()
    lines = ESCAPE.sub("", at_terminal(300, "show", copy).out.replace("\r", "\n")).splitlines()
    told = [line for line in lines if "core.1: not a commitlog file" in line]
    assert told
    assert all(line.startswith(("rmqstore: ", "  warning: ")) for line in told)


@pytest.mark.slow
def test_the_tail_of_a_tiered_store(tmp_path: Path) -> None:
    """Those that were stored last, whatever their queues."""
    queues = [GrowingQueue(tmp_path, "A", number) for number in range(3)]
    for number in range(9):
        queues[number % 3].began = 1_700_000_000_000 + number
        queues[number % 3].bring(b"%d" % number)
    asked = ("--columns", "queueId,body", "--format", "json")
    last = run("tail", tmp_path, "-n", "4", *asked)
    assert [json.loads(line)["body"] for line in last.out.splitlines()] == ["5", "6", "7", "8"]
    of_queue = run("tail", tmp_path, "-n", "2", "--assign", '{"A": [1]}', *asked)
    assert [json.loads(line)["body"] for line in of_queue.out.splitlines()] == ["4", "7"]
    with subprocess.Popen([*COMMAND, "tail", "-f", tmp_path, "-n", "2", *asked], stdout=subprocess.PIPE) as ran:
        assert ran.stdout is not None
        try:
            assert [json.loads(ran.stdout.readline())["body"] for _ in range(2)] == ["7", "8"]
            queues[1].bring(b"new", half=20)
            queues[1].finish()
            GrowingQueue(tmp_path, "B", 0).bring(b"newer")
            assert {json.loads(ran.stdout.readline())["body"] for _ in range(2)} == {"new", "newer"}
        finally:
            ran.kill()


def test_a_history_tells_all_details(store: Path) -> None:
    """At a terminal they go on below themselves; what else there is, --wide shows."""
    wanted = json.loads(run("history", store, "order-7", "--format", "json").out.splitlines()[0])["details"]
    shown = at_terminal(80, "history", store, "order-7").out
    assert "not shown: queueId, queueOffset, msgId, commitLogOffset (--wide shows all)" in shown
    assert all(word in shown for word in wanted.split())
    assert "queueOffset" in at_terminal(80, "history", store, "order-7", "--wide").out


def test_errors_name_options_as_they_are_written_here(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store, copy := tmp_path / "store")
    with min((copy / "commitlog").iterdir()).open("r+b") as file:
        file.write(bytes(100))
    ran = run("messages", copy, "--format", "csv")
    assert (ran.code, "--mode DROPMALFORMED reads the rest" in ran.err) == (1, True)


@pytest.mark.parametrize(
    "asked", [["messages", "--limit", "0"], ["history", "one"], ["get", "--key", "one"], ["usage"]]
)
def test_people_get_what_is_whole(tmp_path: Path, asked: list[str]) -> None:
    """On a damaged store, with what is damaged, an exit code, and what to do next; programs get an error."""
    builder = stores.StoreBuilder(tmp_path / "a store", consume_queue=False)
    for _ in range(9):
        builder.append(keys="one")
    builder.close()
    with builder.segment(0).open("r+b") as file:
        file.seek(builder.messages[4].position + 8)
        file.write(bytes(40))
    command, *options = asked
    ran = run(command, builder.root, *options)
    *damage, last = ran.err.splitlines()
    assert (ran.code, last) == (
        3,
        f"what is damaged was left out; to see what is lost: rmqstore check '{builder.root}'",
    )
    assert any(str(builder.segment(0)) in line for line in damage)
    assert len(ran.out.splitlines()) > 4
    assert run(command, builder.root, *options, "--mode", "FAILFAST").code == 1
    assert run(command, builder.root, *options, "--format", "json").code == 1
    assert run(command, builder.root, *options, "--mode", "DROPMALFORMED").code == 0


def test_what_was_not_looked_at_has_a_code_of_its_own(tmp_path: Path) -> None:
    """Where nothing was found: it may be there."""
    builder = stores.StoreBuilder(tmp_path / "store")
    builder.append(keys="one")
    builder.close()
    asked = (["get", "--key", "two"], ["messages", "--tags", "no"], ["tail", "--tags", "no"], ["history", "two"])
    for command, *options in asked:
        assert run(command, builder.root, *options).code == 4
    assert run("check", builder.root).code == 0
    (builder.root / "config").mkdir(exist_ok=True)
    (builder.root / "config" / "tieredStoreMetadata.json").write_text("{}")
    for command, *options in asked:
        for columns in ([], ["--columns", "msgId"]):
            ran = run(command, builder.root, *options, *columns)
            assert (ran.code, ran.out) == (3, "")
            assert ran.err.splitlines()[-1].startswith("nothing found with ")
            assert ran.err.endswith(f"; not looked at: {builder.root}/config/tieredStoreMetadata.json\n")
    assert run("get", builder.root, "--key", "one").code == 0
    for columns in ([], ["--columns", "file"], ["--format", "json"]):
        assert run("check", builder.root, *columns).code == 3
    shutil.rmtree(builder.root / "consumequeue")
    assert run("check", builder.root).code == 1


# ---- what comes out


def expected(store: Path, **options: Any) -> list[dict[str, Any]]:
    return reading.read(store, columns=["topic", "queueOffset", "keys", "body"], **options)


@pytest.mark.slow
def test_formats_have_the_same_rows(store: Path, tmp_path: Path) -> None:
    columns = ["--columns", "topic,queueOffset,keys,body,storeTimestamp,properties"]
    rows = expected(store)
    told = [json.loads(line) for line in run("messages", store, *columns, "--format", "json").out.splitlines()]
    assert [(row["topic"], row["queueOffset"], row["keys"]) for row in told] == [
        (row["topic"], row["queueOffset"], row["keys"]) for row in rows
    ]
    assert told[7]["body"] == '{"n": 7}'
    assert told[7]["properties"]["KEYS"] == "order-7"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", told[7]["storeTimestamp"])
    assert (told[300].get("body"), told[300]["bodyBase64"]) == (None, "/wD+")

    text = run("messages", store, *columns, "--format", "csv").out
    cells = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [row["keys"] for row in cells] == [row["keys"] for row in rows]
    assert (cells[300]["body"], cells[300]["bodyBase64"]) == ("", "/wD+")
    assert cells[7]["storeTimestamp"] == told[7]["storeTimestamp"]

    for name, read in (("x.parquet", pq.read_table), ("x.arrow", lambda path: pa.ipc.open_file(path).read_all())):
        ran = run("messages", store, *columns, "--output", tmp_path / name)
        assert (ran.code, ran.out) == (0, "")
        assert ran.err.splitlines()[-1] == f"{tmp_path / name} has {len(rows)} rows"
        found = read(tmp_path / name)
        assert found.column("body").to_pylist() == [row["body"] for row in rows]
    piped = subprocess.run(
        [*COMMAND, "messages", str(store), *columns, "--format", "arrow"], capture_output=True, check=True
    )
    assert pa.ipc.open_stream(pa.BufferReader(piped.stdout)).read_all().num_rows == len(rows)
    assert {path.name for path in tmp_path.iterdir()} == {"x.parquet", "x.arrow"}


def test_what_fails_leaves_no_file(store: Path, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("from before")
    assert run("messages", store, "--subscribe", "Nothing", "--output", tmp_path / "x.json").code == 2
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x.json", "from before")]


@pytest.mark.slow
def test_selections_and_limits(store: Path) -> None:
    def keys(*arguments: str) -> list[str]:
        return [json.loads(line)["keys"] for line in run(*arguments, "--format", "json").out.splitlines()]

    path = str(store)
    rows = [row["keys"] for row in expected(store, subscribe="Orders1")]
    assert keys("messages", path, "--subscribe", "Orders1") == rows
    assert keys("messages", path, "--topic", "Orders1", "--from", "1970-01-01", "--to", "2100-01-01") == rows
    assert keys("messages", path, "--subscribe", "Orders1", "--limit", "7") == rows[:7]
    assert keys("tail", path, "--subscribe", "Orders1") == rows[-10:]
    assert keys("tail", path, "--subscribe", "Orders1", "-n", "3") == rows[-3:]
    assert keys("get", path, "--key", "order-47") == ["order-47"]
    # The same names in the form that other commands have, and in several stores.
    assert (
        keys("messages", path, "--starting-offsets", '{"Orders1": {"0": 49, "1": 49}}', "--subscribe", "Orders1")
        == (rows[-2:])
    )
    (row,) = run(
        "messages", path, "--columns", "store,topic", "--subscribe", "Binary", "--format", "json"
    ).out.splitlines()
    assert json.loads(row) == {"store": path, "topic": "Binary"}


def test_one_message_in_full(store: Path) -> None:
    ran = run("get", store, "--key", "order-47")
    assert ran.code == 0
    for part in ("Orders2, queue 1, offset ", "body            9 bytes", '    "n": 47', "KEYS = order-47", str(store)):
        assert part in ran.out
    (row,) = reading.read(store, columns=["offsetMsgId"], key="order-47")
    assert run("get", store, row["offsetMsgId"]).out == ran.out
    binary = run("get", store, "--key", "binary").out
    assert "ff 00 fe" in binary
    assert "reconsumeTimes  3\n" in binary
    missing = run("get", store, "--key", "order-4711")
    assert (missing.code, missing.out, missing.err) == (4, "", nothing_found("key 'order-4711'", store) + "\n")


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ('{"a":1,"b":[true,null,1.5,"é"]}', ["{", '  "a": 1,', '  "b": [', "    true,"]),
        ('{"a": 1, "b": {}}', ["{", '  "a": 1,', '  "b": {}', "}"]),
        ('{"a":1,"a":2}', None),
        ('{"a":1e5}', None),
        ('{"a":12345678901234567890.10}', None),
        ('{"a":1.0000000000000000001}', None),
        (r'{"a":"\u0041"}', None),
        ('{"a" :1}', None),
        ("[" * 2000 + "]" * 2000, None),
        ("NaN ", None),
        ("1" * 5000, None),
    ],
)
def test_a_body_is_shown_as_it_is(body: str, shown: list[str] | None, tmp_path: Path) -> None:
    """JSON is indented only where that is all that changes."""
    builder = stores.StoreBuilder(tmp_path / "store")
    builder.append(keys="k", body=body.encode())
    builder.close()
    lines = run("get", builder.root, "--key", "k").out.partition(" bytes\n")[2].splitlines()
    assert lines[: len(shown or [1])] == [f"  {line}" for line in shown or [body]]


def test_an_empty_map_is_an_object(tmp_path: Path) -> None:
    builder = stores.StoreBuilder(tmp_path / "store")
    builder.append(topic="T", keys="k")
    builder.close()
    for kind, read in (("json", json.loads), ("csv", lambda line: {"attributes": line[1:-1]})):
        lines = run("topics", builder.root, "--format", kind, "--columns", "attributes").out.splitlines()
        assert read(lines[-1])["attributes"] in ({}, "{}", "")


def test_bytes_can_be_asked_for_in_base64(store: Path) -> None:
    asked = ["--columns", "bodyBase64, topic,body", "--topic", "Binary,Orders0", "--format"]
    rows = [json.loads(line) for line in run("messages", store, *asked, "json").out.splitlines()]
    assert rows[-1] == {"topic": "Binary", "bodyBase64": "/wD+"}
    assert rows[0] == {"bodyBase64": "eyJuIjogMH0=", "topic": "Orders0", "body": '{"n": 0}'}
    cells = list(csv.DictReader(io.StringIO(run("messages", store, *asked, "csv").out)))
    assert [cell["bodyBase64"] for cell in cells] == [row["bodyBase64"] for row in rows]
    assert list(cells[0]) == ["bodyBase64", "topic", "body"]
    (line,) = run("tail", store, "-n", "1", "--key", "binary", "--columns", "bodyBase64", "--format", "json").out.split(
        "\n"
    )[:1]
    assert json.loads(line) == {"bodyBase64": "/wD+"}
    for columns in ("topicBase64", "bodyBase64,bodyBase64", "nothingBase64"):
        assert run("messages", store, "--columns", columns).code == 2


@pytest.mark.parametrize(
    ("name", "kind"), [("jsonl", "json"), ("ndjson", "json"), ("CSV", "csv"), ("feather", "arrow")]
)
def test_a_format_is_called_as_its_files_are(name: str, kind: str, store: Path, tmp_path: Path) -> None:
    output = tmp_path / "x"
    written = [
        run("queues", store, "--format", each, "--output", output, "--force").code or output.read_bytes()
        for each in (name, kind)
    ]
    assert written[0] == written[1]


@pytest.mark.parametrize(
    ("words", "is_on"),
    [
        ("--decompress", True),
        ("--decompress true", True),
        ("--decompress=TRUE", True),
        ("--no-decompress", False),
        ("--decompress false", False),
        ("--decompress=false", False),
        ("--decompress --no-decompress", False),
        ("", True),
    ],
)
def test_a_flag_is_a_flag_and_may_have_a_text(words: str, is_on: bool, tmp_path: Path) -> None:
    builder = stores.StoreBuilder(tmp_path / "store")
    builder.append(keys="k", body=zlib.compress(b"plain"), sys_flag=1)
    builder.close()
    for arguments in ([*words.split(), str(builder.root)], [str(builder.root), *words.split()]):
        ran = run("messages", *arguments, "--format", "json", "--columns", "body")
        assert (ran.code, ran.out == '{"body": "plain"}\n') == (0, is_on)
    ran = run(
        "messages", "--deduplicate", "-n", "1", builder.root, "--verify-crc", "--no-drop-cache", "--format", "csv"
    )
    assert (ran.code, ran.out.count("\n")) == (0, 2)


@pytest.mark.parametrize("face", [[], ["--format", "json"]])
def test_nothing_is_found_in_columns_of_its_own(face: list[str], store: Path) -> None:
    missing = run("history", store, "none", "--columns", "event,details", *face)
    assert (missing.code, missing.out, missing.err) == (4, "", nothing_found("key or id 'none'", store) + "\n")
    empty = run("inflight", store, "--columns", "group,popTimestamp", *face)
    told = f"nothing found in {store}: a row is a popped message that has not been acknowledged\n"
    assert (empty.code, empty.out, empty.err) == (0, "", told)


def test_spaces_around_commas_mean_nothing(store: Path) -> None:
    log = store / "commitlog"
    for arguments in (
        ["history", store, "order-7", "--columns", "timestamp, event"],
        ["messages", store, "--columns", " topic , keys", "--topic", "Orders0 , Orders1"],
        ["topics", store, "--columns", "topic ,kind"],
        ["tail", store, "--columns", "topic, keys"],
        ["get", store, "--key", "order-7", "--columns", "topic, keys"],
        ["check", store, "--columns", "problem, file"],
        ["segments", store, "--storePathCommitLog", f" {log} , {log}"[: len(str(log)) + 2]],
    ):
        ran = run(*map(str, arguments), "--format", "json")
        assert ran.code == 0, ran.err


def test_a_commitlog_elsewhere(store: Path, tmp_path: Path) -> None:
    """The store has no commitlog/ of its own, and the one that is named may be empty."""
    log, empty = tmp_path / "log", tmp_path / "empty"
    store = Path(shutil.copytree(store, tmp_path / "store"))
    commands = (["messages", store], ["get", store, "--key", "order-7"], ["check", store])
    expected = [run(*map(str, command), "--format", "json").out for command in commands]
    (store / "commitlog").rename(log)
    empty.mkdir()
    for command, rows in zip(commands, expected, strict=True):
        ran = run(*map(str, command), "--format", "json", "--storePathCommitLog", log)
        assert (ran.out.replace(str(log), str(store / "commitlog")), ran.code) == (rows, 0), ran.err
    for command, code in zip(commands, (4, 4, 1), strict=True):
        ran = run(*map(str, command), "--format", "json", "--storePathCommitLog", empty)
        assert ran.code == code, ran.err
    assert "queueAheadOfLog" in ran.out


def test_limit_is_the_most_rows(store: Path, tmp_path: Path) -> None:
    """0 and what is more than there can be: all of them."""
    for command in (["messages"], ["tail"], ["get", "--topic", "Orders1", "--from", "1970-01-01", "--key", "order-1"]):
        rows = {
            limit: run(command[0], store, *command[1:], "--format", "json", *limit.split()).out.count("\n")
            for limit in ("", "-n 1", "-n 0", f"-n {(1 << 63) - 1}", f"--limit {1 << 63}", f"-n {10**30}")
        }
        most = rows.pop("-n 0")
        assert rows.pop("-n 1") == 1
        assert rows.pop("") == (10 if command == ["tail"] else most)
        assert set(rows.values()) == {most}
    shutil.copytree(store, copy := tmp_path / "copy")
    shutil.rmtree(copy / "consumequeue")
    (copy / "commitlog" / "stray").touch()
    for limit, most in (("0", 100), ("1", 1), (str(1 << 63), 100)):
        assert (
            0
            < sum(
                line.startswith("  ") and "more;" not in line
                for line in run("check", copy, "-n", limit).out.split("\n")
            )
            <= most
        )


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("show", "explain", "rebuild", "import")])
def test_help_says_what_the_limit_is_without_one(command: str) -> None:
    defaults = {"tail": "10", "get": "all"} | dict.fromkeys(("check", "copy", "salvage"), "20 of each problem")
    told = " ".join(run(command, "--help").out.split())
    limit = told.partition("-n, --limit")[2]
    assert "the most rows" in limit
    assert f"[default: {defaults.get(command, '100 in a table')}" in limit


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [["show"], ["topics"], ["messages", "--limit", "0"], ["get", "--key", "evil"]], ids=lambda each: each[0]
)
@pytest.mark.parametrize("columns", [80, 200])
def test_at_a_terminal(store: Path, command: list[str], columns: int) -> None:
    """No line is wider, and what a message says moves no cursor."""
    ran = at_terminal(columns, command[0], store, *command[1:])
    assert ran.code == 0
    plain = ESCAPE.sub("", ran.out)
    assert "\x1b" not in plain
    assert "\u202e" not in plain
    assert "\x9b" not in plain
    lines = [line for line in plain.splitlines() if str(store) not in line and not line.startswith("not shown:")]
    assert max(map(len, lines)) <= columns
    assert "\\x1b" in plain


def test_json_at_a_terminal_moves_no_cursor(store: Path) -> None:
    ran = at_terminal(80, "messages", store, "--format", "json", "--subscribePattern", "Evil.*")
    assert "\x1b" not in ran.out
    assert json.loads(ran.out)["topic"] == "Evil\x1b[31m\u202e"


@pytest.mark.slow
@pytest.mark.parametrize("command", [["show"], ["topics"], ["messages"], ["get", "--key", "order-1"], ["--help"]])
def test_no_colour_in_a_pipe(store: Path, command: list[str]) -> None:
    ran = run(command[0], *([store] if command[0] != "--help" else []), *command[1:])
    assert ran.code == 0
    assert "\x1b" not in ran.out + ran.err


def test_a_long_table_says_so(store: Path) -> None:
    ran = run("messages", store)
    assert ran.err == "the first 100 rows; --limit 0 shows all\n"
    assert len(ran.out.splitlines()) == 102
    assert len(run("messages", store, "--limit", "0").out.splitlines()) == 304


# ---- pipes and signals


@pytest.fixture(scope="module")
def large_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("large") / "store"
    builder = stores.StoreBuilder(root, segment_size=1 << 26)
    for _ in range(30_000):
        builder.append(topic="T", queue_id=0, body=bytes(700))
    builder.close()
    return root


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["json", "csv", "table"])
def test_a_closed_pipe_is_no_error(large_store: Path, kind: str) -> None:
    command = [*COMMAND, "messages", str(large_store), "--format", kind, "--limit", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        told = process.stderr.read()
    assert (process.returncode, told) == (0, b"")


def test_output_replaces_only_files(store: Path, tmp_path: Path) -> None:
    """Not a link, a pipe or a device; and what the user has beside it stays."""
    rows = ("messages", store, "--columns", "topic", "--limit", "3", "--format", "csv", "--force", "--output")
    target, link = tmp_path / "target.csv", tmp_path / "link.csv"
    link.symlink_to(target)
    beside = tmp_path / "target.csv.part"
    beside.write_text("precious")
    target.write_text("old")
    target.chmod(0o640)
    assert run(*rows, link).code == 0
    assert link.is_symlink()
    assert target.read_text().count("\n") == 4
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert beside.read_text() == "precious"

    os.mkfifo(pipe := tmp_path / "pipe.csv")
    with subprocess.Popen([*COMMAND, *map(str, rows), str(pipe)], stderr=subprocess.PIPE) as process:
        assert pipe.read_text() == target.read_text()
        process.communicate(timeout=HANG)
    assert process.returncode == 0
    assert pipe.is_fifo()
    assert run(*rows, os.devnull).code == 0
    assert Path(os.devnull).is_char_device()
    full = run(*rows, "/dev/full")
    assert (full.code, full.err) == (2, "rmqstore: --output /dev/full: cannot be written: No space left on device\n")
    assert sorted(os.listdir(tmp_path)) == ["link.csv", "pipe.csv", "target.csv", "target.csv.part"]


def test_output_is_never_in_a_store(store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    segment = next((copy / "commitlog").iterdir())
    (tmp_path / "link.csv").symlink_to(segment)
    for output in (segment, copy / "x.csv", copy / "config" / "x.csv", tmp_path / "link.csv"):
        ran = run("messages", copy, "--format", "csv", "--output", output)
        assert ran.code == 2
        assert f"--output {output}: " in ran.err
        assert "nothing is written into stores; give a path elsewhere" in ran.err
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


def test_an_interrupt_is_clean(large_store: Path, tmp_path: Path) -> None:
    output = tmp_path / "x.json"
    command = [*COMMAND, "messages", str(large_store), "--output", str(output)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while not os.listdir(tmp_path):
            assert process.poll() is None
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=HANG)
    assert (process.returncode, out, err) == (130, b"", b"")
    assert os.listdir(tmp_path) == []


def test_rebuild(store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    before = run("queues", copy, "--format", "json", "--columns", "topic,queueId,messages").out
    shutil.rmtree(copy / "consumequeue")
    ran = run("rebuild", copy)
    # A topic that is no name of a directory gets no queue; the table has it from the log.
    assert (ran.code, ran.out) == (0, "the queues have 301 messages\n")
    after = run("queues", copy, "--format", "json", "--columns", "topic,queueId,messages").out
    assert after == before
    assert sum(json.loads(line)["messages"] for line in after.splitlines()) == 302


@pytest.mark.slow
@pytest.mark.long
def test_a_shell_completes_commands_and_options() -> None:
    def told(**env: str) -> str:
        ran = subprocess.run(COMMAND, capture_output=True, text=True, check=True, env={**os.environ, **env})
        return ran.stdout

    assert "_RMQSTORE_COMPLETE=bash_complete" in told(_RMQSTORE_COMPLETE="bash_source")
    assert 'string split --max 1 ","' in told(_RMQSTORE_COMPLETE="fish_source")
    words = {"_RMQSTORE_COMPLETE": "bash_complete", "COMP_CWORD": "1"}
    assert told(**words, COMP_WORDS="rmqstore me") == "plain,messages\n"
    words["COMP_CWORD"] = "2"
    assert told(
        **words, COMP_WORDS="rmqstore messages --subscribe"
    ) == "plain,--subscribe\nplain,--subscribePattern\n" + ("plain,--subscribe-pattern\n")
    # What lies on disks is left to the shell.
    assert told(**words, COMP_WORDS="rmqstore show /da") == "dir,/da\n"
    assert told(**words | {"COMP_CWORD": "3"}, COMP_WORDS="rmqstore import /data/store or") == "file,or\n"


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (
            ["messages", "{store}", "--subscribe", "Orders1,Or"],
            ["Orders1,Orders0", "Orders1,Orders1", "Orders1,Orders2"],
        ),
        (["messages", "{store}", "--startingOffsets", "group:d"], ["group:done"]),
        (["messages", "{store}", "--starting-offsets", "e"], ["earliest"]),
        (["lag", "{store}", "--group", ""], ["done", "slow"]),
        (["queues", "{store}", "--columns", "topic,min"], ["topic,minOffset"]),
        (["queues", "{store}", "--sort", "lastC"], ["lastCommitLogOffset"]),
        (["queues", "{store}", "--format", "f"], ["feather"]),
        (["history", "{store}", "one", "--columns", "event,de"], ["event,details"]),
        (["usage", "{store}", "--by", "topic,ho"], ["topic,hour"]),
        (["copy", "{store}", "{store}-new", "--exclude-topic", "Orders2"], ["Orders2"]),
        (["set-offsets", "{store}", "--group-offset", "slow=l"], ["slow=latest"]),
        (["messages", "{store}/nowhere", "--subscribe", "O"], []),
    ],
)
def test_a_shell_completes_names(words: list[str], completed: list[str], store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    (copy / "config").mkdir(exist_ok=True)
    offsets = {"Orders0@done": {"0": 1}, "Orders0@slow": {"0": 1}}
    (copy / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    line = ["rmqstore", *(word.format(store=copy) for word in words)]
    ran = subprocess.run(
        COMMAND,
        capture_output=True,
        text=True,
        check=True,
        env={
            **os.environ,
            "_RMQSTORE_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(shlex.quote(word) for word in line),
            "COMP_CWORD": str(len(words)),
        },
    )
    assert ran.stderr == ""
    assert ran.stdout.split() == [f"plain,{word}" for word in completed]


def test_without_click_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise ModuleNotFoundError(\"No module named 'click'\")")
    ran = subprocess.run(
        [*COMMAND, "--help"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert ran.returncode == 2
    assert "pip install click rich" in ran.stderr


# ---- names that no store has


@functools.cache
def options_of_commands() -> dict[str, set[str | None]]:
    """The options of each command."""
    with click.Context(Rmqstore()) as context:
        made = {name: Rmqstore().get_command(context, name) for name in COMMANDS}
    return {name: {each.name for each in command.params} for name, command in made.items() if command}


def commands_with(option: str) -> list[str]:
    """The commands that take an option."""
    return [name for name, options in options_of_commands().items() if option in options]


@pytest.mark.parametrize("command", commands_with("startingOffsets"))
def test_a_group_that_is_not_there_is_refused(command: str, store: Path, tmp_path: Path) -> None:
    target = [str(tmp_path / "new")] if command in ("copy", "salvage") else []
    ran = run(command, str(store), *target, "--startingOffsets", "group:nosuch")
    assert (ran.code, ran.out) == (2, "")
    assert "option 'startingOffsets': no store has an offset of consumer group 'nosuch'" in ran.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "command"),
    [(option, command) for option in ("subscribe", "assign") for command in commands_with(option)],
)
def test_a_topic_that_is_not_there_is_told(option: str, command: str, store: Path, tmp_path: Path) -> None:
    """Refused, or said beside what comes."""
    target = [str(tmp_path / "new")] if command in ("copy", "salvage") else []
    wanted = ["order-47"] if command == "get" else []
    given = {"subscribe": "Orders9", "assign": '{"Orders9": [0]}'}[option]
    ran = run(command, str(store), *target, *wanted, f"--{option}", given)
    assert "unknown topic 'Orders9'. Did you mean 'Orders" in ran.err


def test_tail_is_the_end_of_messages(tmp_path: Path) -> None:
    """Whatever selects them; of a group, too."""
    builder = stores.StoreBuilder(tmp_path)
    for number in range(40):
        builder.append(topic=f"T{number % 2}", queue_id=number % 3, keys=str(number))
    builder.close()
    (tmp_path / "config").mkdir(exist_ok=True)
    (tmp_path / "config" / "consumerOffset.json").write_text('{"offsetTable": {"T0@G": {0: 4, 1: 2}, "T1@H": {0: 7}}}')
    selections = [["group:G"], ["group:H"], ["group:G", "--subscribe", "T1"], ['{"T0": {"1": 5}}', "--topic", "T0"]]
    for selection in selections:
        arguments = (str(tmp_path), "--format", "json", "--startingOffsets", *selection)
        rows = run("messages", *arguments).out.splitlines()
        assert run("tail", *arguments).out.splitlines() == rows[-10:]
        assert run("tail", *arguments, "-n", "0").out.splitlines() == rows


# ---- tail --follow


@pytest.mark.slow
def test_tail_follows(tmp_path: Path) -> None:
    """The last ones, then those that come; Ctrl-C ends it without a traceback."""
    builder = stores.StoreBuilder(tmp_path)
    for number in range(20):
        builder.append(topic="Orders", keys=f"k{number}")
    builder.flush()
    for arguments in ((), ("--format", "json")):
        command = [*COMMAND, "tail", "-f", str(tmp_path), "-n", "2", "--subscribe", "Orders", *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            guard = threading.Timer(300, process.kill)  # then there is nothing more to read
            guard.start()
            lines = [process.stdout.readline() for _ in range(2 if arguments else 4)]
            assert f"k{len(builder.messages) - 1}" in lines[-1]
            for _ in range(3):
                builder.append(topic="Other")
                builder.append(topic="Orders", keys=f"k{len(builder.messages)}")
                builder.flush()
                assert f"k{len(builder.messages) - 1}" in process.stdout.readline()
            process.send_signal(signal.SIGINT)
            assert (process.stdout.read() + process.stderr.read(), process.wait()) == ("", 130)
            guard.cancel()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["--endingOffsets", "latest"], "option 'endingOffsets' is not for streams"),
        (["--format", "parquet"], "--follow: output without an end"),
        (["--output", "x.json"], "--follow: output without an end"),
    ],
)
def test_tail_follow_refuses(arguments: list[str], match: str, store: Path) -> None:
    ran = run("tail", "--follow", store, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert match in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("mode", ["DROPMALFORMED", "PERMISSIVE", "FAILFAST"])
@pytest.mark.parametrize(
    "asked", [["get", "--key", "two"], ["messages", "--tags", "no"], ["tail", "--tags", "no"], ["history", "two"]]
)
def test_damage_that_was_passed_over_may_have_been_it(tmp_path: Path, asked: list[str], mode: str) -> None:
    """So nothing found is not all looked at; a row for the damage is found; and FAILFAST is an error."""
    builder = stores.StoreBuilder(tmp_path / "store")
    for number in range(9):
        builder.append(keys="one", body=b"%020d" % number)
    builder.close()
    command, *options = asked
    assert run(command, builder.root, *options, "--mode", mode).code == 4
    with builder.segment(0).open("r+b") as file:
        file.seek(builder.messages[4].position + 8)
        file.write(bytes(40))
    ran = run(command, builder.root, *options, "--mode", mode)
    is_row = mode == "PERMISSIVE" and command != "history"
    assert ran.code == (1 if mode == "FAILFAST" else 0 if is_row else 3), ran.err
    if ran.code == 3:
        assert ran.err.splitlines()[-1].startswith("nothing found with ")
        assert ran.err.endswith("; not looked at: what is damaged\n")
