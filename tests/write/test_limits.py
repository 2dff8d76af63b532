"""What a broker has no number for is refused at the option or the row; what it just takes is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from oracle.stores import StoreBuilder
from support import writing
from support.writing import write

import rmqstore_spark
from rmqstore_spark import BadRowError, OptionError, Store
from rmqstore_spark.query.options import OPTIONS, STREAM_OPTIONS, WRITE_OPTIONS, parse_write_options
from rmqstore_spark.store.format.sizes import Sizes

INT = (1 << 31) - 1
SIZES: dict[str, Any] = {
    "mappedFileSizeCommitLog": 8192,
    "mappedFileSizeConsumeQueue": 200,
    "maxHashSlotNum": 20,
    "maxIndexNum": 50,
}
MOST = {
    "queues": INT,
    "mappedFileSizeCommitLog": INT,
    "mappedFileSizeConsumeQueue": INT // 20 * 20,
    "maxHashSlotNum": (INT - 40 - 2 * 20) // 4,
    "maxIndexNum": (INT - 40 - 4) // 20,
}


def put(root: Path, **options: Any) -> int:
    row = pa.table({"topic": ["T"], "keys": ["k"], "body": [b"x"]})
    return rmqstore_spark.write_store(root, row, **{**SIZES, **options})


@pytest.mark.slow
@pytest.mark.parametrize("name", MOST)
def test_more_than_a_broker_takes(tmp_path: Path, name: str) -> None:
    for value in (MOST[name] + 1, INT + 1, 1 << 32, 10**30):
        with pytest.raises(OptionError, match=rf"option '{name}': expected {MOST[name]} at most, .*, found '{value}'"):
            put(tmp_path / "store", **{name: value})
    assert not (tmp_path / "store").exists()
    if name == "maxIndexNum":
        return  # so many are held in memory
    assert put(tmp_path / "store", **{"maxIndexNum": 2, name: MOST[name]}) == 1
    assert Store(tmp_path / "store").check().num_rows == 0


def test_queues_that_a_broker_can_read(tmp_path: Path) -> None:
    """topics.json is not read at all if it has a number that is no int."""
    assert put(tmp_path, queues=INT) == 1
    table = json.loads((tmp_path / "config" / "topics.json").read_text())["topicConfigTable"]
    assert table["T"]["readQueueNums"] == INT
    with pytest.raises(BadRowError, match=f"column 'queueId': expected 0 to {INT - 1}, found {INT}"):
        write(tmp_path, [{"topic": "T", "queueId": INT, "body": b"x"}])
    write(tmp_path / "last", [{"topic": "T", "queueId": INT - 1, "body": b"x"}])
    assert Store(tmp_path / "last").check().num_rows == 0


def test_a_log_with_one_queue_more(tmp_path: Path) -> None:
    """No broker serves it; topics.json stays one that can be read."""
    builder = StoreBuilder(tmp_path, segment_size=8192)
    builder.append(topic="T", queue_id=INT, body=b"x")
    builder.close()
    (tmp_path / "config" / "topics.json").unlink(missing_ok=True)
    assert rmqstore_spark.rebuild(tmp_path) == 1
    table = json.loads((tmp_path / "config" / "topics.json").read_text())["topicConfigTable"]
    assert table["T"]["readQueueNums"] == INT


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_an_index_file_of_both_its_numbers(tmp_path: Path, is_there: bool, mode: Any) -> None:
    """Each of them can be had; both together not. Refused before a row is read."""
    root, sizes = tmp_path / "store", {"maxHashSlotNum": 1 << 28, "maxIndexNum": 1 << 26}
    if is_there:
        put(root)
    before = writing.files(tmp_path, "**/*")

    def rows() -> Any:
        yield from [pa.record_batch({"topic": ["T"], "body": [b"x"]})]
        raise AssertionError("read")

    wrong = "'maxIndexNum': expected" if is_there and mode == "append" else "expected an index file of at most"
    with pytest.raises(OptionError, match=wrong if not is_there or mode == "overwrite" else "expected"):
        rmqstore_spark.write_store(root, rows(), mode=mode, **sizes)
    assert writing.files(tmp_path, "**/*") == before
    assert Sizes(slots=1 << 28, items=1 << 22).or_defaults().items == 1 << 22


@pytest.mark.parametrize("name", [*OPTIONS, *STREAM_OPTIONS, *WRITE_OPTIONS])
def test_no_number_is_too_long_for_an_error_of_ours(name: str) -> None:
    for table in (OPTIONS, STREAM_OPTIONS, WRITE_OPTIONS):
        if name in table:
            told = ""
            try:
                table[name].type.parse("9" * 5000)
            except ValueError as why:
                told = str(why)
            assert "set_int_max_str_digits" not in told


def test_a_version_of_63_bits() -> None:
    given = {"path": "/x", "txnAppId": "a"}
    assert parse_write_options({**given, "txnVersion": str((1 << 63) - 1)}).write_id is not None
    for wrong in (str(1 << 63), "9" * 5000):
        with pytest.raises(OptionError, match="'txnVersion': expected a whole number of at least 0"):
            parse_write_options({**given, "txnVersion": wrong})
