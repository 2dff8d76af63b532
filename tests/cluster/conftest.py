"""A cluster of machines, each with a disk of its own. Where that is not to be had, tests are skipped and say so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.machines import Machines, machines_in


@pytest.fixture(scope="session")
def machines(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Iterator[Machines]:
    """With the wheel. All modules have the same ones: each has a directory of its own on their disks."""
    with machines_in(tmp_path_factory.mktemp("cluster"), wheel) as found:
        yield found


@pytest.fixture(scope="module")
def quick_machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """With what a wheel has: it takes a while to make one."""
    with machines_in(tmp_path_factory.mktemp("cluster"), None) as found:
        yield found
