"""Wrong words of commands, in the tests' own process: one line, and the exit code of wrong use."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqstore_spark.cli.main import exit_code

SAMPLE = Path(__file__).resolve().parents[2] / "sample_store"


@pytest.fixture(autouse=True)
def process_as_before() -> Iterator[None]:
    """A command is a process: it sets up the log, and looks for modules in a way of its own."""
    finders, handlers = sys.meta_path[:], logging.getLogger().handlers[:]
    yield
    sys.meta_path[:], logging.getLogger().handlers[:] = finders, handlers


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["rebuild", "{store}", "--config", "--mappedFileSizeConsumeQueue", "6m"],
            "--config makes no queues and no index: leave out",
        ),
        (["rebuild", "{store}", "--dry-run"], "--dry-run, --format and --output go with --config"),
        (["set-offsets", "{store}"], "give --group-offset: a group and where it goes on"),
        (["set-offsets", "{store}", "--group-offset", "g=@/no/such/file"], "/no/such/file: expected a file with JSON"),
        (["tail", "{store}", "-f", "--sort", "topic"], "--follow: what has no end has no order; leave --sort out"),
        (["tail", "{both}"], "expected one store, found 2"),
        (["tail", "{both}", "-f"], "found two copies of one"),
        (["lag", "{store}", "--by", "colour"], "colour"),
        (["mesages"], "there is no command 'mesages'. Did you mean 'messages'?"),
        (["{store}"], "Did you mean 'show {store}'?"),
    ],
)
def test_words_that_do_not_go(words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        shutil.copytree(SAMPLE, tmp_path / name)
    places = {"store": str(tmp_path / "one"), "both": f"{tmp_path}/*"}
    assert exit_code([word.format(**places) for word in words]) == 2
    found = capsys.readouterr()
    assert told.format(**places) in found.err
    assert found.out == ""


def test_offsets_that_would_be_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Given in a file; a dry run changes nothing."""
    shutil.copytree(SAMPLE, tmp_path / "store")
    (tmp_path / "offsets").write_text(json.dumps({"Plain": {"0": 1}}))
    before = (tmp_path / "store" / "config" / "consumerOffset.json").read_bytes()
    words = ["set-offsets", str(tmp_path / "store"), "--group-offset", f"new=@{tmp_path}/offsets"]
    assert exit_code([*words, "--dry-run"]) == 0
    assert "nothing was changed: 1 queue would be set" in capsys.readouterr().err
    assert (tmp_path / "store" / "config" / "consumerOffset.json").read_bytes() == before
    assert exit_code(words) == 0
    table = json.loads((tmp_path / "store" / "config" / "consumerOffset.json").read_text())["offsetTable"]
    assert table["Plain@new"] == {"0": 1}


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    import rmqstore_spark

    assert exit_code(["--version"]) == 0
    assert capsys.readouterr().out == f"rmqstore {rmqstore_spark.__version__}\n"
