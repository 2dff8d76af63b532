"""The directory of the writer's own files in a store. A broker ignores names there that it does not know."""

import os

from rmqstore_spark.store.structures.written import WORKSHOP

STAGING = "staging-"  # what tasks have encoded, a directory for each job
ASIDE = "aside-"  # a journal that did not fit, with what was made for it
GONE = "-gone"  # at the end of the name of a staging directory that is being deleted
PART = ".part"  # at the end of the name of a file that is being made
_TRANSACTIONS = "transactions.json"


def workshop(root: str) -> str:
    """The directory of the writer's own files in a store."""
    return os.path.join(root, WORKSHOP)


def transactions_path(root: str) -> str:
    """Where a store has the versions of its applications' last writes, and where `new` has those of a change."""
    return os.path.join(workshop(root), _TRANSACTIONS)


def staging(root: str, job: str) -> str:
    """The directory in which the tasks of a job put what they encode."""
    return os.path.join(workshop(root), STAGING + job)
