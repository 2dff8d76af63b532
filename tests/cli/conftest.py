"""The store that most commands are tried on."""

from __future__ import annotations

from pathlib import Path

import pytest
from oracle import stores


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cli") / "store"
    builder = stores.StoreBuilder(root, index=True)
    for number in range(300):
        topic = f"Orders{number % 3}"
        builder.append(topic=topic, queue_id=number % 2, keys=f"order-{number}", tags="a", body=b'{"n": %d}' % number)
    builder.append(topic="Binary", queue_id=0, body=b"\xff\x00\xfe", keys="binary", reconsume_times=3)
    builder.append(topic="Evil\x1b[31m\u202e", queue_id=0, body=b"\x1b]0;title\x07", keys="evil \x9b2J")
    builder.close()
    return root
