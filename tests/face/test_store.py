"""Store: without Spark and Java, quick to start, read by others, and no thread left behind."""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from oracle import stores
from support import reading
from support.command import run
from support.patience import HANG

import rmqstore_spark
from rmqstore_spark import NotAStoreError, OptionError, Store
from rmqstore_spark.columns import DEFAULT_COLUMNS
from rmqstore_spark.jobs import pending
from rmqstore_spark.jobs.summary import MOST_TOPICS

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "sample_store"


def in_fresh_process(code: str) -> str:
    """In which pyspark cannot be imported."""
    code = f"import sys\nsys.modules['pyspark'] = None\n{code}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "rmqstore-decode"]


@pytest.fixture(scope="module")
def long_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of several tasks."""
    root = tmp_path_factory.mktemp("long") / "store"
    builder = stores.StoreBuilder(root, 4 << 20)
    for number in range(400):
        builder.append("T", b"x" * 100_000, keys=f"k{number}")
    builder.close()
    return root


# ---- what it needs


def test_without_spark_and_java() -> None:
    code = "from rmqstore_spark import Store\ns = Store('sample_store')\nprint(s.topics().num_rows, len(s.get(ID)))"
    store = Store(SAMPLE)
    some_id = store.messages("msgId").read_all()["msgId"][0].as_py()
    expected = [str(store.topics().num_rows), str(store.get(some_id).num_rows)]
    assert in_fresh_process(code.replace("ID", repr(some_id))).split() == expected


@pytest.mark.slow
@pytest.mark.long
def test_topics_of_a_fresh_process_are_there_soon() -> None:
    """Counted in the processor's time, and by what it takes to have Arrow: machines differ, and tests share one."""
    count = "import time\nprint(time.process_time())"
    code = f"from rmqstore_spark import Store\nStore('sample_store').topics()\n{count}"
    took = [(float(in_fresh_process(code)), float(in_fresh_process(f"import pyarrow\n{count}"))) for _ in range(5)]
    ours, arrow = map(min, zip(*took, strict=True))
    assert ours < 5 * arrow
    spared = "{'pandas', 'asyncio'} & sys.modules.keys()"  # large, and not needed for a local store
    code = f"from rmqstore_spark import Store\nStore('sample_store').topics()\nprint({spared})"
    assert in_fresh_process(code).strip() == "set()"


def test_no_store(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError, match="not a RocketMQ store"):
        Store(tmp_path)
    with pytest.raises(AttributeError, match="has no attribute 'Shop'"):
        _ = rmqstore_spark.Shop
    assert "Store" in dir(rmqstore_spark)


# ---- messages


def test_messages_are_those_of_the_plain_reader(long_store: Path) -> None:
    for root in (SAMPLE, long_store):
        found = Store(root).messages().read_all()
        assert found.schema.names == DEFAULT_COLUMNS
        offsets = found["commitLogOffset"].to_pylist()
        assert offsets == [row["commitLogOffset"] for row in reading.read(root)] == sorted(offsets)
        assert found["body"].to_pylist() == [row["body"] for row in reading.read(root)]


def test_options_in_pythons_words(long_store: Path) -> None:
    store = Store(SAMPLE, dropCache=True, mode="PERMISSIVE")
    start = datetime(2026, 11, 21, 0, 45, 58, tzinfo=UTC)
    rows = store.messages(
        ["topic", "queueId", "storeTimestamp"], subscribe=["Plain", "Ordered"], startingTimestamp=start
    )
    found = rows.read_all().to_pylist()
    assert {row["topic"] for row in found} == {"Ordered"}
    assert all(row["storeTimestamp"] >= start for row in found)
    assert store.messages("queueId", assign={"Plain": {1, 3}}).read_all().num_rows == 30
    assert store.messages(startingOffsets={"Plain": {0: 10}}, assign={"Plain": [0]}).read_all().num_rows == 5
    assert store.queues(subscribe=["Plain"]).num_rows == 4
    assert store.table("messages", tags=["ZLIB", "LZ4"]).num_rows > 0
    with pytest.raises(OptionError, match=r"unknown option 'subscribes'\. Did you mean 'subscribe'"):
        store.messages(subscribes="Plain")  # type: ignore[call-arg]
    with pytest.raises(OptionError, match="option 'tags' does not go with table 'topics'"):
        store.topics(tags="x")


