"""The part of a selection that the kernel can test, before anything is decoded."""

from native_io import Filter
from rmqstore_spark.selection import ALL, Numbers, Selection

_TIMES = Numbers(-((1 << 63) // 1000), ((1 << 63) - 1) // 1000)  # milliseconds that fit an Arrow timestamp[us]


def kernel_filter(selection: Selection) -> Filter:
    """A filter that leaves out what the fixed fields and the topic of a unit rule out."""

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
    )
