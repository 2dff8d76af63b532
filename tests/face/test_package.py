"""What the package itself says: its version, and what it needs of a session."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore_spark
from rmqstore_spark import OptionError, Store
from rmqstore_spark.jobs.lag import lag
from rmqstore_spark.query.stream_options import parse_stream_options
from rmqstore_spark.tables.offsets import OFFSETS

SAMPLE = Path(__file__).resolve().parents[2] / "sample_store"


def test_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rmqstore_spark.__version__ == importlib.metadata.version("rmqstore-spark")

    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert rmqstore_spark.__version__ == "0+unknown"


@pytest.mark.parametrize("call", [rmqstore_spark.register, rmqstore_spark.storage_options])
def test_what_is_no_session(call: object) -> None:
    assert callable(call)
    with pytest.raises(OptionError, match=r"spark: expected a SparkSession, found another value \(of type int\)"):
        call(7)


def test_offsets_of_no_group() -> None:
    with pytest.raises(OptionError, match="option 'groupOffset': expected where groups go on, found nothing"):
        Store(SAMPLE).set_offsets(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: lag(iter(()), OFFSETS.schema, "colour"), "by: expected group, topic, queue, found 'colour'"),
        (
            lambda: parse_stream_options({"path": "/x", "table": "queues"}),
            "only messages can be read as a stream, not 'queues'",
        ),
    ],
)
def test_words_of_which_there_are_few(call: Callable[[], object], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        call()
