"""The ceiling of Spark's transport: a data source that reads nothing and decodes nothing.

Each partition yields one ready-made record batch again and again. What a real scan of the same rows loses against
it is the price of reading and decoding; nothing written in Python can be faster than this.

    spark.dataSource.register(NullSource)
    spark.read.format("nullsource").schema(df.schema).options(batch="batch.arrow", rows=3_000_000, partitions=8).load()
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType


def save_batch(batch: pa.RecordBatch, path: str | os.PathLike[str]) -> None:
    """Keep a batch where the reader's tasks find it (option `batch`)."""
    with pa.ipc.new_file(path, batch.schema) as writer:
        writer.write_batch(batch)


class NullSource(DataSource):
    """Options: batch (a file of save_batch), rows (of all partitions together), partitions. Needs a user schema."""

    @classmethod
    def name(cls) -> str:
        return "nullsource"

    def reader(self, schema: StructType) -> DataSourceReader:
        return NullReader(self.options["batch"], int(self.options["rows"]), int(self.options["partitions"]))


@dataclass
class Rows(InputPartition):
    count: int


@dataclass
class NullReader(DataSourceReader):
    batch: str
    rows: int
    parts: int

    def partitions(self) -> list[InputPartition]:
        cuts = [self.rows * i // self.parts for i in range(self.parts + 1)]
        return [Rows(end - start) for start, end in pairwise(cuts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Rows)
        with pa.OSFile(self.batch) as file:
            batch = pa.ipc.open_file(file).get_batch(0)
        whole, rest = divmod(partition.count, batch.num_rows)
        for _ in range(whole):
            yield batch
        if rest:
            yield batch.slice(0, rest)
