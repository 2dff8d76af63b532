"""Messages of a store in Ray Data: python examples/ray_data.py sample_store Plain

The filter finds messages before they are read, and only the columns that are named are decoded.
"""

import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import ray.data
from ray.data import Datasource, ReadTask
from ray.data.block import BlockMetadata

from rmqstore_spark import Store


class RmqStoreDatasource(Datasource):
    """A table of a store. Arguments are those of `Store.tasks`; `parallelism` is Ray's."""

    def __init__(self, store: Store, **wanted: Any) -> None:
        super().__init__()
        self._store, self._wanted = store, wanted

    def estimate_inmemory_data_size(self) -> int:
        return sum(task.size or 0 for task in self._store.tasks(**self._wanted))

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        is_cut = self._wanted.get("name", "messages") == "messages"  # other tables are small, and cut as they are
        number: dict[str, Any] = {"minPartitions": max(1, parallelism)} if is_cut else {}
        return [
            ReadTask(
                lambda task=task: tables(task),  # runs on any machine; secrets are in its environment
                BlockMetadata(num_rows=None, size_bytes=task.size, exec_stats=None, input_files=None),
                schema=task.schema,
                per_task_row_limit=per_task_row_limit,
            )
            for task in self._store.tasks(**number, **self._wanted)
        ]


def tables(task: Any) -> Iterator[pa.Table]:
    """The rows of a task, as Ray's blocks."""
    for batch in task.read():
        yield pa.Table.from_batches([batch])


if __name__ == "__main__":
    path, topic = sys.argv[1:]
    of_topic = pc.field("topic") == topic
    source = RmqStoreDatasource(Store(path), columns=["queueId", "body"], filter=of_topic)
    ray.data.read_datasource(source).groupby("queueId", num_partitions=1).count().sort("queueId").show()
