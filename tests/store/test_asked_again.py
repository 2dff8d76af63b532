"""Which answers of a server are worth another try; found by `make mutants`, which turned the question round."""

from __future__ import annotations

import pytest

from rmqstore_spark.store.io.remote.objects import _may_pass


@pytest.mark.parametrize(
    ("said", "is_asked_again"),
    [
        *((f"Server returned non-2xx status code: {status}", True) for status in (408, 425, 429, 500, 502, 503, 599)),
        *((f"Server returned non-2xx status code: {status}", False) for status in (400, 401, 403, 404, 412, 416, 499)),
        ("connection closed before message completed", True),
        ("no Credentials were found", False),
    ],
)
def test_another_try(said: str, is_asked_again: bool) -> None:
    assert _may_pass(OSError(said)) == is_asked_again
