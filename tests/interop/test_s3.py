"""A store on a real S3 server (versitygw), uploaded by a client of it, keeps the contract of support/contract.py.

`make interop` builds the server with Go, once; its binary stays in the user's cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from oracle import golden
from support.backends import Backend
from support.contract import assert_pinned, assert_same, assert_told

from interop import buckets
from interop.jars import Unavailable

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.long]


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """With the golden stores in it."""
    home = tmp_path_factory.mktemp("s3")
    try:
        buckets.PROGRAMS["s3"]()
    except Unavailable as why:
        pytest.skip(str(why))
    with buckets.s3(home) as running:
        for version in golden.VERSIONS:
            running.upload(golden.unpack(version, home / version), version)
        yield running


@pytest.mark.parametrize("version", golden.VERSIONS[:: len(golden.VERSIONS) - 1])
def test_a_store(bucket: Backend, version: str, tmp_path: Path) -> None:
    assert_same(bucket, version, golden.unpack(version, tmp_path / "store"))


def test_an_object_that_changes(bucket: Backend, tmp_path: Path) -> None:
    assert_pinned(bucket, golden.unpack(golden.VERSIONS[0], tmp_path / "store"))


def test_what_is_wrong(bucket: Backend) -> None:
    wrong = dict.fromkeys(("aws_access_key_id", "aws_secret_access_key"), "WRONGMARKER")
    assert_told(bucket, f"{bucket.uri}/{golden.VERSIONS[0]}", wrong)
