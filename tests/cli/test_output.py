"""How rows come out: in order, wide, in sums, into files that are there, by a template, with bodies in other forms; and
`show` in JSON."""

from __future__ import annotations

import base64
import json
import re
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from oracle import stores
from rich.cells import cell_len
from support.command import ESCAPE, at_terminal, run

# ---- in order, wide, and over an older file


@pytest.mark.parametrize("limit", [None, 3, 0])
def test_sorted(store: Path, limit: int | None) -> None:
    """By several columns, up and down; nulls last. With and without a limit, which keeps the first of all."""
    options = [] if limit is None else ["--limit", str(limit)]
    ran = run("messages", store, "--columns", "queueId,queueOffset,keys", "--format", "json", "--sort",
              "queueId,-queueOffset,keys", *options)  # fmt: skip
    rows = [tuple(json.loads(line).values()) for line in ran.out.splitlines()]
    everything = run("messages", store, "--columns", "queueId,queueOffset,keys", "--format", "json").out.splitlines()
    expected = sorted(
        (tuple(json.loads(line).values()) for line in everything), key=lambda row: (row[0], -row[1], row[2])
    )
    assert rows == expected[: limit or None]


@pytest.mark.parametrize(("column", "complaint"), [("nope", "unknown column 'nope'"), ("properties", "has no order")])
def test_what_cannot_be_sorted(store: Path, column: str, complaint: str) -> None:
    ran = run("messages", store, "--columns", "keys,properties", "--sort", column)
    assert (ran.code, ran.out) == (2, "")
    assert complaint in ran.err


def test_what_is_cut_and_what_is_not(store: Path) -> None:
    """Names that begin alike can still be told apart."""
    shown = at_terminal(60, "queues", store).out
    assert max(map(len, ESCAPE.sub("", shown).splitlines())) > 0
    assert "not shown: " in shown
    wide = at_terminal(60, "queues", store, "--wide").out
    assert "not shown: " not in wide
    assert "…" not in wide


def test_what_people_come_for_is_on_the_screen(store: Path) -> None:
    """In 80 columns; and a path keeps its last parts."""
    topics = ESCAPE.sub("", at_terminal(80, "topics", store).out).splitlines()
    assert topics[0].split()[:5] == ["topic", "kind", "queues", "messages", "bytes"]
    segments = ESCAPE.sub("", at_terminal(80, "segments", store).out).splitlines()
    assert segments[2].split()[0].endswith("/00000000000000000000")
    assert segments[2].startswith("…/")


def test_what_fills_the_disk_is_on_the_screen(store: Path) -> None:
    """In 60 columns, by hour: an hour has no minutes, and sizes come before what may be left out."""
    lines = ESCAPE.sub("", at_terminal(60, "usage", store, "--by", "topic,hour").out).split("\r")[-1].splitlines()
    assert lines[0].split()[:4] == ["topic", "hour", "size", "messages"]
    assert re.fullmatch(r"\S+ +\d{4}-\d\d-\d\d \d\d:00 +[\d.]+ \S+ +\d+.*", lines[2])


@pytest.mark.parametrize("by", ["topic", "topic,hour", "tag,topic"])
def test_what_fills_the_disk_is_on_a_narrow_screen(by: str, long_names: Path) -> None:
    """In 40 columns: sizes are there, names are cut, and what is left out is said."""
    ran = at_terminal(40, "usage", long_names, "--by", by)
    lines = ESCAPE.sub("", ran.out).split("\r")[-1].splitlines()
    assert lines[0].split()[: len(by.split(",")) + 1] == [*by.split(","), "size"]
    assert all(re.search(r"[\d.]+ (KiB|bytes)", line) for line in lines[2:3])
    assert max(map(cell_len, lines)) <= 40


