"""What of these tests is also for object storage."""

from __future__ import annotations

import pytest
from support import storages

ALSO_AS_OBJECTS = {
    "test_compacted",
    "test_follow",
    "test_golden",
    "test_damage",
    "test_read",
    "test_tiered",
    "test_related",
    "test_unordered_times",
    "test_unqueued",
}
TOO_LONG = {"test_flip_every_bit", "test_cut_at_every_byte"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    storages.parametrize(metafunc, ALSO_AS_OBJECTS, TOO_LONG)
