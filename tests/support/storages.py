"""Tests that also read stores as if they were in object storage: the same rows have to come (support/remote.py)."""

from __future__ import annotations

from collections.abc import Container

import pytest


def parametrize(metafunc: pytest.Metafunc, modules: Container[str], but: Container[str] = ()) -> None:
    """Has the tests of these modules run once for each kind of storage; `but` are names of tests.

    In the quick suite it is the disk alone, and tests/store/test_remote_files.py is for the other.
    """
    if metafunc.module.__name__.rpartition(".")[2] in modules and metafunc.function.__name__ not in but:
        metafunc.fixturenames.append("storage")
        ways = ["disk", pytest.param("objects", marks=pytest.mark.slow)]
        metafunc.parametrize("storage", ways, indirect=True)
