"""Each path is found to be the store that it is, or refused by name; options and columns are understood, or refused
likewise."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import pwd
import random
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from oracle import reference, stores
from support import reading
from support.reading import read

import rmqstore_spark
from rmqstore_spark.columns import COLUMNS
from rmqstore_spark.errors import NotAStoreError, OptionError, RmqStoreError
from rmqstore_spark.query.options import OPTIONS, parse_options, parse_write_options
from rmqstore_spark.spark.writer import RmqStoreWriter
from rmqstore_spark.store.io.files import Files


def _store(root: Path, count: int = 20) -> list[dict[str, Any]]:
    store = stores.StoreBuilder(root)
    for i in range(count):
        store.append(topic=f"T{i % 2}", body=b"body %d of %s" % (i, root.name.encode()))
    store.close()
    return reference.read_store(root)


def _refusal(path: str | Path, kind: type[RmqStoreError] = NotAStoreError, **options: Any) -> str:
    with pytest.raises(kind) as error:
        read(path, **options)
    assert type(error.value) is kind
    assert "\n" not in str(error.value)
    return str(error.value)


# ---- paths


def test_path_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "none"
    assert _refusal(path) == f"{path}: no such directory; give the broker's store directory"


def test_path_is_a_file(tmp_path: Path) -> None:
    _store(tmp_path)
    for path in (tmp_path / "checkpoint", tmp_path / "commitlog" / ("0" * 20)):
        assert _refusal(path).startswith(f"{path}: this is a file; give the broker's store directory")
    shutil.rmtree(tmp_path / "commitlog")
    (tmp_path / "commitlog").write_bytes(b"")
    assert _refusal(tmp_path).startswith(f"{tmp_path}/commitlog: this is a file")


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ([], "found nothing;"),
        (["b", "a"], "found a, b;"),
        ([f"f{i}" for i in range(9)], "found f0, f1, f2, f3, f4, ...;"),
    ],
)
def test_not_a_store(tmp_path: Path, names: list[str], found: str) -> None:
    for name in names:
        (tmp_path / name).touch()
    text = _refusal(tmp_path)
    assert text.startswith(f"{tmp_path}: not a RocketMQ store: expected a directory commitlog/ in it, {found}")
    assert text.endswith("give the directory that the broker's storePathRootDir names")


def test_a_store_one_directory_below(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    assert _refusal(tmp_path).endswith(f"found logs, store; did you mean {tmp_path / 'store'}?")


@pytest.mark.parametrize("inside", ["commitlog", "consumequeue/T0/0"])
def test_a_directory_inside_a_store(tmp_path: Path, inside: str) -> None:
    _store(tmp_path)
    text = _refusal(tmp_path / inside)
    assert text.startswith(f"{tmp_path / inside}: this looks like a directory inside a store; give the store directory")
    assert "storePathCommitLog" in text


@pytest.mark.parametrize("inside", ["consumequeue", "consumequeue/T0", "config"])
def test_another_directory_inside_a_store(tmp_path: Path, inside: str) -> None:
    _store(tmp_path)
    assert "not a RocketMQ store" in _refusal(tmp_path / inside)


def test_uris(tmp_path: Path) -> None:
    root = tmp_path / "a store%20 #1"
    rows = _store(root)
    assert read(root) == rows
    quoted = str(root).replace("%", "%25").replace(" ", "%20").replace("#", "%23")
    for uri in (f"file://{quoted}", f"file://localhost{quoted}", f"file:{quoted}", f"file://{quoted}/"):
        assert read(uri) == rows, uri
    for uri in ("webhdfs://host/store", "viewfs://host/store", "dbfs:/store", "https://host/store"):
        scheme = uri.partition(":")[0]
        said = "only local or mounted directories, s3://, s3a://, gs://, abfss:// and hdfs:// can be used"
        assert f"{uri}: {said}, not {scheme!r}; copy the store" in _refusal(uri, OptionError)
    assert "only local" in _refusal("file://otherhost/store", OptionError)


def test_names_with_special_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a[1]", "what?", "star*", "c:drive", "topic:1", "käse", "中文", "with,comma"):
        rows = _store(tmp_path / name)
        assert read(tmp_path / name) == rows, name
        assert read(name) == rows, name  # relative
    assert len(read("*")) == 8 * 20


def test_glob_matches(tmp_path: Path) -> None:
    rows = _store(tmp_path / "broker-a" / "store")
    assert read(tmp_path / "*" / "store") == rows
    assert read(tmp_path / "broker-?" / "st*") == rows
    assert "no-*: nothing matches this pattern" in _refusal(tmp_path / "no-*")
    assert "matches" in _refusal(f"file://{tmp_path}/no-*")
    (tmp_path / "broker-b").mkdir()
    assert "broker-b: not a RocketMQ store" in _refusal(tmp_path / "broker-[b]")


def test_patterns_match_as_pythons_do(tmp_path: Path, rng: random.Random) -> None:
    for _ in range(60):
        path = tmp_path.joinpath(*(rng.choice(("a", "ab", ".a", "b[1]", "c")) for _ in range(rng.randint(1, 3))))
        with contextlib.suppress(FileExistsError, NotADirectoryError):
            path.parent.mkdir(parents=True, exist_ok=True)
            rng.choice((path.touch, path.mkdir, lambda path=path: path.symlink_to("nowhere")))()
    for _ in range(200):
        parts = (rng.choice(("a", "*", "?b", ".*", "[!a]*", "**", "b[[]1]", "c", "", "x")) for _ in range(3))
        pattern = f"{tmp_path}/{'/'.join(parts)}" + rng.choice(("", "", "/"))
        expected = sorted({os.path.normpath(path) for path in glob.glob(pattern)})
        assert [os.path.normpath(path) for path in Files().matching(pattern)] == expected, pattern


@pytest.mark.parametrize("why", [PermissionError(errno.EACCES, "Permission denied"), OSError(errno.EIO, "I/O error")])
@pytest.mark.parametrize("call", ["listdir", "lstat"])
def test_a_pattern_leaves_out_nothing_that_cannot_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, why: OSError
) -> None:
    for name in ("broker-a", "broker-b"):
        _store(tmp_path / name / "store")
    known = getattr(os, call)

    def refused(path: Any, *more: Any, **others: Any) -> Any:
        if "broker-b" in str(path):
            raise why
        return known(path, *more, **others)

    monkeypatch.setattr(os, call, refused)
    with pytest.raises(RmqStoreError, match=r"broker-b.*(permission denied|I/O error)"):
        read(tmp_path / "*" / ("st*" if call == "listdir" else "store"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where `~` leads. The current directory is another one."""
    (tmp_path / "home").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "home"


