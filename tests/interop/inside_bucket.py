"""What test_clouds.py runs where there is no network: a server of a kind, and what tests ask of it.

python -m interop.inside_bucket gs HOME
"""

from __future__ import annotations

import sys
from pathlib import Path

from oracle import golden
from support.contract import assert_pinned, assert_same, assert_told

from interop import buckets

VERSION = golden.VERSIONS[-1]
# Options with keys that are well-formed and wrong. fake-gcs-server checks none.
WRONG = {"abfss": {"azure_storage_account_key": "V1JPTkdNQVJLRVI="}, "gs": {}}


def main(kind: str, home: Path) -> None:
    root = golden.unpack(VERSION, home / "store")
    with buckets.SERVERS[kind](home) as bucket:
        uri = bucket.upload(root, VERSION)
        assert_same(bucket, VERSION, root)
        assert_pinned(bucket, root)
        assert_told(bucket, uri, WRONG[kind])
    print("done")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
