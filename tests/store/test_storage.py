"""URIs of remote stores."""

from __future__ import annotations

import pytest

from rmqstore_spark.errors import OptionError
from rmqstore_spark.store.layout import place_to_write
from rmqstore_spark.store.storage import location
from rmqstore_spark.stream_options import parse_stream_options

URI = "s3a://key:hunter2@bucket/store"


def test_a_secret_in_a_uri_is_refused_and_not_shown() -> None:
    for use in (location, place_to_write, lambda uri: parse_stream_options({"path": uri})):
        with pytest.raises(OptionError, match="credentials are given as options") as error:
            use(URI)
        assert "hunter2" not in str(error.value)