def _root_to_write(path: str) -> str:
    return RmqStoreWriter(parse_write_options({"path": path}), overwrite=False).job.root


def test_home_directories(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = _store(home / "a" / "store")
    assert read("~/a/store") == rows
    assert read("~/*/st[o]re") == rows
    assert read("~/a/store", home / "a" / "store") == rows  # one store
    rmqstore_spark.explain("~/a/store")
    assert f"store {home}/a/store: " in capsys.readouterr().out
    shutil.rmtree(home / "a" / "store" / "consumequeue")
    assert rmqstore_spark.rebuild("~/a/store", maxHashSlotNum=10, maxIndexNum=10) == len(rows)
    assert reading.make_plan("~/a/store").accesses[0][0].queues.in_use
    assert _root_to_write("~/new") == f"{home}/new"
    assert _root_to_write("~") == str(home)
    assert _root_to_write(f"~{pwd.getpwuid(0).pw_name}/x") == f"{pwd.getpwuid(0).pw_dir}/x"
    assert list((home.parent / "here").iterdir()) == []


def test_home_of_nobody(home: Path) -> None:
    text = "~nobody-of-that-name/store: there is no home directory for '~nobody-of-that-name'; give the whole path"
    for use in (read, rmqstore_spark.explain, rmqstore_spark.rebuild, _root_to_write):
        with pytest.raises(OptionError) as error:
            use("~nobody-of-that-name/store")
        assert str(error.value) == text
    rows = _store(home.parent / "here" / "~nobody-of-that-name" / "store")
    assert read("~nobody-of-that-name/store") == rows  # a directory here is named so


@pytest.mark.parametrize("name", ["w*", "w?", "w[1]", "*/store"])
def test_no_pattern_is_written_to(tmp_path: Path, name: str) -> None:
    _store(tmp_path / "w1")
    before = sorted(tmp_path.rglob("*"))
    for path in (f"{tmp_path}/{name}", f"file://{tmp_path}/{name.replace('?', '%3F')}"):
        for use in (rmqstore_spark.rebuild, _root_to_write):
            with pytest.raises(OptionError) as error:
                use(path)
            assert str(error.value).startswith(f"{path}: only one store can be written to, and this is a pattern;")
    assert sorted(tmp_path.rglob("*")) == before
    (tmp_path / name).mkdir(parents=True)
    assert _root_to_write(f"{tmp_path}/{name}") == f"{tmp_path}/{name}"


def test_where_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("a b", "./a b/", f"file:{tmp_path}/a%20b", f"file://localhost{tmp_path}/a%20b"):
        assert _root_to_write(path) == f"{tmp_path}/a b"
    for place in ("s3a://bucket", "gs://bucket", "abfss://container@account.dfs.core.windows.net"):
        with pytest.raises(OptionError, match=f"{place}/store: a store there can only be read"):
            rmqstore_spark.rebuild(f"{place}/store")


# ---- other things that RocketMQ writes


def test_dledger(tmp_path: Path) -> None:
    data = tmp_path / "dledger-n0" / "data"
    data.mkdir(parents=True)
    assert reading.read(tmp_path) == []
    expected = _store(tmp_path)  # a broker that was switched to DLedger keeps its old commitlog
    assert len(reading.read(tmp_path)) == len(expected) > 0


@pytest.mark.parametrize("place", ["commitlog", "elsewhere"])
def test_dledger_file(tmp_path: Path, place: str) -> None:
    """storePathDLedgerCommitLog may name any directory."""
    (tmp_path / place).mkdir()
    path = tmp_path / place / ("0" * 20)
    # i32 magic, i32 size, i64 index, i64 term, i64 position, i32 channel, i32 chainCrc, i32 bodyCrc, i32 bodySize
    unit = reference.encode_unit(physical_offset=48, body=b"x")
    entry = struct.pack(">iiqqqiiii", 1, 48 + len(unit), 0, 1, 0, 0, 0, 0, len(unit)) + unit
    path.write_bytes(entry.ljust(4096, b"\0"))
    named = {} if place == "commitlog" else {"storePathCommitLog": str(tmp_path / place)}
    for mode in reading.MODES:
        assert [row["commitLogOffset"] for row in reading.read(tmp_path, mode=mode, **named)] == [48]
    with pytest.raises(NotAStoreError, match="a log of DLedger" if place == "commitlog" else "not a RocketMQ store"):
        rmqstore_spark.rebuild(tmp_path)


@pytest.mark.parametrize("depth", range(5))
def test_tiered_store(tmp_path: Path, depth: int) -> None:
    names = ["DefaultCluster", "broker-a", "TopicA", "0", "COMMIT_LOG"]
    below = tmp_path.joinpath(*names)
    below.mkdir(parents=True)
    (below / ("2ea2f9aa" + "0" * 20)).touch()
    path = tmp_path.joinpath(*names[:depth])
    if depth < 3:  # a broker's directory, or one above it
        assert read(path) == []
        return
    assert _refusal(path).startswith(f"{path}: files of RocketMQ's tiered store, which can only be read")


def test_rocksdb_queues_only_mean_that_there_are_no_queues(tmp_path: Path) -> None:
    rows = _store(tmp_path, 200)
    queues = tmp_path / "consumequeue"
    shutil.rmtree(queues)
    queues.mkdir()
    for name in ("CURRENT", "MANIFEST-000004", "000012.sst", "LOCK", "LOG", "OPTIONS-000007"):
        (queues / name).write_bytes(b"rocks")
    for size in (1, 3000, 1 << 30):
        assert read(tmp_path, maxPartitionBytes=size) == rows
    assert len(reading.make_plan(tmp_path, maxPartitionBytes=3000).tasks) > 5


# ---- options


def _parse(**options: str) -> Any:
    return parse_options({"path": "/store", **options})


def test_defaults() -> None:
    options = _parse()
    assert (options.mode, options.verify_crc, options.decompress) == ("FAILFAST", True, True)
    assert (options.max_partition_bytes, options.min_partitions) == (None, None)
    assert (options.columns, options.store_path_commit_log, options.paths) == (None, None, ["/store"])


def test_names_and_values_in_any_case() -> None:
    options = parse_options({"PATH": "/Store", "VerifyCRC": "FALSE", "mode": "permissive", "MAXPARTITIONBYTES": "1G"})
    assert options.paths == ["/Store"]
    assert (options.verify_crc, options.mode, options.max_partition_bytes) == (False, "PERMISSIVE", 1 << 30)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("128m", 128 << 20),
        ("64 MB", 64 << 20),
        ("1k", 1024),
        ("7b", 7),
        ("2T", 2 << 40),
        (" 5 ", 5),
        ("1g", 1 << 30),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert _parse(maxPartitionBytes=text).max_partition_bytes == size


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        *(
            ("maxPartitionBytes", value, "a number of bytes such as")
            for value in ("", "0", "-1", "1.5m", "m", "x", "1mm")
        ),
        *(("minPartitions", value, "a whole number of at least 1") for value in ("", "0", "-3", "1.5", "many", "²")),
        *(("verifyCrc", value, "true or false") for value in ("", "yes", "1")),
        *(("decompress", value, "true or false") for value in ("", "no", "0")),
        *(("mode", value, "FAILFAST or DROPMALFORMED or PERMISSIVE") for value in ("", "fail", "IGNORE")),
        *(("columns", value, "comma-separated names") for value in ("", ",", "topic,,body", "topic,")),
        *(("storePathCommitLog", value, "comma-separated names") for value in ("", "/a,,/b")),
        ("path", "", "a directory"),
    ],
)
def test_bad_values(name: str, value: str, expected: str) -> None:
    with pytest.raises(OptionError) as error:
        _parse(**{name: value})
    text = str(error.value)
    assert text.startswith(f"option {name!r}: expected ")
    assert expected in text
    assert text.endswith(f"found {value!r}")


