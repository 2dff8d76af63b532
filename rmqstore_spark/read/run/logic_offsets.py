"""Columns logicQueueId and logicOffset: how consumers count the messages of static topics
(store/structures/static_topics.py)."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from rmqstore_spark.store.structures.static_topics import LogicPart

LOGIC_COLUMNS = frozenset({"logicQueueId", "logicOffset"})
LOGIC_NEEDS = ["topic", "queueId", "queueOffset"]


def logic_columns(batch: pa.RecordBatch, parts: Sequence[LogicPart]) -> dict[str, pa.Array]:
    """The columns for a batch that has those of LOGIC_NEEDS, given the parts that the store's broker knows."""
    topics = {part.topic for part in parts if part.is_here}
    queue_ids: list[int | None] = [None] * batch.num_rows
    offsets: list[int | None] = [None] * batch.num_rows
    encoded = batch.column("topic").dictionary_encode()
    are_static = np.array([topic in topics for topic in encoded.dictionary.to_pylist()], np.bool_)
    if are_static.any():
        for row in np.flatnonzero(are_static[encoded.indices.to_numpy()]).tolist():
            topic, queue_id, queue_offset = (batch.column(name)[row].as_py() for name in LOGIC_NEEDS)
            for part in parts:
                if part.is_here and (part.topic, part.queue_id) == (topic, queue_id):
                    found = part.logic(queue_offset)
                    if found is not None:
                        queue_ids[row], offsets[row] = part.logic_queue_id, found
    return {"logicQueueId": pa.array(queue_ids, pa.int32()), "logicOffset": pa.array(offsets, pa.int64())}
