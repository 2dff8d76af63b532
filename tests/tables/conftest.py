"""What of these tests is also for object storage."""

from __future__ import annotations

import pytest
from support import storages

ALSO_AS_OBJECTS = {"test_check", "test_consumequeue", "test_index", "test_log", "test_queues", "test_rocksdb_queues"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    storages.parametrize(metafunc, ALSO_AS_OBJECTS)
