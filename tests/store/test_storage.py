"""A URI of a remote store may hold no secret and no control character, and what it held is not shown."""

from __future__ import annotations

import re

import pytest

from rmqstore_spark.errors import OptionError
from rmqstore_spark.query.stream_options import parse_stream_options
from rmqstore_spark.store.io.remote.objects import connect
from rmqstore_spark.store.io.storage import STORAGE_OPTIONS, Storage, location, refuse_shown, taken_out
from rmqstore_spark.store.structures.layout import place_to_write

URI = "s3a://key:hunter2@bucket/store"


def test_a_secret_in_a_uri_is_refused_and_not_shown() -> None:
    for use in (location, place_to_write, lambda uri: parse_stream_options({"path": uri})):
        with pytest.raises(OptionError, match="credentials are given as options") as error:
            use(URI)
        assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\0", "\x1b", "\x7f"])
@pytest.mark.parametrize("option", sorted(STORAGE_OPTIONS))
def test_a_control_character_is_refused_and_the_value_not_shown(option: str, end: str) -> None:
    """As of a key read from a file with its line's end: Rust panics on it, which is no Exception."""
    with pytest.raises(OptionError) as refused:
        taken_out({f"secret.{option}": f"PRIVATE{end}"})
    text = str(refused.value)
    assert f"'secret.{option}'" in text
    assert "PRIVATE" not in text
    assert "\n" not in text


@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_ACCOUNT_KEY"])
def test_so_it_is_in_the_environment(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "PRIVATE\n")
    with pytest.raises(OptionError, match=f"environment variable {name}") as refused:
        connect(location("s3://bucket/a"), "s3://bucket", Storage({"aws_region": f"for {name}"}))
    assert "PRIVATE" not in str(refused.value)


def test_a_secret_whose_value_spark_would_show_is_refused() -> None:
    """Spark hides the values of options by their names."""
    shown = {"google_service_account_key", "azure_storage_account_key", "adls.account-key"}
    names = {name for option in STORAGE_OPTIONS.values() if option.is_secret for name in (option.name, *option.aliases)}
    refused = set()
    for name in sorted(names):
        refuse_shown({f"secret.{name}": "PRIVATE"})
        try:
            refuse_shown({name.upper(): "PRIVATE"})
        except OptionError:
            refused.add(name)
    assert shown <= refused
    assert refused == {name for name in names if not re.search("secret|password|token|access[.]?key|url", name)}
