"""The memory that this process has had at most; and a place in memory, for tests that make many stores and do not
depend on a disk: to sync takes no time there, and a quarter of the processor's goes into making and deleting files
elsewhere."""

from __future__ import annotations

import os
import resource
import shutil
from pathlib import Path

_MEMORY = Path("/dev/shm")
# Bytes: more than a writer wants to see before it begins a segment of 1 GiB. A container may have 64 MiB.
_ENOUGH = 4 << 30


def peak() -> int:
    """The most bytes that this process has had until now. A worker has run other tests before."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def place() -> Path | None:
    """A directory in memory; None where there is none, or none with room."""
    if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ENOUGH:
        return _MEMORY
    return None
