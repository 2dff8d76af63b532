"""Types of options: how a text is parsed, which values a Python program may give, and what `--help` shows.

The parse functions raise a ValueError that says what was expected. Those of options that select rows are in
option_values.py; option_texts.py turns a Python program's values into texts.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from rmqstore_spark.query import option_texts as python
from rmqstore_spark.query.copy_values import parse_group_offsets, parse_pairs, parse_texts
from rmqstore_spark.query.instants import parse_instant
from rmqstore_spark.query.option_texts import Kind
from rmqstore_spark.query.option_values import (
    parse_assign,
    parse_body,
    parse_by,
    parse_ending_offsets,
    parse_offset_msg_id,
    parse_pattern,
    parse_properties,
    parse_starting_offsets,
    parse_stream_start,
    parse_tags,
    parse_topics,
    parse_word,
    refuse_list,
)
from rmqstore_spark.query.sql92 import Sql92
from rmqstore_spark.store.format.message import host_bytes
from rmqstore_spark.store.format.queue_block import UNIT_SIZE as QUEUE_UNIT_SIZE

Mode = Literal["FAILFAST", "DROPMALFORMED", "PERMISSIVE"]
Pushdown = Literal["auto", "on", "off"]
Trust = Literal["log", "queues"]
_LAST_PORT = (1 << 16) - 1


@dataclass(frozen=True)
class Type:
    """The type of an option's value.

    Attributes:
        parse: from the text to the value.
        python: the kinds of values that a Python program may give.
        metavar: the placeholder in `rmqstore --help`; none for an option that is only true or false.
        words: all possible texts, where there are only a few.
        is_path: whether the value names files. Such a value may be bytes that are not text; opening the file reports
            what is wrong with it.
    """

    parse: Callable[[str], Any]
    python: Kind = python.TEXT
    metavar: str | None = "TEXT"
    words: tuple[str, ...] = ()
    is_path: bool = False

    @property
    def annotation(self) -> object:
        """The type, for type checkers, of the values that a Python program may give."""
        return Literal[self.words] if self.words else self.python.type


_SIZE = re.compile(r"([0-9]{1,40})\s*(b|k|kb|m|mb|g|gb|t|tb|)", re.IGNORECASE)
_WHOLE = re.compile(r"[0-9]{1,40}")
_UNITS = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    size = int(match[1]) << _UNITS[match[2].lower()[:1].replace("b", "")] if match else 0
    if size < 1:
        raise ValueError("a number of bytes such as 67108864, 64m or 1g")
    return size


def _partition_size(text: str) -> int | None:
    try:
        return None if text.strip().lower() == "auto" else _size(text)
    except ValueError as why:
        raise ValueError(f"{why}, or auto") from None


def _whole(text: str) -> int:
    """A whole number; -1 if the text is not one, or has more digits than any valid value."""
    return int(text) if _WHOLE.fullmatch(text.strip()) else -1


def _count(text: str) -> int:
    if _whole(text) < 1:
        raise ValueError("a whole number of at least 1")
    return _whole(text)


def _version(text: str) -> int:
    if not 0 <= _whole(text) < 1 << 63:
        raise ValueError("a whole number of at least 0")
    return _whole(text)


def _items(text: str) -> int:
    if _count(text) < 2:
        raise ValueError("a whole number of at least 2: the first entry is never used")
    return _count(text)


def _queue_size(text: str) -> int:
    return -(-_size(text) // QUEUE_UNIT_SIZE) * QUEUE_UNIT_SIZE  # a broker rounds up as well


def _text(text: str) -> str:
    if not text:
        raise ValueError("a name")
    return text


def _host(text: str) -> bytes:
    host = host_bytes(text)
    if host is None or not 0 <= int(text.rpartition(":")[2]) <= _LAST_PORT:  # a message may have any number
        raise ValueError("ip:port or [ipv6]:port")
    return host


def _names(text: str) -> list[str]:
    refuse_list(text, "comma-separated names")
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ValueError("comma-separated names")
    return names


def _paths(text: str) -> list[str]:
    try:
        paths = json.loads(text)
    except ValueError:
        paths = None
    if not isinstance(paths, list) or not paths or not all(isinstance(path, str) for path in paths):
        raise ValueError('a JSON list of paths such as ["/data/a", "/data/b"]')
    if "" in paths:
        raise ValueError("paths that are not empty")
    return paths


def _path(text: str) -> list[str]:
    if not text:
        raise ValueError("a directory")
    return [text]


def within(type: Type, most: int) -> Type:
    """The type with an upper limit, because a broker keeps the value in an int."""

    def parse(text: str) -> Any:
        value = type.parse(text)
        if value > most:
            raise ValueError(f"{most} at most, as no broker takes more")
        return value

    return replace(type, parse=parse)


def one_of(words: object) -> Type:
    """The type of an option that takes one of the words of a Literal, in any case."""
    known: tuple[str, ...] = get_args(words)

    def parse(text: str) -> str:
        for word in known:
            if text.lower() == word.lower():
                return word
        raise ValueError(" or ".join(known))

    return Type(parse, metavar=f"[{'|'.join(known)}]", words=known)


FLAG = Type(_boolean, python.FLAG, metavar=None)
NAME = Type(_text)
COUNT = Type(_count, python.NUMBER, "NUMBER")
VERSION = Type(_version, python.NUMBER, "NUMBER")
ITEMS = Type(_items, python.NUMBER, "NUMBER")
SIZE = Type(_size, python.NUMBER, "SIZE")
QUEUE_SIZE = Type(_queue_size, python.NUMBER, "SIZE")
PARTITION_SIZE = Type(_partition_size, python.NUMBER, "SIZE")
HOST = Type(_host, metavar="HOST:PORT")
DIRECTORY = Type(_path, python.PATH, "PATH", is_path=True)
DIRECTORIES = Type(_paths, metavar="JSON", is_path=True)
COMMITLOGS = Type(_names, python.PATHS, "PATHS", is_path=True)
OTHER_STORE = Type(_text, python.PATH, "PATH", is_path=True)
BODY = Type(parse_body, python.BYTES, "TEXT")
PROPERTIES = Type(parse_properties, python.PROPERTIES, "NAME=VALUE")
SQL92 = Type(Sql92, metavar="EXPRESSION")
BY = Type(parse_by, python.COLUMNS, "NAMES")
COLUMNS = Type(_names, python.COLUMNS, "NAMES")
TOPICS = Type(parse_topics, python.NAMES, "TOPICS")
PATTERN = Type(parse_pattern, metavar="REGEX")
QUEUES = Type(parse_assign, python.QUEUES, "JSON")
TAGS = Type(parse_tags, python.TAGS, "TAGS")
WORD = Type(parse_word)
OFFSET_ID = Type(parse_offset_msg_id, metavar="ID")
INSTANT = Type(parse_instant, python.TIME, "TIME")
STARTS = Type(parse_starting_offsets, python.OFFSETS, "OFFSETS")
ENDS = Type(parse_ending_offsets, python.OFFSETS, "OFFSETS")
GROUP_STARTS = Type(parse_group_offsets, python.STARTS, "GROUP=PLACE")
TEXTS = Type(parse_texts, python.TEXTS)
PAIRS = Type(parse_pairs, python.TEXTS, "NAME=VALUE")
STREAM_START = Type(parse_stream_start, python.OFFSETS, "OFFSETS")
