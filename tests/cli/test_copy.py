"""`rmqstore copy` and `rmqstore salvage` say what they have copied and what is lost, and exit with a code that says
so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import writing
from support.command import run

from rmqstore_spark import Store


@pytest.fixture
def source(tmp_path: Path) -> Path:
    rows = [
        {"topic": f"T{n % 2}", "queueId": 0, "body": b"x" * 500, "storeTimestamp": (1_700_000_000_000 + n) * 1000}
        for n in range(60)
    ]
    writing.write(tmp_path / "source", rows)
    return tmp_path / "source"


def test_copy(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    some = ("--topic", "T1", "--from", "1700000000010", "--to", "1700000000020")
    ran = run("copy", source, target, *some)
    assert (ran.code, ran.out, ran.err) == (0, "", f"{target} has 5 messages\n")
    assert Store(target).messages(["queueOffset"]).read_all().column(0).to_pylist() == [5, 6, 7, 8, 9]
    again = run("copy", source, target)
    assert again.code == 2
    assert again.err.startswith(f"rmqstore: {target}: expected no directory or an empty one")
    assert run("copy", source).code == 2
    wrong = run("copy", source, tmp_path / "other", "--store-host", "10.1.2.3:65536")
    assert (wrong.code, "option 'storeHost': expected ip:port" in wrong.err) == (2, True)


def test_a_commitlog_elsewhere(source: Path, tmp_path: Path) -> None:
    log, target = tmp_path / "log", tmp_path / "target"
    (source / "commitlog").rename(log)
    ran = run("copy", "--store-path-commit-log", log, source, target)
    assert (ran.code, ran.out, ran.err) == (0, "", f"{target} has 60 messages\n")
    ran = run("copy", "--store-path-commit-log", log, source, log / "target")
    assert (ran.code, ran.out) == (2, "")
    assert f"expected a directory outside {log}" in ran.err
    assert not (log / "target").exists()
    (tmp_path / "empty").mkdir()
    ran = run("salvage", "--store-path-commit-log", tmp_path / "empty", source, tmp_path / "salvaged")
    assert (ran.code, "has 0 messages" in ran.err) == (1, True), ran.err


def test_salvage(source: Path, tmp_path: Path) -> None:
    """Exit code 1: something is lost, and told."""
    segment = sorted((source / "commitlog").iterdir())[1]
    data = bytearray(segment.read_bytes())
    data[2000:2100] = bytes(100)
    segment.write_bytes(data)
    for option in ([], ["--exclude-key", "k1"]):
        refused = run("copy", source, tmp_path / "target", *option)
        assert (refused.code, refused.err.count("\n")) == (1, 1)
        assert refused.err.count("`rmqstore salvage` makes a new store of what is whole") == 1
        assert "--mode" not in refused.err  # which copies do not have
    ran = run("salvage", source, tmp_path / "target", "--format", "json")
    assert ran.code == 1
    found = [json.loads(line) for line in ran.out.splitlines()]
    assert {each["problem"] for each in found} == {"damagedUnit", "lostMessages"}
    assert f"has {60 - sum(each['count'] or 0 for each in found)} messages" in ran.err
    shown = run("salvage", source, tmp_path / "other")
    assert shown.code == 1
    assert "error lostMessages" in shown.out


def test_what_does_not_fit_is_shown_as_given(source: Path, tmp_path: Path) -> None:
    ran = run("copy", source, tmp_path / "target", "--exclude-property", "TAGS")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.endswith(" or NAME=VALUE, found 'TAGS'\n")
    ran = run("copy", source, tmp_path / "target", "--exclude-key", '["k1"]')
    assert (ran.code, "excludeKey '[\"k1\"]': no message of the store has it" in ran.err) == (0, True)


def test_a_group_without_offsets(source: Path) -> None:
    """Where config/ was lost, it is said how a group's place is given anyhow, and that works."""
    ran = run("set-offsets", source, "--group-offset", "G=earliest")
    assert ran.code == 2
    why = "no store has an offset of consumer group 'G'. No other group has one; "
    assert f'{why}for a group without one name the queues, {{"topic": {{"0": 17}}}}' in ran.err
    assert run("set-offsets", source, "--group-offset", 'G=@{"T0": {"0": 3}}').code == 0
    assert Store(source).offsets(["consumerOffset"]).column(0).to_pylist() == [3]


def test_nothing_to_rebuild(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    ran = run("rebuild", tmp_path, "--config")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == f"{tmp_path} has no files in config/, and no topic or group that they could have\n"
