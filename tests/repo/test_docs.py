"""Every example in README and docs/ runs, in a directory with copies of sample_store, and prints what it shows.

Those with Spark are in tests/spark/test_docs.py. Nothing is left out.
"""

from __future__ import annotations

import json
import re
import runpy
import shlex
import sys
import types
from pathlib import Path
from typing import ClassVar

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from support.pages import PAGES, ROOT, blocks, bucket, make_kitchen, pages_with, run_block

import rmqstore_spark
from rmqstore_spark import Store
from rmqstore_spark.cli.commands import Rmqstore

# What a block may be. Of one without a language nothing runs: layouts, output, and `make` or `pip` at a terminal.
KINDS = {"", "python", "python spark", "python needs-s3", "python spark needs-s3", "shell"}
# Those for others' programs: test_sail.py, test_pipelines.py and test_spark_lakes.py of tests/spark, and
# tests/face/test_lakes.py run them.
KINDS |= {"python sail", "python pipeline", "yaml", "python spark41", "python lake"}
NOT_RUN = re.compile(r"(make|pip) \w+")


@pytest.fixture
def kitchen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_kitchen(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_of_a_known_kind(page: str) -> None:
    found = blocks(page)
    assert PAGES[page].count("```") == 2 * sum(1 if block.output is None else 2 for block in found)
    assert {block.kind for block in found} <= KINDS
    for block in found:
        if not block.kind and "rmqstore " in block.text:
            assert all(NOT_RUN.match(line) for line in block.text.splitlines()), block.text


@pytest.mark.parametrize("page", pages_with("python"))
def test_without_spark(page: str, kitchen: Path) -> None:
    names: dict[str, object] = {}
    for block in blocks(page, "python"):
        run_block(block, names)
    if page == "cookbook.md":
        assert pq.read_table(kitchen / "plain.parquet").num_rows == 60
        hourly = pq.read_table(kitchen / "lake" / "hourly").to_pylist()
        assert sorted((row["number"], row["state"]) for row in hourly) == [(1, "paid"), (2, "shipped")]
        retried = Store("copy_of_sample_store").messages(["keys"], subscribe="Retried").read_all()
        assert [retried["keys"].to_pylist().count(key) for key in ("retried-0", "retried-3")] == [2, 2]
    if page == "writing.md":
        assert Store("arrow_store").topics(columns=["messages"]).to_pylist() == [{"messages": 6}]


@pytest.mark.parametrize("page", pages_with("shell"))
def test_at_a_terminal(page: str, kitchen: Path) -> None:
    for block in blocks(page, "shell"):
        for line in block.text.splitlines():
            words = shlex.split(line, comments=True)
            if not words:
                continue
            assert words[0] == "rmqstore"
            found = CliRunner().invoke(Rmqstore(), words[1:], standalone_mode=False)
            assert found.exception is None, (line, found.exception)
            assert (found.return_value or 0, "nothing found" in found.stderr) == (0, False), line
        if block.output is not None:
            assert found.stdout.strip() == block.output.strip()
    if page == "cookbook.md":
        assert pq.read_table(kitchen / "plain.parquet").num_rows == 60
        orders = map(json.loads, (kitchen / "orders.jsonl").read_text().splitlines())
        assert [order["body"]["state"] for order in orders] == ["paid", "shipped"]


class _Producer:
    """In the place of Apache's client: notes what is sent. The third message fails, if that is asked for."""

    sent: ClassVar[list[types.SimpleNamespace]] = []
    fails_after: ClassVar[int] = 1 << 30

    def __init__(self, configuration: object) -> None:
        pass

    def startup(self) -> None:
        pass

    def send(self, message: types.SimpleNamespace) -> types.SimpleNamespace:
        if len(self.sent) >= self.fails_after:
            raise ConnectionError("the proxy is gone")
        self.sent.append(message)
        return types.SimpleNamespace(message_id=f"id-{len(self.sent)}")

    def shutdown(self) -> None:
        pass


class _Message(types.SimpleNamespace):
    def add_property(self, name: str, value: str) -> None:
        self.__dict__.setdefault("properties", {})[name] = value


def _send_again(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Run the example as the cookbook does, with other words behind the topic."""
    told = re.search(r"^python (examples/send_again.py .*) --send$", PAGES["cookbook.md"], re.MULTILINE)
    assert told is not None
    client = types.SimpleNamespace(
        Message=_Message, Producer=_Producer, ClientConfiguration=lambda *of: of, Credentials=lambda: None
    )
    monkeypatch.setitem(sys.modules, "rocketmq", client)
    script, *arguments = shlex.split(told[1])
    monkeypatch.setattr(sys, "argv", [script, *arguments, *words])
    return int(runpy.run_path(str(ROOT / script))["main"]())


def test_dead_letters_are_sent_again(
    kitchen: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_Producer, "sent", [])
    dead = Store("sample_store").messages(["topic", "keys", "body"], subscribe="%DLQ%failing-group").read_all()
    assert _send_again(monkeypatch) == 0
    assert capsys.readouterr().out.count("would send ") == dead.num_rows > 1
    assert _Producer.sent == []
    assert _send_again(monkeypatch, "--send") == 0
    assert capsys.readouterr().out.endswith(f"{dead.num_rows} sent\n")
    assert [message.body for message in _Producer.sent] == dead["body"].to_pylist()
    assert [message.keys for message in _Producer.sent] == dead["keys"].to_pylist()
    assert {message.topic for message in _Producer.sent} == {"Retried"}
    monkeypatch.setattr(_Producer, "fails_after", len(_Producer.sent) + 1)
    assert _send_again(monkeypatch, "--send") == 1
    assert re.match(r"1 sent; the message at commitLogOffset \d+ was not: the proxy is gone", capsys.readouterr().err)


def test_against_a_bucket(kitchen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pages_with("python needs-s3") == ["remote.md"]
    names: dict[str, object] = {"rmqstore_spark": rmqstore_spark}
    with bucket(kitchen) as server:
        for name, value in server.options.items():
            monkeypatch.setenv(name.upper(), value)
        for block in blocks("remote.md", "python needs-s3"):
            run_block(block, names)
        assert isinstance(names["store"], Store)
        assert names["store"].topics().num_rows == Store("sample_store").topics().num_rows
