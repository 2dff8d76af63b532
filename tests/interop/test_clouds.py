"""A store on a server that answers as Google's storage or Azure's does keeps the contract of support/contract.py.

Clients of these ask a machine's own identity where no key is given, so all of it runs where there is no network.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support import alone
from support.patience import HANG

from interop import buckets
from interop.jars import Unavailable

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.long]


@pytest.mark.parametrize("kind", ["gs", "abfss"])
def test_a_store(kind: str, tmp_path: Path) -> None:
    try:
        buckets.PROGRAMS[kind]()
    except Unavailable as why:
        pytest.skip(str(why))
    assert alone.run("-m", "interop.inside_bucket", kind, tmp_path, seconds=HANG) == "done\n"
