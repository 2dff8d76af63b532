"""Messages of a store in Daft: python examples/daft_source.py sample_store Plain

Daft hands over the columns and the conditions of the query; they find messages before they are read.
"""

import contextlib
import sys
from collections.abc import AsyncIterator
from typing import Any

import daft
from daft.io.pushdowns import Pushdowns
from daft.io.source import DataSource, DataSourceTask
from daft.recordbatch import RecordBatch
from daft.schema import Schema

from rmqstore_spark import Store


class RmqStoreSource(DataSource):
    """A table of a store. Arguments are those of `Store.tasks`, without a filter."""

    def __init__(self, store: Store, **wanted: Any) -> None:
        self._store, self._wanted = store, wanted
        self._columns = store.dataset(**wanted).schema

    name = "rmqstore"

    @property
    def schema(self) -> Schema:
        return Schema.from_pyarrow_schema(self._columns)

    async def get_tasks(self, pushdowns: Pushdowns) -> AsyncIterator[DataSourceTask]:
        names = [field.name for field in self._columns]
        needed = {*(pushdowns.columns or names), *pushdowns.filter_required_column_names()}
        wanted = {**self._wanted, "columns": [name for name in names if name in needed]}  # Daft goes by their order
        with contextlib.suppress(AttributeError, NotImplementedError, ValueError):  # Daft applies all filters again
            wanted["filter"] = pushdowns.filters.to_arrow_expr()
        for task in self._store.tasks(**wanted):
            yield RmqStoreTask(task)


class RmqStoreTask(DataSourceTask):
    def __init__(self, task: Any) -> None:
        self._task = task  # can be pickled; secrets are in the environment of the machine that reads it

    @property
    def schema(self) -> Schema:
        return Schema.from_pyarrow_schema(self._task.schema)

    async def read(self) -> AsyncIterator[RecordBatch]:
        for batch in self._task.read():
            yield RecordBatch.from_arrow_record_batches([batch], self._task.schema)


if __name__ == "__main__":
    path, topic = sys.argv[1:]
    messages = RmqStoreSource(Store(path)).read().where(daft.col("topic") == topic)
    messages.groupby("queueId").agg(daft.col("body").count().alias("messages")).sort("queueId").show()
