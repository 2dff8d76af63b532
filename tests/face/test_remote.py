"""A store in a bucket is asked for with few requests, each for a range of the object that was planned with; what goes
wrong there passes or is told in one line, and no secret is shown. That its rows are right, test_backends.py holds."""

from __future__ import annotations

import logging
import os
import pickle
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from oracle import golden
from oracle.stores import StoreBuilder
from support import alone, reading
from support.command import run
from support.following import assert_followed
from support.patience import HANG
from support.s3_server import ACCESS_KEY, SECRET_KEY, Fault, Server

import rmqstore_spark
from rmqstore_spark import NotAStoreError, OptionError, RmqStoreError, StorageError, Store
from rmqstore_spark.query.option_texts import StorageOptions
from rmqstore_spark.query.options import parse_options
from rmqstore_spark.query.stream_options import parse_stream_options
from rmqstore_spark.read.plan.planner import plan
from rmqstore_spark.read.plan.stores import files_of
from rmqstore_spark.store.io.remote import objects, tries
from rmqstore_spark.store.io.remote.files import RemoteFiles
from rmqstore_spark.store.io.storage import STORAGE_OPTIONS
from rmqstore_spark.tables import registry
from rmqstore_spark.tables.registry import TABLES, TableTask, plan_table, read_part

