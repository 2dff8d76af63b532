"""Every table gives Spark the rows and types that Store gives: in what Spark calls of a source, without a session."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from rmqstore_spark import Store
from rmqstore_spark.spark.datasource import RmqStoreDataSource
from rmqstore_spark.tables.registry import TABLES, table

SAMPLE = Path(__file__).parents[2] / "sample_store"


@pytest.mark.parametrize("name", TABLES)
def test_a_table(name: str) -> None:
    """Planned here, and each part read elsewhere."""
    expected = Store(SAMPLE).table(name)
    small = {"maxPartitionBytes": "2000"} if "maxPartitionBytes" in table(name).options else {}
    source = RmqStoreDataSource({"path": str(SAMPLE), "table": name, **small})
    schema = source.schema()
    assert isinstance(schema, StructType)
    assert to_arrow_schema(schema, timezone="UTC").types == expected.schema.types
    reader = source.reader(schema)
    sent = pickle.dumps((reader, reader.partitions()))
    there, parts = pickle.loads(sent)
    batches = [batch for part in parts for batch in there.read(part)]
    assert len(parts) > 1 or name != "check"
    assert pa.Table.from_batches(batches, expected.schema).to_pylist() == expected.to_pylist()
