"""Options as a Python program gives them, and the texts that stand for them in Spark.

The Kind of an option's type (option_types.py) says which values the option takes besides its text. The classes here say
the same to type checkers; a test compares the two. A value of another type is refused, because the text that `str()`
makes of it too often has another meaning (of `["a", "b"]`, of b"ab").
"""

import json
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Set
from datetime import date
from typing import Any, Literal, NamedTuple, TypedDict

import numpy as np

from rmqstore_spark.errors import OptionError, quoted
from rmqstore_spark.store.io.storage import storage_name

Path = str | os.PathLike[str]
Paths = Path | Iterable[Path]
Names = str | Iterable[str]
Flag = str | bool
Number = str | int
Time = str | int | date | np.datetime64
Queues = str | Mapping[str, Iterable[int]]
Bytes = str | bytes
Properties = str | Mapping[str, str]
Offsets = str | Mapping[str, Mapping[str, int] | Mapping[int, int]]
Texts = str | Iterable[str]
Starts = str | Mapping[str, Time | Mapping[str, Mapping[str, int] | Mapping[int, int]]]

HEX = "hex:"  # before the digits of bytes
_MOST = 10**40  # Python writes a number of thousands of digits only if told to


class StorageOptions(TypedDict, total=False):
    """Options that say how remote stores are reached (store/io/storage.py).

    Large because each service has its own names for keys, tokens and addresses.
    """

    aws_access_key_id: str
    aws_secret_access_key: str
    aws_session_token: str
    aws_region: str
    aws_endpoint_url: str
    aws_virtual_hosted_style_request: Flag
    aws_skip_signature: Flag
    aws_request_payer: Flag
    aws_role_arn: str
    aws_role_session_name: str
    aws_web_identity_token_file: Path
    google_service_account: Path
    google_service_account_key: str
    google_application_credentials: Path
    google_bearer_token: str
    google_base_url: str
    google_skip_signature: Flag
    azure_storage_account_key: str
    azure_storage_sas_token: str
    azure_storage_token: str
    azure_storage_tenant_id: str
    azure_storage_client_id: str
    azure_storage_client_secret: str
    azure_federated_token_file: Path
    azure_endpoint: str
    azure_skip_signature: Flag
    allow_http: Flag
    connect_timeout: str
    timeout: str
    proxy_url: str


class StoreOptions(StorageOptions, total=False):
    """Options that say where a store's files are, and how they are read. docs/options.md has the table of options."""

    storePathCommitLog: Paths
    mode: Literal["FAILFAST", "DROPMALFORMED", "PERMISSIVE"]
    verifyCrc: Flag
    trust: Literal["log", "queues"]
    dropCache: Flag
    maxTaskBytesPerSecond: Number


class SelectOptions(TypedDict, total=False):
    """Options that select rows. docs/options.md has the table of options.

    Large because there are as many ways to select rows, each with its option.
    """

    subscribe: Names
    subscribePattern: str
    assign: Queues
    tags: Names
    key: str
    msgId: str
    offsetMsgId: str
    bodyContains: Bytes
    property: Properties
    sql92: str
    startingTimestamp: Time
    endingTimestamp: Time
    startingOffsets: Offsets
    endingOffsets: Offsets


class TableOptions(StoreOptions, SelectOptions, total=False):
    """Options of a read of a table; each table takes some of them."""

    by: Names
    maxPartitionBytes: Number
    minPartitions: Number


class MessageOptions(TableOptions, total=False):
    """Options of a read of messages."""

    decompress: Flag
    explodeBatches: Flag
    asOriginal: Flag
    deduplicate: Flag
    compacted: Flag
    committed: Flag
    tiered: Path


class CopyOptions(MessageOptions, total=False):
    """Options of a copy."""

    messageIndexEnable: Flag
    groupOffset: Starts
    storeHost: str
    excludeTopic: Names
    excludeKey: Texts
    excludeMsgId: Texts
    excludeProperty: Texts


class RebuildOptions(TypedDict, total=False):
    """Options of a rebuild. docs/options.md has the table of options."""

    mappedFileSizeConsumeQueue: Number
    maxHashSlotNum: Number
    maxIndexNum: Number
    messageIndexEnable: Flag


class WriteOptions(RebuildOptions, total=False):
    """Options of a write. docs/options.md has the table of options.

    Large because each setting of a new store and of new messages is an option.
    """

    topic: str
    queues: Number
    mappedFileSizeCommitLog: Number
    storeHost: str
    bornHost: str
    decompress: Flag
    autoMessageVersionOnTopicLen: Flag
    configFrom: Path
    txnAppId: str
    txnVersion: Number


class Kind(NamedTuple):
    """A kind of value.

    Attributes:
        expected: the expected value in words, for errors.
        text: from a value to its text; raises TypeError or ValueError if the value is not of this kind.
        type: the type for type checkers.
    """

    expected: str
    text: Callable[[Any], str]
    type: object


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return str.__str__(value)  # of a subclass, such as an Enum's member: its value, not what its own __str__ says


def _path(value: Any) -> str:
    return _text(os.fspath(value))  # a path may be bytes


def _flag(value: Any) -> str:
    return str(bool(value)).lower() if isinstance(value, bool | np.bool_) else _text(value)


def _whole(value: Any) -> int:
    """A whole number of Python or numpy; True is not one."""
    if isinstance(value, bool):
        raise TypeError
    number = int(operator.index(value))
    if abs(number) > _MOST:
        raise ValueError
    return number


def _number(value: Any) -> str:
    return value if isinstance(value, str) else str(_whole(value))


