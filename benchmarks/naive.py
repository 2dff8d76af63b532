"""What one writes today, without a reader of the format: the segments as files, `struct`, and a loop.

It reads what brokers usually write (V1 units, IPv4) and does without all else: no check of anything, no CRC, no
decompression, no older property escapes, a whole segment in memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

SCHEMA = "topic string, queueId int, queueOffset bigint, tags string, keys string, body binary"
COLUMNS = [field.split()[0] for field in SCHEMA.split(", ")]
MAGIC = 0xDAA320A7
HEADER = struct.Struct(">iIiiiqqiq8sq8siqi")
ROWS = 10_000  # in a pandas frame


def read(spark: SparkSession, segments: Sequence[str]) -> DataFrame:
    """One task per segment."""
    numbers = spark.range(0, len(segments), 1, len(segments))
    return numbers.mapInPandas(parser(list(segments)), SCHEMA)


def parser(segments: list[str]) -> Callable[[Iterable[pd.DataFrame]], Iterator[pd.DataFrame]]:
    def parse(frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            for number in frame["id"]:
                rows = []
                for row in units(Path(segments[number]).read_bytes()):
                    rows.append(row)
                    if len(rows) == ROWS:
                        yield pd.DataFrame(rows, columns=COLUMNS)
                        rows = []
                yield pd.DataFrame(rows, columns=COLUMNS)

    return parse


def units(data: bytes) -> Iterator[tuple[Any, ...]]:
    at = 0
    while at + HEADER.size <= len(data):
        fields = HEADER.unpack_from(data, at)
        size, magic, queue_id, queue_offset, body_length = fields[0], fields[1], fields[3], fields[5], fields[-1]
        if magic != MAGIC:
            return
        body_at = at + HEADER.size
        topic_at = body_at + body_length + 1
        topic_end = topic_at + data[topic_at - 1]
        topic = data[topic_at:topic_end].decode()
        text = data[topic_end + 2 : at + size].decode()
        properties = dict(pair.split("\x01", 1) for pair in text.split("\x02") if pair)
        body = data[body_at : body_at + body_length]
        yield topic, queue_id, queue_offset, properties.get("TAGS"), properties.get("KEYS"), body
        at += size
