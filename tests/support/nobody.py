"""A plugin for pytest: the tests that were collected run without root's rights (`-p support.nobody`).

It takes the rights away only then, as the code may be readable for its owner only.
"""

from __future__ import annotations

import codecs
import importlib
import os
import pkgutil

import pytest

import rmqstore_spark

NOBODY = 65534
AS_NOBODY = "RMQ_AS_NOBODY"  # set where the plugin is in use
READS_ALL = os.geteuid() == 0 and AS_NOBODY not in os.environ  # files that deny it are none for these tests


def pytest_collection_finish(session: pytest.Session) -> None:
    """Before the first test."""
    for module in pkgutil.walk_packages(rmqstore_spark.__path__, "rmqstore_spark."):
        if not module.name.startswith(("rmqstore_spark.spark", "rmqstore_spark.__main__")):
            importlib.import_module(module.name)
    codecs.lookup("utf-16-be")  # Python's own library is read as late as it can be, too
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
