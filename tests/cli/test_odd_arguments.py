"""Random arguments, most of them odd: whatever they are, a command has a code of the table and says a few lines."""

from __future__ import annotations

import io
import random
import shutil
import sys
from pathlib import Path

import click
import pytest
from oracle import stores

from rmqstore_spark.cli.commands import Rmqstore
from rmqstore_spark.cli.exit_codes import EXIT_CODES, WRONG_USE
from rmqstore_spark.cli.main import exit_code
from rmqstore_spark.columns import COLUMNS

TRIALS = 200
ODD = [
    "",
    " ",
    ",",
    ",,",
    " a , b ",
    "*",
    "||",
    "TagA ||",
    "-1",
    "0",
    "1",
    "007",
    "1e9",
    "9" * 30,
    "9" * 5000,
    "0x10",
    "NaN",
]
ODD += [
    "-0",
    "+1",
    "1.5",
    "٣",
    str(1 << 31),
    str(1 << 63),
    str(-(1 << 63)),
    "true",
    "False",
    "тема",
    "🚀" * 50,
    "x" * 5000,
]
ODD += [
    "\udcff",
    "a\0b",
    "\0",
    "\x1b[31m",
    "\u202e",
    "a\nb",
    "\ud800",
    "-",
    "--",
    "--x",
    "-n",
    "--help",
    "null",
    "{}",
    "[]",
    "[" * 10_000,
]
ODD += [
    '{"Orders": [0]}',
    '{"Orders": {"0": 1}}',
    '{"Orders": {"0": 1180591620717411303424}}',
    '{"\\ud800": [0]}',
    '{"a\\u0000b": [0]}',
]
ODD += [
    '{"": [0]}',
    '{"Orders": [-1]}',
    '{"Orders": {"x": 0}}',
    '{"../..": {"0": 0}}',
    '{"a\\u0000b": {"0": 0}}',
    '"x"',
    "{'a': 1}",
]
ODD += [
    "group:",
    "group:G",
    "group:\0",
    "group: G",
    "earliest",
    "latest",
    "2024-01-01",
    "9999-12-31T23:59:59.999999Z",
    "0001-01-01",
]
ODD += [
    "0001-01-01T00:00:00+23:59",
    "10000-01-01",
    "1970-01-01T00:00:00+25:00",
    "2024-02-30",
    "(",
    "a{1000}{1000}",
    "(?=x)",
    "\\",
]
ODD += [
    "s3://",
    "ftp://x/y",
    "file:",
    "file://elsewhere/x",
    "~",
    "~nobody",
    "..",
    ".",
    "/dev/null",
    "/",
    "*?[",
    "[",
    "%s",
    "{0}",
    "PERMISSIVE",
]
# Values with which a command comes further, by option; KNOWN for all others.
GOOD = {
    "columns": ["topic,queueId", "topic, body", "bodyBase64", "store,file", *COLUMNS],
    "subscribe": ["Orders", "Orders, Other", "Ordres"],
    "subscribePattern": ["Orders.*", ".*"],
    "assign": ['{"Orders": [0]}', '{"Orders": [7]}'],
    "startingOffsets": ['{"Orders": {"0": 1}}', "group:G", "earliest", "latest"],
    "endingOffsets": ['{"Orders": {"0": 1}}', "latest"],
    "startingTimestamp": ["2024-01-01", "0", "-1", "0001-01-01T00:00:00+23:59"],
    "endingTimestamp": ["2024-01-01", "9999-12-31T23:59:59.999999Z", "1700000000010"],
    "mode": ["PERMISSIVE", "dropmalformed", "FAILFAST"],
    "kind": ["json", "csv", "table", "jsonl", "parquet", "arrow", "CSV"],
    "output": ["x.json", "x.csv", "x.parquet", "x", "/dev/null", "/dev/full", "new/x.json", "тема.json"],
    "limit": ["0", "1", "7", str(1 << 63)],
    "trust": ["log", "queues"],
    "tags": ["TagA", "TagA || TagB", "*"],
    "mappedFileSizeConsumeQueue": ["20", "100"],
    "maxHashSlotNum": ["1", "20"],
    "maxIndexNum": ["2", "20"],
    "maxTaskBytesPerSecond": ["1g"],
    "maxPartitionBytes": ["1", "1k", "128m"],
}
KNOWN = ["k1", "k7", "0" * 32, "0" * 31 + "g", "F" * 56, "20", "true"]
# Of these a number means for ever, or all of the disk.
ONLY_GOOD = {"maxTaskBytesPerSecond", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, one with a damaged message and names that are none, and a directory that is no store."""
    root = tmp_path_factory.mktemp("odd")
    builder = stores.StoreBuilder(root / "store", index=True)
    for number in range(20):
        builder.append(
            topic=("Orders", "Other", "Evil\x1b\u202e")[number % 3], keys=f"k{number}", tags="TagA", body=b"{}"
        )
    builder.close()
    shutil.copytree(root / "store", root / "damaged")
    (segment,) = [path for path in (root / "damaged" / "commitlog").iterdir() if b"k7" in path.read_bytes()]
    segment.write_bytes(segment.read_bytes().replace(b"k7", b"\xff7"))
    for name in ("consumequeue", "consumequeue/Orders", "index", "config", "commitlog"):
        for odd in ("a\nb", "\udcff", "\x1b[2J"):
            (root / "damaged" / name / odd).mkdir(parents=True, exist_ok=True)
    (root / "empty").mkdir()
    return root


def words(command: click.Command, root: Path, rng: random.Random) -> list[str]:
    """Some arguments for a command, in some order."""
    oddness = rng.choice([0, 0.1, 0.5])

    def some(good: list[str]) -> str:
        return rng.choice(ODD if rng.random() < oddness else good)

    names = ["store"] * 12 + ["damaged"] * 6 + ["empty", "nothing", "*", "store/commitlog"]
    stores_here = [str(root / name) for name in names]
    found = []
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            is_path = parameter.name in ("path", "paths")
            count = rng.choice([1, 1, 1, 2]) if parameter.nargs == -1 else 1
            found += [[some(stores_here if is_path else KNOWN)] for _ in range(count)]
            found += [[some(["new", "a/b", *stores_here[:1]])]] * (command.name in ("copy", "salvage"))
        elif rng.random() < 2 / len(command.params):
            assert isinstance(parameter, click.Option)
            spelling = rng.choice([*parameter.opts, *parameter.secondary_opts])
            good = GOOD.get(parameter.name or "", KNOWN)
            if parameter.name == "storePathCommitLog":
                good = [str(root / "damaged" / "commitlog"), f"{root}/store/commitlog , {root}/damaged/commitlog"]
            value = rng.choice(good) if parameter.name in ONLY_GOOD else some(good)
            if parameter.is_flag and rng.random() < 0.9:
                found.append([spelling])
            else:
                found.append([f"{spelling}={value}"] if rng.random() < 0.3 else [spelling, value])
    if rng.random() < oddness:
        rng.shuffle(found)
    return [word for part in found for word in part]


def test_odd_arguments(made: Path, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    group = Rmqstore()
    context = click.Context(group)
    names = group.list_commands(context)
    seen = set()
    for trial in range(TRIALS):
        (directory := tmp_path / str(trial)).mkdir()
        monkeypatch.chdir(directory)
        root = directory / "stores"
        name = rng.choice(names)
        command = group.get_command(context, name)
        assert command is not None
        if name == "rebuild":
            shutil.copytree(made, root)
        arguments = [name, *words(command, root if name == "rebuild" else made, rng)]
        with monkeypatch.context() as changed:
            out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace") for _ in range(2))
            changed.setattr(sys, "stdout", out)
            changed.setattr(sys, "stderr", err)
            changed.setattr(sys, "meta_path", sys.meta_path.copy())
            changed.setattr("rmqstore_spark.cli.following._coming", lambda *_: iter(()))  # else it never ends
            try:
                code = exit_code(arguments)
            except BaseException as why:
                raise AssertionError(f"a traceback: {arguments}") from why
            err.flush()
        told = err.buffer.getvalue().decode()
        seen.add(code)
        assert code in EXIT_CODES, arguments
        assert len(told.splitlines()) <= 5, (arguments, told)
        if code == WRONG_USE:
            assert told.splitlines()[-1].startswith("rmqstore"), (arguments, told)
        shutil.rmtree(directory)
    assert {0, 1, 2, 4} <= seen
