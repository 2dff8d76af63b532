"""The directory of the writer's own files in a store. A broker ignores names in a store that it does not know."""

import os

from rmqstore_spark.store.structures.written import WORKSHOP

STAGING = "staging-"  # begins the name of a directory of staged files, one for each job
ASIDE = "aside-"  # begins the name of a journal that did not fit, kept with its new files
GONE = "-gone"  # ends the name of a staging directory that is being deleted
PART = ".part"  # ends the name of a file that is being made
_TRANSACTIONS = "transactions.json"


def workshop(root: str) -> str:
    """The directory of the writer's own files in a store."""
    return os.path.join(root, WORKSHOP)


def write_ids_path(root: str) -> str:
    """The path of the applications' last versions, in a store or in the directory `new` of a change."""
    return os.path.join(workshop(root), _TRANSACTIONS)


def staging(root: str, job: str) -> str:
    """The directory in which the tasks of a job stage their units."""
    return os.path.join(workshop(root), STAGING + job)
