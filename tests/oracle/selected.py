"""What a Selection says of a row of the full scan, as far as it names values: one test after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def has_wanted_values(selection: Any, row: Mapping[str, Any]) -> bool:
    """Has a row, as reference.decode_unit gives it, one of the values that are wanted of each column, and the names?"""
    time = row["storeTimestamp"]
    values = [
        (selection.queue_offset.among, row["queueOffset"]),
        (selection.commit_log_offset.among, row["commitLogOffset"]),
        (selection.store_timestamp.among, None if time is None or time % 1000 else time // 1000),
        (selection.tags, row["tags"]),
        (selection.keys, row["keys"]),
        (selection.msg_id, row["msgId"]),
        (selection.offset_msg_id, row["offsetMsgId"]),
    ]
    words = (row["keys"] or "").split(" ")
    return (
        all(wanted is None or value in wanted for wanted, value in values)
        and all((word and word in words) or word == row["msgId"] for word in selection.words)
        and all(name == row["msgId"] or name.upper() == row["offsetMsgId"] for name in selection.ids)
    )
