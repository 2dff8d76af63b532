"""The versions that most tests are run with, as their parameter: the newest alone, and others in `make test-long` or at
night."""

from __future__ import annotations

import pytest

from interop.rocketmq import NEWEST, TRIED

EACH = [
    pytest.param(version, marks=() if version == NEWEST else (pytest.mark.slow, pytest.mark.long)) for version in TRIED
]
EACH_AT_NIGHT = [pytest.param(version, marks=() if version == NEWEST else pytest.mark.nightly) for version in TRIED]
