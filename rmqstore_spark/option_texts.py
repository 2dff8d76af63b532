"""Options as a Python program gives them, and the texts that they are in Spark."""

import json
import os
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Literal, TypedDict

from rmqstore_spark.store.storage import is_storage_option

Names = str | Iterable[str]
Time = str | int | date
Offsets = str | Mapping[str, Mapping[str, int] | Mapping[int, int]]

_TAGS = " || "  # between the tags of a subscription expression; other lists have commas


class StorageOptions(TypedDict, total=False):
    """Options that say how remote stores are reached (store/storage.py)."""

    aws_access_key_id: str
    aws_secret_access_key: str
    aws_session_token: str
    aws_region: str
    aws_endpoint_url: str
    aws_virtual_hosted_style_request: str | bool
    aws_skip_signature: str | bool
    aws_request_payer: str | bool
    aws_role_arn: str
    aws_role_session_name: str
    aws_web_identity_token_file: str
    google_service_account: str
    google_service_account_key: str
    google_application_credentials: str
    google_bearer_token: str
    google_base_url: str
    google_skip_signature: str | bool
    azure_storage_account_key: str
    azure_storage_sas_token: str
    azure_storage_token: str
    azure_storage_tenant_id: str
    azure_storage_client_id: str
    azure_storage_client_secret: str
    azure_federated_token_file: str
    azure_endpoint: str
    azure_skip_signature: str | bool
    allow_http: str | bool
    connect_timeout: str
    timeout: str
    proxy_url: str


class StoreOptions(StorageOptions, total=False):
    """Options that say where a store's files are, and how they are read. docs/options.md has the table of options."""

    storePathCommitLog: Names
    mode: Literal["FAILFAST", "DROPMALFORMED", "PERMISSIVE"]
    verifyCrc: bool
    trust: Literal["log", "queues"]
    dropCache: bool
    maxTaskBytesPerSecond: str | int


class SelectOptions(TypedDict, total=False):
    """Options that select rows. docs/options.md has the table of options."""

    subscribe: Names
    subscribePattern: str
    assign: str | Mapping[str, Iterable[int]]
    tags: Names
    key: str
    msgId: str
    offsetMsgId: str
    startingTimestamp: Time
    endingTimestamp: Time
    startingOffsets: Offsets
    endingOffsets: Offsets


class TableOptions(StoreOptions, SelectOptions, total=False):
    """Options of a read of a table: those that go with it."""

    maxPartitionBytes: str | int
    minPartitions: int


class MessageOptions(TableOptions, total=False):
    """Options of a read of messages."""

    decompress: bool
    deduplicate: bool


def of_stores(given: Mapping[str, object]) -> StoreOptions:
    """Those of the options that say where a store's files are, and how they are read."""
    names = {name.lower() for name in StoreOptions.__annotations__}
    return {  # type: ignore[return-value]
        name: value for name, value in given.items() if name.lower() in names or is_storage_option(name)
    }


def option_texts(given: Mapping[str, object]) -> dict[str, str]:
    """The texts that options are in Spark; what is None is not given.

    Lists are joined as the option wants it, objects become JSON, times ISO-8601.
    """
    return {name: _text(name, value) for name, value in given.items() if value is not None}


def _text(name: str, value: object) -> str:
    match value:
        case str():
            return value
        case bool():
            return str(value).lower()
        case os.PathLike():
            return str(os.fspath(value))
        case date():  # and datetime, which is one
            return value.isoformat()
        case Mapping():
            return json.dumps(value, default=sorted)  # sets of queueIds
        case Iterable():
            return (_TAGS if name.lower() == "tags" else ",").join(map(str, value))
    return str(value)