@pytest.mark.parametrize("value", ["", "[]", "x", '"/a"', "[1]", '{"a":1}', "/a,/b"])
def test_bad_paths(value: str) -> None:
    with pytest.raises(OptionError, match=r"option 'paths': expected a JSON list of paths"):
        parse_options({"paths": value})


def test_empty_path() -> None:
    """What a shell makes of a variable that is not set."""
    with pytest.raises(OptionError, match="option 'paths': expected paths that are not empty, found"):
        parse_options({"paths": '["/a", ""]'})


def test_path_and_paths() -> None:
    with pytest.raises(OptionError, match="'path' and 'paths' are both given"):
        _parse(paths='["/a"]')
    with pytest.raises(OptionError, match=r"no path is given; use load\(path\)"):
        parse_options({})


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("colums", "columns"), ("verifycrcs", "verifyCrc"), ("modes", "mode"), ("maxPartitionByte", "maxPartitionBytes")],
)
def test_unknown_option(name: str, nearest: str) -> None:
    with pytest.raises(OptionError) as error:
        _parse(**{name: "x"})
    assert f"{name!r}" in str(error.value)
    assert f"Did you mean {nearest!r}?" in str(error.value)


def test_an_option_like_no_other() -> None:
    with pytest.raises(OptionError) as error:
        _parse(xyzzy="1")
    assert "Did you mean" not in str(error.value)
    assert all(name in str(error.value) for name in OPTIONS)


def test_columns() -> None:
    assert _parse(columns=" body ,topic,corrupt").columns == ["body", "topic", "corrupt"]
    with pytest.raises(OptionError) as error:
        _parse(columns="topic,bodi")
    assert "unknown column 'bodi'. Did you mean 'body'?" in str(error.value)
    assert all(name in str(error.value) for name in COLUMNS)
    with pytest.raises(OptionError, match=r"unknown column 'Topic'\. Did you mean 'topic'"):
        _parse(columns="Topic")
    with pytest.raises(OptionError, match="column 'topic' is asked for twice"):
        _parse(columns="topic,body,topic")