@pytest.fixture(scope="module")
def long_names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Long names that begin and end alike, and long texts."""
    root = tmp_path_factory.mktemp("long") / "store"
    builder = stores.StoreBuilder(root)
    for number in range(10):
        body = b"what an order says, in many words " * 4 if number else "長い本文".encode() * 60
        builder.append(topic=f"RMQ_SYS_A_TOPIC_{number % 3}", queue_id=0, keys=f"a/b/{number}", body=body)
    builder.close()
    offsets = {f"RMQ_SYS_A_TOPIC_{number}@group-{number}-{'g' * 70}": {"0": 1} for number in range(3)}
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    return root


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("command", ["show", "topics", "messages", "segments", "lag", "offsets", "usage"])
def test_screens_of_all_widths(command: str, columns: int, long_names: Path) -> None:
    """Names can be told apart, no line is wider than the screen, and none is only a mark for what was cut."""
    shown = ESCAPE.sub("", at_terminal(columns, command, long_names).out)
    lines = shown.split("\r")[-1].splitlines()
    assert max(map(cell_len, lines[command == "show" :])) <= columns
    assert not [line for line in lines if line.split()[:1] == ["…"]]
    if command in ("show", "topics"):
        for number in range(3):
            assert any(f"RMQ_SYS_A_TOPIC_{number}" in line for line in lines)


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_what_happened_is_on_the_screen(columns: int, long_names: Path) -> None:
    """At any width; other columns are left out."""
    shown = ESCAPE.sub("", at_terminal(columns, "history", long_names, "a/b/0").out).split("\r")[-1]
    head, _, line, *_ = shown.splitlines()
    assert [head.split()[0], head.split()[1], head.split()[-1]] == ["timestamp", "event", "details"]
    assert "720 bytes" in line
    assert ("group" in head) == (columns > 80), "it has no value here"


def test_the_last_column_goes_on_below(long_names: Path) -> None:
    """In up to four lines, at spaces; a path before a slash."""
    asked = ("messages", long_names, "--columns", "keys,body", "-n", "2")
    lines = ESCAPE.sub("", at_terminal(40, *asked).out).splitlines()[2:10]
    assert [line[:7].strip() for line in lines] == ["a/b/0", "", "", "", "a/b/1", "", "", ""]
    assert "…" in lines[3]
    assert lines[0] == "a/b/0  長い本文長い本文長い本文長い本文"
    assert lines[4:7] == [
        "a/b/1  what an order says, in many words",
        "       what an order says, in many words",
        "       what an order says, in many words",
    ]
    (segment,) = (long_names / "commitlog").iterdir()
    shown = ESCAPE.sub("", at_terminal(50, "segments", long_names, "--columns", "state,file").out).splitlines()[2:]
    pieces = [line[7:] for line in shown if not line.startswith("not")]
    assert "".join(pieces) == str(segment) or "…" in pieces[-1]
    assert all(piece.startswith("/") for piece in pieces)


def test_an_older_file_stays(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("mine")
    ran = run("queues", store, "--output", path)
    assert ran.code == 2
    assert ran.err == f"rmqstore: --output {path}: this file exists; give another name, or --force to replace it\n"
    assert path.read_text() == "mine"
    assert run("queues", store, "--output", path, "--force").code == 0
    assert path.read_text().startswith("topic,")


# ---- lag


@pytest.fixture(scope="module")
def consumed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("lag") / "store"
    builder = stores.StoreBuilder(root)
    for number in range(60):
        builder.append(topic=f"T{number % 2}", queue_id=number % 3, body=b"x")
    builder.close()
    table = {"T0@slow": {"0": 1, "1": 0, "2": 4}, "T1@slow": {"0": 10}, "T0@done": {"0": 10}, "T1@early": {"1": 99}}
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    return root


@pytest.mark.parametrize("by", ["group", "topic", "queue"])
def test_lag_is_offsets_in_sums(consumed: Path, by: str) -> None:
    rows = [json.loads(line) for line in run("lag", consumed, "--by", by, "--format", "json").out.splitlines()]
    names = {"group": ["group"], "topic": ["group", "topic"], "queue": ["group", "topic", "queueId"]}[by]
    sums: dict[tuple[Any, ...], int] = {}
    for line in run("offsets", consumed, "--format", "json").out.splitlines():
        row = json.loads(line)
        key = tuple(row[name] for name in names)
        sums[key] = sums.get(key, 0) + max(0, row["lag"])
    assert sums
    assert {tuple(row[name] for name in names): row["lag"] for row in rows} == sums
    lags = [row["lag"] for row in rows]
    assert lags == sorted(lags, reverse=True)
    assert lags[0] > 0


@pytest.mark.parametrize("columns", [[], ["--columns", "topic,lag"]])
def test_rows_of_one_group(consumed: Path, columns: list[str]) -> None:
    rows = [json.loads(x) for x in run("offsets", consumed, "--format", "json").out.splitlines()]
    names = columns[1].split(",") if columns else list(rows[0])
    expected = [{name: row[name] for name in names} for row in rows if row["group"] == "slow"]
    ran = run("offsets", consumed, "--group", "slow", "--format", "json", *columns)
    assert [json.loads(line) for line in ran.out.splitlines()] == expected
    assert expected
    nobody = run("offsets", consumed, "--group", "nobody")
    assert (nobody.code, nobody.out, nobody.err) == (
        0,
        "",
        f"nothing found with group 'nobody' in {consumed}: a row is the position of a consumer group in a queue\n",
    )


def test_lag_of_one_group(consumed: Path) -> None:
    (row,) = [json.loads(line) for line in run("lag", consumed, "--group", "slow", "--format", "json").out.splitlines()]
    assert (row["queues"], row["behind"], row["lag"]) == (4, 3, 25)
    ran = run("lag", consumed, "--group", "slo")
    assert (ran.code, ran.out) == (2, "")
    assert "no store has an offset of consumer group 'slo'. Did you mean 'slow'?" in ran.err


# ---- show


def test_show_in_json_and_whole(tmp_path: Path) -> None:
    builder = stores.StoreBuilder(tmp_path / "store")
    for number in range(40):
        builder.append(topic=f"T{number % 20}", queue_id=0, body=b"x" * number)
    builder.close()
    (tmp_path / "store" / "abort").touch()
    (tmp_path / "store" / "commitlog" / "notes.txt").touch()
    told = json.loads(run("show", tmp_path / "store", "--format", "json").out)
    assert (told["messages"], told["queues"], len(told["topics"]), told["abort"], told["locked"]) == (
        40,
        20,
        20,
        True,
        False,
    )
    assert {each["problem"] for each in told["problems"]} == {"abort", "strayFile"}
    queues = [json.loads(line) for line in run("queues", tmp_path / "store", "--format", "json").out.splitlines()]
    assert {each["topic"]: each["messages"] for each in told["topics"]} == {q["topic"]: q["messages"] for q in queues}
    assert told["lastStoreTimestamp"] == max(queue["lastStoreTimestamp"] for queue in queues)
    shown = run("show", tmp_path / "store").out
    assert shown.splitlines()[1].startswith("  warning: strayFile: ")
    assert "and 5 other topics with 10 messages" in shown
    whole = run("show", tmp_path / "store", "--all").out
    assert run("show", tmp_path / "store", "-n", "0").out == whole
    few = run("show", tmp_path / "store", "-n", "2").out
    assert few.count(" other topics with ") == 1
    assert len(few.splitlines()) < len(shown.splitlines())
    assert all(f"T{number} " in whole for number in range(20))
    assert "other topics" not in whole


def test_what_happened_in_one_group() -> None:
    store = Path(__file__).resolve().parents[2] / "sample_store"
    asked: list[str | Path] = ["history", store, "retried-0", "--format", "json"]
    rows = [json.loads(line) for line in run(*asked).out.splitlines()]
    found = [json.loads(line) for line in run(*asked, "--group", "failing-group").out.splitlines()]
    assert found == [row for row in rows if row["group"] == "failing-group"]
    assert 0 < len(found) < len(rows)
    none = run(*asked, "--group", "nobody")
    assert (none.code, none.out) == (4, "")
    assert none.err.startswith("nothing found with key or id 'retried-0', group 'nobody' in ")


def test_a_broken_config_is_on_the_first_lines(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store, tmp_path / "store")
    (tmp_path / "store" / "config").mkdir(exist_ok=True)
    (tmp_path / "store" / "config" / "topics.json").write_text("{")
    told = run("show", tmp_path / "store")
    assert told.out.splitlines()[1].startswith(
        f"  error: brokenConfig: {tmp_path}/store/config/topics.json: expected JSON"
    )
    assert (told.code, run("topics", tmp_path / "store").code) == (3, 3)


def test_offsets_that_cannot_be_read_are_told(store: Path, tmp_path: Path) -> None:
    """Who lags is not "nobody", and a salvage says that groups lose their place."""
    shutil.copytree(store, tmp_path / "store")
    (tmp_path / "store" / "config").mkdir(exist_ok=True)
    (tmp_path / "store" / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@')
    for command in ("lag", "offsets", "groups"):
        told = run(command, tmp_path / "store")
        assert (told.code, "consumerOffset.json: expected JSON" in told.err) == (3, True)
    saved = run("salvage", tmp_path / "store", tmp_path / "saved")
    assert saved.code == 1
    assert "does not know where consumer groups were" in " ".join(saved.out.split())


# ---- bodies, and templates


@pytest.fixture(scope="module")
def bodies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bodies") / "store"
    builder = stores.StoreBuilder(root)
    for body in (b'{"a": [1, 2.5, null]}', b"\xff\x00", b"plain", b'{"a": 1, "a": 2}', b"1e400", b"[1.10]", b""):
        builder.append(topic="T", body=body, keys=f"k{len(body)}", properties={"p": "q"})
    builder.close()
    return root


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("json", [{"a": [1, 2.5, None]}, None, "plain", '{"a": 1, "a": 2}', "1e400", "[1.10]", ""]),
        ("text", ['{"a": [1, 2.5, null]}', "\\xff\x00", "plain", '{"a": 1, "a": 2}', "1e400", "[1.10]", ""]),
        ("hex", [b'{"a": [1, 2.5, null]}'.hex(), "ff00", b"plain".hex(), b'{"a": 1, "a": 2}'.hex(), b"1e400".hex(),
                 b"[1.10]".hex(), ""]),
        ("base64", ["eyJhIjogWzEsIDIuNSwgbnVsbF19", "/wA=", "cGxhaW4=", "eyJhIjogMSwgImEiOiAyfQ==", "MWU0MDA=",
                    "WzEuMTBd", ""]),
    ],
)  # fmt: skip
def test_forms_of_bodies(bodies: Path, form: str, expected: list[Any]) -> None:
    """Of JSON that Python would change the text stays."""
    lines = run("messages", bodies, "--columns", "body", "--body", form, "--format", "json").out.splitlines()
    assert [json.loads(line).get("body") for line in lines] == expected


def test_no_other_format_has_json_in_it(bodies: Path, tmp_path: Path) -> None:
    ran = run("messages", bodies, "--body", "json", "--format", "csv")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "rmqstore: --body json: only --format json has bodies that are JSON; use --body text\n"
    assert run("messages", bodies, "--body", "hex", "--output", tmp_path / "x.parquet").code == 0
    assert pq.read_table(tmp_path / "x.parquet")["body"][1].as_py() == "ff00"


def test_templates(bodies: Path, tmp_path: Path) -> None:
    text = r"%t/%p/%o %k(%K) %S\t%h %T%%\n%s\0"
    path = tmp_path / "rows"
    assert run("messages", bodies, "--template", text, "--output", path).code == 0
    rows = run("messages", bodies, "--columns", "topic,queueId,queueOffset,keys,storeTimestamp,bodyBase64", "--format",
               "json").out.splitlines()  # fmt: skip
    expected = b""
    for row in map(json.loads, rows):
        body, time = base64.b64decode(row["bodyBase64"]), datetime.fromisoformat(row["storeTimestamp"])
        expected += f"T/0/{row['queueOffset']} {row['keys']}({len(row['keys'])}) {len(body)}\t".encode()
        properties = path.read_bytes().split(b"\t")[1].split(b" ")[0]
        expected += properties.replace(b"k21", row["keys"].encode()) + b" %d%%\n%s\0" % (time.timestamp() * 1000, body)
    assert path.read_bytes() == expected
    assert b"p=q" in expected
    assert run("messages", bodies, "-n", "1", "--template", "%s").out == '{"a": [1, 2.5, null]}'
    assert run("tail", bodies, "-n", "1", "--template", r"%k\n").out == "k0\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--template", "%q"], "--template: '%q' means nothing; the fields are %t topic"),
        (["--template", "a%"], "--template: nothing follows the last '%'"),
        (["--template", r"\x"], "means nothing"),
        (["--template", "x", "--format", "json"], "--template: leave out --format, --columns and --body"),
        (["--template", "x", "--columns", "keys"], "--template: leave out --format, --columns and --body"),
    ],
)
def test_wrong_templates(bodies: Path, arguments: list[str], complaint: str) -> None:
    ran = run("messages", bodies, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert complaint in ran.err


def test_a_template_is_safe_at_a_terminal(store: Path) -> None:
    shown = at_terminal(80, "messages", store, "--key", "evil", "--template", r"%t %s\n").out
    assert "\x1b" not in shown
    assert "Evil" in shown


# ---- a directory of Parquet files


@pytest.mark.parametrize("parts", ["topic", "topic,hour", "day,queueId"])
def test_parts_have_all_rows(store: Path, tmp_path: Path, parts: str) -> None:
    """Each once, in the directory that it belongs to."""
    into = tmp_path / "lake"
    ran = run("messages", store, "--columns", "keys,topic,queueId", "--output", into, "--partition-by", parts)
    assert (ran.code, ran.out, ran.err) == (0, "", f"{into} has 302 rows\n")
    found = ds.dataset(into, format="parquet", partitioning="hive").to_table()
    told = run("messages", store, "--columns", "keys,topic,queueId,storeTimestamp", "--format", "json").out
    rows = [json.loads(line) for line in told.splitlines()]
    for row in rows:
        time = row["storeTimestamp"]
        row |= {"day": time[:10], "hour": time[:13]}
    names = ["keys", *parts.split(",")]

    def order(some: list[dict[str, Any]]) -> list[tuple[str, ...]]:
        return sorted(tuple(str(row[name]) for name in names) for row in some)

    assert order(found.to_pylist()) == order(rows)
    assert sorted(tmp_path.iterdir()) == [into]
    assert {path.suffix for path in into.rglob("*") if path.is_file()} == {".parquet"}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--partition-by", "topic"], "--partition-by: give --output DIRECTORY, and no --format but parquet"),
        (["--partition-by", "topic", "--output", "{new}", "--format", "csv"], "and no --format but parquet"),
        (["--partition-by", "topic,topic", "--output", "{new}"], "expected different columns"),
        (["--partition-by", "nope", "--output", "{new}"], "unknown column 'nope'"),
        (["--partition-by", "properties", "--output", "{new}"], "cannot be in the name of a directory"),
        (["--partition-by", "topic", "--output", "{old}"], "something is there already"),
        (["--partition-by", "topic", "--output", "{store}/lake"], "is a store, or in one"),
    ],
)
def test_no_half_directory(store: Path, tmp_path: Path, arguments: list[str], complaint: str) -> None:
    (tmp_path / "old").mkdir()
    names = {"new": tmp_path / "new", "old": tmp_path / "old", "store": store}
    ran = run("messages", store, *(each.format(**names) for each in arguments))
    assert (ran.code, ran.out) == (2, "")
    assert complaint in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_damage_leaves_no_directory(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store, tmp_path / "store")
    segment = min((tmp_path / "store" / "commitlog").iterdir())
    data = bytearray(segment.read_bytes())
    data[3000:3100] = bytes(100)
    segment.write_bytes(data)
    ran = run("messages", tmp_path / "store", "--output", tmp_path / "lake", "--partition-by", "topic")
    assert ran.code == 1
    assert "cannot be read" in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_show_says_which_messages_are_lost_with_a_segment(tmp_path: Path) -> None:
    builder = stores.StoreBuilder(tmp_path, segment_size=4096)
    for _ in range(120):
        builder.append(topic="T", queue_id=3)
    builder.close()
    builder.segment(4096).unlink()
    lost = [message.queue_offset for message in builder.messages if message.position // 4096 == 1]
    told = run("show", tmp_path).out
    where = "error: lostMessages: topic T, queueId 3: expected a message for each queueOffset"
    assert f"{where}, found none from {lost[0]} to {lost[-1]}\n" in told
