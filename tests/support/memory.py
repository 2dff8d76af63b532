"""A place in memory, for tests that make many stores and do not depend on a disk: to sync takes no time there, and a
quarter of the processor's goes into making and deleting files elsewhere."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_MEMORY = Path("/dev/shm")
# Bytes: more than a writer wants to see before it begins a segment of 1 GiB. A container may have 64 MiB.
_ENOUGH = 4 << 30


def place() -> Path | None:
    """A directory in memory; None where there is none, or none with room."""
    if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ENOUGH:
        return _MEMORY
    return None