ROOT = Path(__file__).resolve().parents[2]
URI = "s3://stores/broker"
VERSION = golden.VERSIONS[-1]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A golden store in a bucket, as s3://stores/broker. Nothing of the environment counts."""
    for name in os.environ:
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(tries, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(tries, "_LONGEST_PAUSE", 0.05)
    golden.unpack(VERSION, tmp_path / "stores" / "broker")
    with Server(tmp_path / "stores") as running:
        yield running


def opened(server: Server, uri: str = URI, **options: Any) -> Store:
    return Store(uri, **server.options, **options)  # type: ignore[arg-type]


def as_local(table: pa.Table, server: Server) -> list[dict[str, Any]]:
    """Rows with the paths that they have on the server's disk."""
    rows: list[dict[str, Any]] = table.to_pylist()
    return [
        {
            name: value.replace("s3://stores", str(server.root)) if isinstance(value, str) else value
            for name, value in row.items()
        }
        for row in rows
    ]


# ---- the same as on a disk


def test_glance_and_command(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"Store('{URI}')" in repr(opened(server))
    for name, value in server.options.items():
        monkeypatch.setenv(name.upper(), value)
    shown = run("show", URI)
    assert (shown.code, URI in shown.out) == (0, True)
    for scheme in ("s3a", "s3n"):
        uri = URI.replace("s3", scheme)
        assert Store(f"{uri}//").table("segments")["file"][0].as_py().startswith(f"{uri}/commitlog/")


def test_globs_and_several(server: Server) -> None:
    other = golden.unpack(next(each for each in golden.VERSIONS if each != VERSION), server.root / "broker-b")
    rows = opened(server).messages(columns=["msgId"]).read_all().num_rows + Store(other).messages().read_all().num_rows
    for paths in ("s3://stores/broker*", ["s3://stores/broker", "s3://stores/broker-b/"]):
        found = Store(paths, **server.options).messages(columns=["msgId", "store"]).read_all()  # type: ignore[arg-type]
        assert found.num_rows == rows
        assert set(found["store"].to_pylist()) == {"s3://stores/broker", "s3://stores/broker-b"}
    with pytest.raises(OptionError, match="local and of remote stores are given together"):
        Store([URI, str(server.root / "broker")])


# ---- what is asked for


def test_every_range_is_pinned_and_a_list_has_sizes(server: Server) -> None:
    opened(server).messages().read_all()
    assert {method for method, _, _ in server.asked} == {"GET"}  # no size is asked for one by one
    lists = [path for _, path, _ in server.asked if "list-type=2" in path]
    assert len(lists) == 2  # when it is opened, and when it is read
    assert all(asked is not None for _, path, asked in server.asked if "list-type=2" not in path)


def test_a_long_list_comes_in_pages(server: Server) -> None:
    whole = as_local(opened(server).table("queues"), server)
    server.page = 3
    assert as_local(opened(server).table("queues"), server) == whole
    assert any("continuation-token" in path for _, path, _ in server.asked)


# ---- what goes wrong there


FAULTS: dict[str, Callable[[], Fault]] = {
    "error 500": lambda: Fault("status", 500),
    "slow down": lambda: Fault("status", 503),
    "too many": lambda: Fault("status", 429),
    "reset": lambda: Fault("reset"),
    "short": lambda: Fault("short"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_passes(server: Server, name: str) -> None:
    """Each request fails twice before it is answered."""
    expected = opened(server).messages().read_all()
    asked_for: dict[tuple[str, str | None], int] = {}

    def fail(number: int, key: str) -> None:
        _, path, asked = server.asked[number]
        asked_for[path, asked] = asked_for.get((path, asked), 0) + 1
        if asked_for[path, asked] <= 2 and not (name == "short" and asked is None):
            raise FAULTS[name]()

    server.fault = fail
    assert opened(server).messages().read_all() == expected
    assert max(asked_for.values()) >= 3


@pytest.mark.parametrize("name", FAULTS)
def test_what_does_not_pass(server: Server, name: str) -> None:
    """An error, and in time; never fewer rows."""
    store = opened(server)

    def fail(number: int, key: str) -> None:
        if "/commitlog/" in key:
            raise FAULTS[name]()

    server.fault = fail
    begun = time.monotonic()
    with pytest.raises(StorageError) as error:
        store.messages().read_all()
    text = str(error.value)
    assert f"{URI}/commitlog/" in text
    assert "tried 4 times" in text
    assert "\n" not in text
    assert time.monotonic() - begun < 90  # it could go on for minutes


@pytest.mark.parametrize("status", [404, 412, 416])
def test_what_no_server_answers(server: Server, status: int) -> None:
    """Whatever is asked, also where nothing was said of which object it has to be."""
    for first in range(6):
        store = opened(server)
        begun = len(server.asked)

        def fail(number: int, key: str, least: int = begun + first) -> None:
            if number >= least:
                raise Fault("status", status)

        server.fault = fail
        with pytest.raises(RmqStoreError) as error:
            store.messages().read_all()
        assert "s3://stores" in str(error.value)
        server.fault = lambda number, key: None


@pytest.mark.parametrize("part", ["consumequeue", "index", "config"])
def test_what_is_only_a_help_is_not_lost_silently(server: Server, part: str) -> None:
    """A queue that storage does not give is no empty queue."""
    table = {"consumequeue": "queues", "index": "index", "config": "topics"}[part]
    store = opened(server)

    def fail(number: int, key: str) -> None:
        if f"/{part}/" in key:
            raise Fault("status", 503)

    server.fault = fail
    with pytest.raises(StorageError):
        store.table(table)


def test_a_body_that_stalls(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_STALL_TIMEOUT", "200ms")
    expected = opened(server, timeout="5s").messages().read_all()
    stalled: set[str | None] = set()

    def fail(number: int, key: str) -> None:
        asked = server.asked[number][2]
        if key and asked not in stalled:
            stalled.add(asked)
            raise Fault("stall", 5)

    server.fault = fail
    begun = time.monotonic()
    assert opened(server, timeout="5s").messages().read_all() == expected
    assert stalled
    assert time.monotonic() - begun < 60


def plan_and_read(server: Server, between: Callable[[Path], object]) -> None:
    """Something happens to the log between planning and reading."""
    options = reading.parse_options({"path": URI, **server.options})
    planned = reading.plan(options, files_of(options))
    segment = sorted((server.root / "broker" / "commitlog").iterdir())[0]
    between(segment)
    for task in pickle.loads(pickle.dumps(planned.tasks)):
        settings = reading.ReadSettings.of(options, reading.arrow_schema(["msgId"]))
        list(reading.read_task(task, settings))


def test_replaced_or_deleted_since_it_was_planned(server: Server) -> None:
    plan_and_read(server, lambda path: None)
    with pytest.raises(StorageError, match="was replaced since the read was planned; load the store again"):
        plan_and_read(server, lambda path: path.write_bytes(path.read_bytes()))
    with pytest.raises(StorageError, match="is gone since the read was planned; load the store again"):
        plan_and_read(server, lambda path: path.unlink())


@pytest.mark.slow
@pytest.mark.long
def test_tables_replaced_since_they_were_planned(server: Server) -> None:
    """Each task lists the store anew, so that only what the plan saw of it tells that it is another one."""
    sent = {name: pickle.dumps(table_tasks(server, name)) for name in TABLES}

    def requests(name: str) -> int:
        before = len(server.asked)
        rows = rows_of_tasks(server, name, sent[name])
        assert rows or name not in ("queues", "consumequeue")
        return len(server.asked) - before

    def costs_more(name: str, most: int) -> bool:
        with mock.patch.object(registry, "hold"):
            without = requests(name)
        return requests(name) > without + most

    for name, tasks in sent.items():
        # To see that it is the same store takes no request, and where a plan has looked at queues or index files, one
        # for each of these. On a busy machine a request is sent again now and then.
        most = sum(len(task.seen) for task in pickle.loads(tasks)) if name in ("consumequeue", "index", "check") else 0
        assert not all(costs_more(name, most) for _ in range(5)), name
    shutil.rmtree(server.root / "broker")
    golden.unpack(next(each for each in golden.VERSIONS if each != VERSION), server.root / "broker")
    for name, tasks in sent.items():
        with pytest.raises(StorageError, match="since the read was planned; load the store again"):
            rows_of_tasks(server, name, tasks)


def test_tables_of_a_copy_that_goes_on(server: Server) -> None:
    """The last segment is copied anew while its broker writes: that is the same store."""
    (root := server.root / "live").mkdir()
    store = StoreBuilder(root)
    for _ in range(30):
        store.append(body=b"x" * 300)
    store.close()
    sent = pickle.dumps(table_tasks(server, "consumequeue", "s3://stores/live"))
    for _ in range(3):
        store.append(body=b"x" * 300)
    store.close()
    assert rows_of_tasks(server, "consumequeue", sent, "s3://stores/live") == 33


def table_tasks(server: Server, name: str, uri: str = URI) -> list[TableTask]:
    return plan_table(registry.table(name), parse_options({"path": uri, "table": name, **server.options}))


def rows_of_tasks(server: Server, name: str, sent: bytes, uri: str = URI) -> int:
    table = registry.table(name)
    options = parse_options({"path": uri, "table": name, **server.options})
    tasks = pickle.loads(sent)
    return sum(b.num_rows for task in tasks for b in read_part(table, task, options, table.schema))


@pytest.mark.parametrize("columns", [["topic", "queueOffset"], ["keys"]])
def test_trusted_queues_replaced_since_the_plan(server: Server, columns: list[str]) -> None:
    """They are believed, so nothing of the log need be read."""
    counts = Store(server.root / "broker").topics()
    topic = max(zip(counts["messages"].to_pylist(), counts["topic"].to_pylist(), strict=True))[1]
    options = parse_options({"path": URI, "trust": "queues", "subscribe": topic, **server.options})
    files = RemoteFiles(replace(reading.FREE, concurrency=4), storage=options.storage)
    sent = pickle.dumps(plan(options, files, columns).tasks)
    kinds = {type(piece).__name__ for task in pickle.loads(sent) for piece in task.ranges}
    assert kinds == {"Covered" if "topic" in columns else "Queued"}

    def read() -> int:
        return sum(len(reading.read_one(task, options, columns)) for task in pickle.loads(sent))

    assert read() > 0
    for path in (server.root / "broker" / "consumequeue" / topic).glob("*/*"):
        path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(StorageError, match="since the read was planned; load the store again"):
        read()


def test_a_stale_list(server: Server) -> None:
    """A list may be older than what there is. Then it is an error, or the store as it was; never a mixture."""
    expected = opened(server).messages().read_all()
    first, second = sorted((server.root / "broker" / "commitlog").iterdir())
    content = second.read_bytes()
    second.unlink()
    server.stop_listing()
    rows = opened(server).messages().read_all()
    assert 0 < rows.num_rows < expected.num_rows
    second.write_bytes(content)  # comes, and is not listed yet
    assert opened(server).messages().read_all() == rows
    with first.open("ab") as out:
        out.write(b"x")
    with pytest.raises(StorageError, match="was replaced since the read was planned; load the store again"):
        opened(server).messages().read_all()
    first.unlink()
    with pytest.raises(StorageError, match="is gone since the read was planned; load the store again"):
        opened(server).messages().read_all()


def test_who_may_not(server: Server) -> None:
    with pytest.raises(StorageError, match=r"access denied \(AccessDenied\); give credentials"):
        Store(URI, **{**server.options, "aws_access_key_id": "ANOTHER"})  # type: ignore[arg-type]
    server.fault = lambda number, key: expired()
    with pytest.raises(StorageError, match=r"the credentials have expired \(ExpiredToken\); give new ones"):
        opened(server)


def test_nobody_says_who_asks() -> None:
    """Then a client asks the machine's own identity, which has an address at every cloud. Here nothing has."""
    code = (
        "import rmqstore_spark; from rmqstore_spark.store.io.remote import tries; tries._FIRST_PAUSE = 0.01\n"
        "for uri in ('s3://bucket/x', 'gs://bucket/x', 'abfss://container@account.dfs.core.windows.net/x'):\n"
        "    try: rmqstore_spark.Store(uri)\n"
        "    except rmqstore_spark.StorageError as why: print(why, flush=True)\n"
    )
    lines = alone.run("-c", code, seconds=HANG).splitlines(keepends=True)
    assert len(lines) == 3
    for line in lines:
        assert re.fullmatch(
            r"(s3|gs|abfss)://[^ ]+/x: no credentials are given, and the machine has no identity of its own "
            r"\([0-9a-z.]+ does not answer, tried 4 times in [0-9]+ s\); give credentials as options or in the "
            r"environment\n",
            line,
        )


def test_a_process_ends_after_its_lists(server: Server) -> None:
    """A thread of obstore's that tells Python of a list, and is slow, would be ended in the midst of Rust's code."""
    code = (
        "import asyncio, sys, threading, time; import rmqstore_spark\n"
        "def slow(self, *, real=asyncio.SelectorEventLoop._write_to_self):\n"
        "    real(self)\n"
        "    time.sleep(0 if threading.current_thread() is threading.main_thread() else 0.5)\n"
        "asyncio.SelectorEventLoop._write_to_self = slow\n"
        "options = dict(text.split('=', 1) for text in sys.argv[2:])\n"
        "print(rmqstore_spark.Store(sys.argv[1], **options).table('segments').num_rows)"
    )
    options = [f"{name}={value}" for name, value in server.options.items()]
    done = subprocess.run([sys.executable, "-c", code, URI, *options], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def expired() -> None:
    raise Fault("status", 400)


def test_what_is_no_store(server: Server) -> None:
    for name, text in {"nothing": "no such directory", "broker/commitlog": "a directory inside a store"}.items():
        with pytest.raises(NotAStoreError, match=text):
            opened(server, f"s3://stores/{name}")
    with pytest.raises(StorageError, match="no such bucket"):
        opened(server, "s3://elsewhere/broker")
    with pytest.raises(NotAStoreError, match="nothing matches"):
        opened(server, "s3://stores/*none")
    for name in ("copy.tar.gz", "copy.zst"):
        (server.root / name).write_bytes(b"packed")
        with pytest.raises(NotAStoreError, match=f"{name}: this is an archive: unpack it"):
            opened(server, f"s3://stores/{name}")
        with pytest.raises(NotAStoreError, match=f"{name}: this is an archive: unpack it"):
            Store(server.root / name)


def test_nothing_is_written_there(server: Server) -> None:
    with pytest.raises(OptionError, match="s3://stores/broker: a store there can only be read"):
        rmqstore_spark.rebuild(URI)
    with pytest.raises(OptionError, match="s3://stores/broker: a store there can only be read"):
        opened(server).rebuild()


def test_followed(server: Server) -> None:
    """Objects that are replaced by longer ones, and others that come."""
    store = StoreBuilder(server.root / "live", segment_size=4096)
    options = parse_stream_options({"path": "s3://stores/live", "startingOffsets": "earliest", **server.options})
    assert_followed(options, store, (20, 1, 0, 30, 2))


def test_without_the_extra() -> None:
    """In a Python that has no obstore, one line says what to install."""
    code = (
        "import sys; sys.modules['obstore'] = None\n"
        "import rmqstore_spark\n"
        "try: rmqstore_spark.Store('s3://bucket/store')\n"
        "except rmqstore_spark.OptionError as why: print(why)"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    expected = "s3://bucket: reading it needs obstore, which is not installed: pip install obstore\n"
    assert ran.stdout == expected


# ---- options and secrets


def test_options_by_their_other_names(server: Server) -> None:
    given = {
        "s3.endpoint": server.options["aws_endpoint_url"],
        "S3.Access-Key-Id": ACCESS_KEY,
        "secret.s3.secret-access-key": SECRET_KEY,
        "AWS_Region": "us-east-1",
    }
    assert Store(URI, **given).topics().num_rows  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"unknown option 's3\.acces-key-id'\. Did you mean 's3\.access-key-id'\?"):
        Store(URI, **{"s3.acces-key-id": "MARKER"})  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="'aws_access_key_id' is given twice"):
        Store(URI, **given, aws_access_key_id="MARKER")  # type: ignore[arg-type]


def test_secrets_are_shown_nowhere(
    server: Server, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    seen: list[object] = []
    store = opened(server)
    seen += [repr(store), store._repr_html_(), store.messages().read_all()]
    store.explain()
    options = reading.parse_options({"path": URI, **server.options})
    planned = reading.plan(options, files_of(options))
    seen += [repr(options), repr(planned), pickle.dumps(planned.tasks)]

    def errors() -> Iterator[RmqStoreError]:
        wrong: list[dict[str, str]] = [
            {"aws_endpoint_url": "http://127.0.0.1:1"},
            {"aws_endpoint_url": SECRET_KEY},
            {"allow_http": SECRET_KEY},
            {"aws_skip_signature": SECRET_KEY},
            {"timeout": SECRET_KEY},
            {"aws_access_key_id": SECRET_KEY},
            {"aws_secret_access_keys": SECRET_KEY},
        ]
        for each in wrong:
            with pytest.raises(RmqStoreError) as error:
                Store(URI, **{**server.options, **each})  # type: ignore[arg-type]
            yield error.value

    seen += [str(error) for error in errors()]
    out = capsys.readouterr()
    seen += [out.out, out.err, caplog.text]
    for each in seen:
        text = each if isinstance(each, bytes) else str(each).encode()
        assert SECRET_KEY.encode() not in text, each
        assert ACCESS_KEY.encode() not in text, each


def test_typed_options_are_those_that_there_are() -> None:
    assert set(StorageOptions.__annotations__) == set(STORAGE_OPTIONS)
    names = [name for option in STORAGE_OPTIONS.values() for name in (option.name, *option.aliases)]
    assert len(set(names)) == len(names)


def test_copies(server: Server, tmp_path: Path) -> None:
    """From a backup in a bucket to a store that a broker starts on; the same as from a disk."""
    for made in (opened(server).copy(tmp_path / "there"), Store(server.root / "broker").copy(tmp_path / "here")):
        assert made.messages > 100
        assert made.lost.num_rows == 0
    there, here = (Store(tmp_path / name).messages().read_all() for name in ("there", "here"))
    assert there == here
    assert opened(server).salvage(tmp_path / "salvaged").messages == here.num_rows
