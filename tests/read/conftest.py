"""These tests also read stores as if they were in object storage: the same rows have to come (support/remote.py)."""

from __future__ import annotations

import pytest
from support import reading

# In the quick suite tests/store/test_remote_files.py does.
ALSO_AS_OBJECTS = {"test_follow", "test_golden", "test_damage", "test_read", "test_twins", "test_unqueued"}

TOO_LONG = {"test_flip_every_bit"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.function.__name__ in TOO_LONG:
        return
    if metafunc.module.__name__.rpartition(".")[2] in ALSO_AS_OBJECTS:
        metafunc.fixturenames.append("storage")
        ways = ["disk", pytest.param("objects", marks=pytest.mark.slow)]
        metafunc.parametrize("storage", ways, indirect=True)


@pytest.fixture
def storage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How stores are reached."""
    monkeypatch.setattr(reading, "STORAGE", request.param)
