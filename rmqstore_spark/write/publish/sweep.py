"""The remains of killed writes, except a change that is half done (change.py)."""

import contextlib
import os
import time

from rmqstore_spark.write.build.staging import is_left
from rmqstore_spark.write.fs.calls import RaceError
from rmqstore_spark.write.fs.disk import PROBE, Tree
from rmqstore_spark.write.fs.workshop import ASIDE, GONE, PART, STAGING, workshop
from rmqstore_spark.write.publish.replacement import sweep_beside

_ABANDONED_SECONDS = 7 * 24 * 3600


def sweep(tree: Tree) -> None:
    """Throw the remains away: beside the store, and in the workshop. Whether a Spark job was killed cannot be known, so
    its files are thrown away when they are old. The store's lock is held."""
    sweep_beside(tree)
    top = workshop(tree.path)
    for name in tree.names(top) if tree.find(top) is not None else []:
        with contextlib.suppress(RaceError):  # its own process may be ending the job, or still be making its directory
            if _is_left(tree, name):
                tree.remove_tree(os.path.join(top, name))


def _is_left(tree: Tree, name: str) -> bool:
    """Is a name in the workshop no longer needed by anybody?"""
    if name.startswith(PROBE) or name.endswith(PART):
        return True
    if not name.startswith((STAGING, ASIDE)):
        return False
    path = os.path.join(workshop(tree.path), name)
    if name.startswith(STAGING) and (name.endswith(GONE) or is_left(tree, path)):
        return True
    found = tree.find(path)
    return found is not None and time.time() - found.st_mtime > _ABANDONED_SECONDS
