"""A selection in the form that the kernel tests, before any message is decoded."""

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from native_io import Filter
from rmqstore_spark.query.selection import ALL, Numbers, Selection
from rmqstore_spark.query.sql92 import Sql92
from rmqstore_spark.store.format.bodies import BadBodyError, decompress, zstd_functions

_KEPT_ANSWERS = 1024
_TIMES = Numbers(-((1 << 63) // 1000), ((1 << 63) - 1) // 1000)  # milliseconds that fit an Arrow timestamp[us]


def kernel_filter(selection: Selection) -> Filter:
    """A filter that passes the selected messages and no others."""

    def judge(topic: bytes, queue_id: int) -> tuple[int, int] | None:
        offsets = selection.queue(topic.decode("utf-8", "replace"), queue_id)
        return None if offsets is None else (offsets.least, offsets.most)

    times = selection.store_timestamp
    if times != ALL:  # a time that does not fit the column is null there, and null is in no range
        times = times & _TIMES
    return Filter(
        store_timestamp=(times.least, times.most),
        commit_log_offset=(selection.commit_log_offset.least, selection.commit_log_offset.most),
        judge=None if selection.wants_all_queues else judge,
        conditions=list(_conditions(selection, times)),
        explodes=selection.explodes,
        body_judge=None if selection.body is None else functools.partial(_may_contain, selection.body),
        properties_judge=None if selection.sql92 is None else _judge(selection.sql92),
        zstd=zstd_functions() if selection.body is not None else (0, 0, 0),
    )


def _judge(asked: Sql92) -> Callable[[tuple[bytes | None, ...]], bool]:
    """Does an expression match a message, by the values of its properties? The last answers are kept, as many messages
    have the same values."""
    matches = asked.judge()

    @functools.lru_cache(_KEPT_ANSWERS)
    def judged(values: tuple[bytes | None, ...]) -> bool:
        return matches([None if value is None else value.decode(errors="replace") for value in values])

    return judged


def _may_contain(wanted: bytes, body: bytes, sys_flag: int) -> bool:
    """Does a compressed body contain some bytes? One that cannot be decompressed is selected, to be reported."""
    try:
        return wanted in decompress(body, sys_flag)
    except BadBodyError:
        return True


def _conditions(selection: Selection, times: Numbers) -> Iterator[Mapping[str, Collection[Any]]]:
    """The conditions that bounds and queues do not cover, the cheap ones first."""
    whole = {
        "queueOffset": selection.queue_offset.among,
        "commitLogOffset": selection.commit_log_offset.among,
        "storeTimestamp": times.among,
        "offsetMsgId": selection.offset_msg_id,
        "tags": selection.tags,
        "keys": selection.keys,
        "msgId": selection.msg_id,
    }
    yield from ({name: values} for name, values in whole.items() if values is not None)
    if selection.light is not None:
        yield {"lightQueue": {name: (offsets.least, offsets.most) for name, offsets in selection.light.items()}}
    for name, value in sorted(selection.properties):
        yield {"property": {name: value}}
    if selection.sql92 is not None:
        yield {"properties": selection.sql92.names}
    for message_id in selection.ids:
        # A broker's id is hex, in upper or lower case; a client's may be any text.
        yield {"offsetMsgId": [message_id.upper()], "msgId": [message_id]}
    for word in selection.words:
        yield {"word": [word], "msgId": [word]}
    if selection.body is not None:  # costs most
        yield {"body": [selection.body]}
