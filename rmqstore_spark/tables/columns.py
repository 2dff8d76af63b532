"""What columns of several tables have in common."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

TIMESTAMP = pa.timestamp("us", "UTC")
_MOST = ((1 << 63) - 1) // 1000


def timestamps(milliseconds: npt.NDArray[np.int64], is_known: Any = True) -> pa.Array:
    """Times as a column holds them; null where they do not fit, or are not known."""
    is_null = np.logical_not(is_known) | (milliseconds > _MOST) | (milliseconds < -_MOST)
    return pa.array(np.where(is_null, 0, milliseconds) * 1000, mask=is_null).cast(TIMESTAMP)