def _time(value: Any) -> str:
    if isinstance(value, date):  # a datetime is a date, too
        return value.isoformat()
    if isinstance(value, np.datetime64):
        return str(value + np.timedelta64(0, "s"))  # in seconds: a datetime64 in whole years would read as a number
    return _number(value)


def _each(value: Any) -> list[Any]:
    """The items of a list, a set, an array or a generator."""
    if isinstance(value, str | bytes | bytearray | memoryview | Mapping):
        raise TypeError
    return list(value)


def _joined(separator: str, text: Callable[[Any], str] = _text, is_ordered: bool = False) -> Callable[[Any], str]:
    """A function that makes one text of a list. It refuses a name that is empty or has the separator in it, because
    the text would not give that name back."""

    def join(value: Any) -> str:
        if isinstance(value, str | os.PathLike):
            return text(value)
        if is_ordered and isinstance(value, Set):
            raise TypeError
        names = [text(name) for name in _each(value)]
        if not names or any(separator.strip() in name or not name.strip() for name in names):
            raise ValueError
        return separator.join(names)

    return join


def _bytes(value: Any) -> str:
    return f"{HEX}{bytes(value).hex()}" if isinstance(value, bytes | bytearray | memoryview) else _text(value)


def _properties(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    return json.dumps({_text(name): _text(content) for name, content in _mapping(value).items()})


def _queues(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    return json.dumps({_text(topic): sorted(map(_whole, _each(ids))) for topic, ids in _mapping(value).items()})


def _offsets(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    found: dict[str, dict[str, int]] = {}
    for topic, queues in _mapping(value).items():
        of_topic = [(_number(queue_id), _whole(offset)) for queue_id, offset in _mapping(queues).items()]
        found[_text(topic)] = dict(of_topic)
        if len(of_topic) > len(found[topic]):  # 0 and "0"
            raise ValueError
    return json.dumps(found)


def _starts(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    places = {
        _text(group): json.loads(_offsets(place)) if isinstance(place, Mapping) else _time(place)
        for group, place in _mapping(value).items()
    }
    return json.dumps(places)


def _texts(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    texts = [_text(text) for text in _each(value)]
    if not texts:
        raise ValueError
    return json.dumps(texts)


def _mapping(value: Any) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise TypeError
    return value


TEXT = Kind("a text", _text, str)
PATH = Kind("a path", _path, Path)
FLAG = Kind("True or False", _flag, Flag)
NUMBER = Kind("a whole number of 40 digits at most, or a text", _number, Number)
TIME = Kind("a text, a whole number of milliseconds, a date or a datetime", _time, Time)
NAMES = Kind("names, none of them empty or with a comma in it", _joined(","), Names)
COLUMNS = Kind("names in their order, none of them empty or with a comma in it", _joined(",", is_ordered=True), Names)
PATHS = Kind("paths, none of them empty or with a comma in it", _joined(",", _path, is_ordered=True), Paths)
TAGS = Kind("tags, none of them empty or with || in it; for all of them leave it out", _joined(" || "), Names)
BYTES = Kind("a text or bytes", _bytes, Bytes)
PROPERTIES = Kind('a mapping such as {"NAME": "VALUE"}', _properties, Properties)
QUEUES = Kind('a mapping such as {"topic": [0, 1]}', _queues, Queues)
OFFSETS = Kind('a mapping such as {"topic": {0: 17}}', _offsets, Offsets)
TEXTS = Kind("a text, or several in a list that is not empty", _texts, Texts)
STARTS = Kind('a mapping such as {"group": "earliest"}, or {"group": {"topic": {0: 17}}}', _starts, Starts)


_OF_STORAGE = {kind.type: kind for kind in (TEXT, PATH, FLAG)}


def storage_kind(option: str) -> Kind:
    """The kind of value that an option of remote stores takes, from the class above."""
    return _OF_STORAGE[StorageOptions.__annotations__.get(storage_name(option) or option, str)]


def text_of(name: str, value: object, kind: Kind) -> str:
    """The text of an option or of a call's argument.

    Args:
        name: the option's or argument's name, for the error.

    Raises:
        OptionError: the value is of another kind. The error does not show the value, which may be a secret.
    """
    try:
        return kind.text(value)
    except (TypeError, ValueError, OverflowError):
        found = type(value).__name__
        raise OptionError(f"{name}: expected {kind.expected}, found another value (of type {found})") from None


def refuse_no_text(text: str) -> None:
    """Refuse surrogates (halves of characters), which no message can have.

    Raises:
        ValueError: the text has some.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("text in UTF-8") from None


def required(name: str, value: object, kind: Kind = TEXT) -> str:
    """text_of() an argument that must not be empty.

    Raises:
        OptionError: the value is of another kind, or empty.
    """
    text = text_of(name, value, kind)
    try:
        if kind is not PATH:
            refuse_no_text(text)
        if not text:
            raise ValueError(f"{kind.expected} that is not empty")
    except ValueError as expected:
        raise OptionError(f"{name}: expected {expected}, found {quoted(text)}") from None
    return text


def path_options(path: object) -> dict[str, str]:
    """The option `path` or `paths` for a call's argument: a path, or a list of paths.

    Raises:
        OptionError: the argument is neither.
    """
    kind = PATH._replace(expected="a path, or a list of paths")
    if isinstance(path, str | os.PathLike):
        return {"path": text_of("path", path, kind)}
    try:
        paths = [] if isinstance(path, Set) else [_path(each) for each in _each(path)]
    except TypeError:
        paths = []
    if not paths:
        raise OptionError(f"path: expected {kind.expected}, found another value (of type {type(path).__name__})")
    return {"path": paths[0]} if len(paths) == 1 else {"paths": json.dumps(paths)}
