"""Column multiDispatch: the light queues that a message is in, from its properties (store/format/light_queues.py).

In a batch only rows that name light queues are looked at.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore_spark.columns import COLUMNS
from rmqstore_spark.store.format.light_queues import DISPATCH, OFFSETS, light_queues

DISPATCH_COLUMN = "multiDispatch"
DISPATCH_NEEDS = ["topic", "sysFlag", "properties"]


def dispatched(batch: pa.RecordBatch) -> pa.Array:
    """The column for a batch that has those of DISPATCH_NEEDS."""
    names, offsets = (pc.map_lookup(batch.column("properties"), name, "last") for name in (DISPATCH, OFFSETS))
    found: list[dict[str, int] | None] = [None] * batch.num_rows
    for row in np.flatnonzero(pc.is_valid(names).to_numpy(zero_copy_only=False)).tolist():
        topic, flag = batch.column("topic")[row].as_py(), batch.column("sysFlag")[row].as_py()
        texts = {DISPATCH: names[row].as_py(), OFFSETS: offsets[row].as_py()}
        known = {name: text for name, text in texts.items() if text is not None}
        found[row] = light_queues(topic, flag, known) or None
    pairs = [None if each is None else list(each.items()) for each in found]
    return pa.array(pairs, COLUMNS[DISPATCH_COLUMN].arrow)
