"""The versions that most tests are run with, as their parameter: `make test` takes the newest alone."""

from __future__ import annotations

import pytest

from interop.rocketmq import NEWEST, TRIED

EACH = [
    pytest.param(version, marks=() if version == NEWEST else (pytest.mark.slow, pytest.mark.long)) for version in TRIED
]
