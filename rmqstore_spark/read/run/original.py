"""Messages as their producer sent them: columns in which a row differs from what is stored."""

import functools
import itertools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore_spark.columns import MAP
from rmqstore_spark.read.run.origins import Origins
from rmqstore_spark.store.format.message import TRANSACTION_TYPE
from rmqstore_spark.store.format.sent_properties import ADDED_PROPERTIES, SET_BY_RETRIES

# What a message has at its place in a topic of the broker's, which is not the place that it was sent to.
_OF_THE_PLACE = ("queueOffset", "storeTimestamp", "storeHost")
_NEVER_SENT = ("reconsumeTimes", "preparedTransactionOffset")
ORIGINAL_COLUMNS = frozenset({"topic", "queueId", "properties", "sysFlag", *_OF_THE_PLACE, *_NEVER_SENT})


def as_sent(batch: pa.RecordBatch, origins: Origins) -> dict[str, pa.Array]:
    """Those columns of ORIGINAL_COLUMNS that a batch has, as the producers sent them.

    Where the application's topic is not known, the topic stays as stored.

    Args:
        origins: those of the batch.
    """
    sent = {"topic": origins.column("realTopic"), "queueId": origins.column("realQueueId")}
    names = batch.schema.names
    if "properties" in names:
        sent["properties"] = _without_added(batch.column("properties"), pc.is_valid(origins.column("consumerGroup")))
    if "sysFlag" in names:
        sent["sysFlag"] = pc.bit_wise_and(batch.column("sysFlag"), pa.scalar(~TRANSACTION_TYPE, pa.int32()))
    for name in _OF_THE_PLACE:
        if name in names:
            column = batch.column(name)
            sent[name] = pc.if_else(origins.is_moved, pa.scalar(None, column.type), column)
    for name in _NEVER_SENT:
        if name in names:
            sent[name] = pa.repeat(pa.scalar(0, batch.column(name).type), batch.num_rows)
    return sent


def _without_added(properties: pa.MapArray, is_retried: pa.Array) -> pa.MapArray:
    """Properties without those that were added to them.

    Args:
        is_retried: of each row, whether the message was retried, or is dead.
    """
    offsets = properties.offsets.to_numpy()
    first, stop = int(offsets[0]), int(offsets[-1])
    keys, items = (side.slice(first, stop - first) for side in (properties.keys, properties.items))
    of_brokers, of_retries = _names()
    added = pc.is_in(keys, value_set=of_brokers).to_numpy(zero_copy_only=False)
    retried = np.repeat(is_retried.to_numpy(zero_copy_only=False), np.diff(offsets))
    added |= retried & pc.is_in(keys, value_set=of_retries).to_numpy(zero_copy_only=False)
    kept = np.concatenate(([0], np.cumsum(~added)))[offsets - first]
    mask = pa.array(~added)
    return pa.MapArray.from_arrays(pa.array(kept, pa.int32()), keys.filter(mask), items.filter(mask)).cast(MAP)


@functools.cache
def _names() -> tuple[pa.Array, pa.Array]:
    """The properties that brokers add, and those that they add to retried messages. Made when they are needed, as
    pa.array() loads pandas."""
    added = itertools.chain.from_iterable(ADDED_PROPERTIES.values())
    return pa.array([*added], pa.string()), pa.array(SET_BY_RETRIES, pa.string())
