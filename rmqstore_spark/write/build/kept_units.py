"""Units that go from one log to another: the fields that change in them."""

import numpy as np
import numpy.typing as npt

from native_io import FORMAT
from rmqstore_spark.store.format.by_queue import Integers

# Positions of fields in a unit (docs/format.md); the last two in a unit with two IPv4 addresses.
_AT_QUEUE_ID, _AT_QUEUE_OFFSET, _AT_STORE_HOST, _AT_PREPARED = 12, 20, 64, 76
_LONGER = 12  # additional bytes of an IPv6 address


def put_fields(
    units: memoryview,
    sizes: Integers,
    flags: Integers,
    *,
    queue_ids: Integers,
    queue_offsets: Integers,
    prepared: Integers,
) -> None:
    """Write the fields queueId, queueOffset and preparedTransactionOffset into units that stand back to back.

    Args:
        flags: the units' sysFlag, which tells how long the host addresses are.
    """
    starts = np.cumsum(sizes) - sizes
    data = np.frombuffer(units, np.uint8)
    hosts = ((flags & FORMAT[name]) != 0 for name in ("SYSFLAG_BORNHOST_V6", "SYSFLAG_STOREHOST_V6"))
    at_prepared = starts + _AT_PREPARED + _LONGER * sum(host.astype(np.int64) for host in hosts)
    for at, values, layout in (
        (starts + _AT_QUEUE_ID, queue_ids, ">i4"),
        (starts + _AT_QUEUE_OFFSET, queue_offsets, ">i8"),
        (at_prepared, prepared, ">i8"),
    ):
        width = np.dtype(layout).itemsize
        data[at[:, None] + np.arange(width)] = values.astype(layout).view(np.uint8).reshape(-1, width)


def have_longer_hosts(flags: Integers) -> npt.NDArray[np.bool_]:
    """True for units whose storeHost is an IPv6 address.

    Args:
        flags: the units' sysFlag.
    """
    return np.asarray((flags & FORMAT["SYSFLAG_STOREHOST_V6"]) != 0)


def put_store_host(units: memoryview, sizes: Integers, flags: Integers, host: bytes) -> None:
    """Write the field storeHost into units that stand back to back, all of which have one of this length.

    Args:
        flags: the units' sysFlag, which tells how long the bornHost before it is.
        host: the address and the port, as in a unit.
    """
    born = (flags & FORMAT["SYSFLAG_BORNHOST_V6"]) != 0
    at = np.cumsum(sizes) - sizes + _AT_STORE_HOST + _LONGER * born
    np.frombuffer(units, np.uint8)[at[:, None] + np.arange(len(host))] = np.frombuffer(host, np.uint8)