def test_get_and_explain(capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(SAMPLE)
    row = reading.read(SAMPLE)[100]
    for name in ("msgId", "offsetMsgId"):
        assert row["body"] in store.get(row[name])["body"].to_pylist()
    assert store.get("nothing").num_rows == 0
    store.explain(key="ZLIB-4096")
    told = capsys.readouterr().out
    assert "access: " in told
    rmqstore_spark.explain(str(SAMPLE), key="ZLIB-4096", columns=",".join(DEFAULT_COLUMNS))
    assert capsys.readouterr().out == told


def test_rebuild(tmp_path: Path) -> None:
    builder = stores.StoreBuilder(tmp_path)
    for _ in range(5):
        builder.append("T")
    builder.close()
    builder.drop_queues()
    assert Store(tmp_path).rebuild() == 5
    assert Store(tmp_path).queues()["maxOffset"].to_pylist() == [5]


# ---- others read it


def test_duckdb_reads_messages() -> None:
    duckdb = pytest.importorskip("duckdb")
    messages = duckdb.from_arrow(Store(SAMPLE).messages(["topic", "body"]))
    counts = dict(messages.aggregate("topic, count(*)", "topic").fetchall())
    del messages
    assert counts["Plain"] == 60
    assert sum(counts.values()) == len(reading.read(SAMPLE))
    gc.collect()
    assert threads() == []


def test_polars_reads_messages() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.from_arrow(Store(SAMPLE).messages(["topic", "queueId", "storeTimestamp"]))
    assert frame.filter(frame["topic"] == "Plain").height == 60


def test_pandas_reads_messages() -> None:
    frame = Store(SAMPLE).messages(["topic", "queueId", "storeTimestamp"]).read_pandas()
    assert frame.groupby("topic").size()["Plain"] == 60


# ---- threads


def test_threads_end(long_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqstore_spark.cores.cores", lambda: 3)
    monkeypatch.setattr("rmqstore_spark.read.run.parallel.cores", lambda: 3)
    store = Store(long_store)
    reader = store.messages()
    reader.read_next_batch()
    reader.close()
    del reader
    gc.collect()
    assert threads() == []
    # Damage in the last task is an error after all rows before it.
    damaged = shutil.copytree(long_store, tmp_path / "damaged")
    path = max((damaged / "commitlog").iterdir(), key=lambda file: file.name)
    data = bytearray(path.read_bytes())
    data[150] ^= 1  # in the first body
    path.write_bytes(data)
    found: list[pa.RecordBatch] = []
    with pytest.raises(rmqstore_spark.DamagedStoreError, match="bodyCRC"):
        found.extend(Store(damaged).messages())
    gc.collect()
    assert 0 < sum(batch.num_rows for batch in found) < 400
    assert threads() == []


def test_interrupt(long_store: Path) -> None:
    code = (
        "import threading\nfrom rmqstore_spark import Store, cores\nfrom rmqstore_spark.read.run import parallel\n"
        "parallel.cores = cores.cores = lambda: 2\n"
        f"reader = Store({str(long_store)!r}, maxTaskBytesPerSecond=1_000_000).messages()\n"
        "print('reading', flush=True)\n"
        "try:\n    reader.read_all()\nexcept KeyboardInterrupt:\n    del reader\n"
        "    print([t.name for t in threading.enumerate()], flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    assert process.stdout.readline() == "reading\n"
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGINT)
    told, _ = process.communicate(timeout=HANG)
    assert told.strip() == "['MainThread']"
    assert process.returncode == 0


def test_memory_is_bounded(long_store: Path) -> None:
    """Also where nobody is as quick as the threads."""
    code = (
        "import time\nfrom rmqstore_spark import Store, cores\nfrom rmqstore_spark.read.run import parallel\n"
        "parallel.cores = cores.cores = lambda: 4\n"
        f"for batch in Store({str(long_store)!r}).messages():\n    time.sleep(0.002)\n"
        "print(open('/proc/self/status').read())"
    )
    (most,) = re.findall(r"VmHWM:\s+(\d+) kB", in_fresh_process(code))
    assert int(most) < 300 * 1024


# ---- at a glance


def test_glance() -> None:
    text = repr(Store(SAMPLE))
    for shown in ("2 commitlog files, 2.1 MiB of log, 2026-11-21 00:45:55", "32 topics, 12 consumer groups"):
        assert shown in text
    assert "Plain                     60 messages, last 2026-11-21 00:45:57" in text


def test_a_page_has_what_show_tells() -> None:
    page, screen = Store(SAMPLE)._repr_html_(), [line.strip() for line in run("show", SAMPLE).out.splitlines()]
    head, *lines = re.findall(r"<b>(?:.*?)</b>|<div>([^<]+)</div>", page)
    assert head == ""
    assert lines[:4] == screen[1:5]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", page)]
    topics = {row[0]: row[1:5] for row in rows if len(row) == 7}
    groups = {row[0]: row[1:] for row in rows if len(row) == 4}
    assert topics["Plain"] == ["user", "4", "60", "28.2 KiB"]
    assert groups["partial-group"] == ["30", "0.2 s", "Plain"]
    plain = next(line.split() for line in screen if line.startswith("Plain "))
    assert plain[:5] == ["Plain", "4", "60", "28.2", "KiB"]


def test_what_is_pending(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store = Store(SAMPLE)
    wanted = {
        "delayed": store.delayed()["state"].to_pylist().count("pending"),
        "transactions": store.transactions()["state"].to_pylist().count("open"),
        "inflight": store.inflight().num_rows,
    }
    assert json.loads(run("show", SAMPLE, "--format", "json").out)["pending"] == wanted
    line = "pending: {delayed} delayed messages, {transactions} open transactions, {inflight} popped messages"
    assert f"<div>{line.format(**wanted)}</div>" in store._repr_html_()
    # A large log is not looked at for it, nor one of many small segments.
    line = "<div>pending: not counted: rmqstore delayed, rmqstore transactions, rmqstore inflight</div>"
    for bound, least in (("_MOST_LOG", 2**20), ("_MOST_SEGMENTS", 1)):
        monkeypatch.setattr(pending, bound, least)
        assert line in store._repr_html_()
        monkeypatch.undo()
    # What a table lacks something for is not counted; it is no damage of the log.
    shutil.copytree(SAMPLE, tmp_path / "broken")
    for name in ("delayOffset.json", "delayOffset.json.bak"):
        (tmp_path / "broken" / "config" / name).write_text("{")
    told = json.loads(run("show", tmp_path / "broken", "--format", "json").out)
    assert told["pending"] == {**wanted, "delayed": None}
    assert told["damage"] == []
    builder = stores.StoreBuilder(tmp_path)
    builder.append("Plain")
    builder.close()
    assert "pending" not in Store(tmp_path)._repr_html_()


@pytest.mark.parametrize("topics", [MOST_TOPICS, MOST_TOPICS + 1])
def test_glance_is_bounded(tmp_path: Path, topics: int) -> None:
    """Of many topics only the number is told; `rmqstore show` tells the largest ones in any case."""
    builder = stores.StoreBuilder(tmp_path)
    for number in range(topics):
        builder.append(f"T{number}")
    builder.close()
    head, facts, counts, *rest = repr(Store(tmp_path)).splitlines()
    assert head == f"Store('{tmp_path}')"
    assert re.fullmatch(r"  \d+ commitlog files, [0-9.]+ KiB of log, (.*) to (.*) UTC", facts)
    assert counts.startswith(f"  {topics} topics, ")
    assert len(rest) == (11 if topics == MOST_TOPICS else 0)
    assert rest[-1:] == ([f"  and {topics - 10} more topics with messages"] if rest else [])
    assert ("<table>" in Store(tmp_path)._repr_html_()) == bool(rest)
    assert f"{topics} messages in {topics} queues of {topics} topics" in run("show", tmp_path).out


def test_glance_and_show_tell_the_same() -> None:
    facts, span = (line.strip() for line in run("show", SAMPLE).out.splitlines()[1:3])
    size, first, last = re.search(r"files, (.*) of log, (.*) to (.*) UTC", repr(Store(SAMPLE))).groups()  # type: ignore[union-attr]
    assert facts.startswith(f"{size} of log in 2 segments")
    assert span.startswith(f"stored {first} to {last.partition(' ')[2]} UTC: ")
    assert first[:10] == last[:10]


def test_glance_at_hostile_names_and_damage(tmp_path: Path) -> None:
    builder = stores.StoreBuilder(tmp_path / "<b>\x1b[31m")
    builder.append("<script>")
    builder.close()
    store = Store(builder.root)
    assert "<script>" not in store._repr_html_()
    assert "\x1b" not in repr(store) + store._repr_html_()
    builder.segment(0).rename(builder.segment(0).with_name(f"{100:020d}"))
    (builder.root / "commitlog" / f"{50:020d}").write_bytes(bytes(8192))
    assert "these files are not of one commitlog" in repr(store)


def test_positions_belong_to_one_store(tmp_path: Path) -> None:
    for name in ("a", "b"):
        builder = stores.StoreBuilder(tmp_path / name)
        builder.append("T", body=name.encode())
        builder.close()
    store = Store([tmp_path / "a", tmp_path / "b"])
    assert store.topics(columns="store").num_rows == 2
    with pytest.raises(OptionError, match="offsets_at is for one store, but the path gives 2"):
        store.offsets_at(0)
    with pytest.raises(OptionError, match="time: expected milliseconds of the epoch, or ISO-8601"):
        Store(tmp_path / "a").offsets_at("one day")
    assert json.loads(Store(tmp_path / "a").offsets_at(0)) == {"T": {"0": 0}}
    assert isinstance(store.messages(), pa.RecordBatchReader)
