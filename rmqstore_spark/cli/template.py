"""Messages by a template: `--template '%k %t %s\\n'`, as kcat has it."""

import re
from collections.abc import Callable, Iterator
from typing import IO, Any

import pyarrow as pa

from rmqstore_spark.errors import OptionError, one_line

Batches = Iterator[pa.RecordBatch]

_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "0": b"\0"}
_WORD = re.compile(r"%(?P<name>.)|\\(?P<escape>.)|(?P<plain>[^%\\]+)", re.DOTALL)


def _properties(row: dict[str, Any]) -> bytes:
    return ",".join(f"{name}={value}" for name, value in row["properties"] or ()).encode(errors="surrogatepass")


def _text(name: str) -> Callable[[dict[str, Any]], bytes]:
    return lambda row: b"" if row[name] is None else str(row[name]).encode(errors="surrogatepass")


# By the letter after %: the columns that it needs, and what it becomes.
_FIELDS: dict[str, tuple[str, Callable[[dict[str, Any]], bytes]]] = {
    "t": ("topic", _text("topic")),
    "p": ("queueId", _text("queueId")),
    "o": ("queueOffset", _text("queueOffset")),
    "k": ("keys", _text("keys")),
    "K": ("keys", lambda row: b"%d" % (-1 if row["keys"] is None else len(str(row["keys"]).encode()))),
    "s": ("body", lambda row: row["body"] or b""),
    "S": ("body", lambda row: b"%d" % len(row["body"] or b"")),
    "T": ("storeTimestamp", lambda row: b"%d" % (row["storeTimestamp"] // 1000)),
    "g": ("tags", _text("tags")),
    "i": ("msgId", _text("msgId")),
    "h": ("properties", _properties),
}
MEANINGS = (
    "%t topic, %p queueId, %o queueOffset, %k keys, %K their length, %s body, %S its length, %T store time in ms, "
    r"%g tags, %i msgId, %h properties, %% a %, and \n \r \t \0 \\"
)


class Template:
    """A parsed template.

    Args:
        text: as of `--template`.

    Attributes:
        columns: the columns of messages that it needs.

    Raises:
        OptionError: a % or a backslash is followed by something unknown.
    """

    def __init__(self, text: str) -> None:
        self.columns: list[str] = []
        self._parts: list[Callable[[dict[str, Any]], bytes]] = []
        at = 0
        for match in _WORD.finditer(text):
            self._parts.append(self._part(text, match))
            at = match.end()
        if at < len(text):
            raise OptionError(f"--template: nothing follows the last {text[-1]!r}; the fields are {MEANINGS}")

    def _part(self, text: str, match: re.Match[str]) -> Callable[[dict[str, Any]], bytes]:
        if (plain := match["plain"]) is not None:
            return lambda row: plain.encode(errors="surrogateescape")
        if match["name"] == "%":
            return lambda row: b"%"
        known = _ESCAPES.get(match["escape"]) if match["escape"] else None
        if known is not None:
            return lambda row: known
        if match["name"] not in _FIELDS:
            raise OptionError(f"--template: {one_line(match[0])!r} means nothing; the fields are {MEANINGS}")
        column, part = _FIELDS[match["name"]]
        if column not in self.columns:
            self.columns.append(column)
        return part

    def write(self, batches: Batches, sink: IO[bytes], is_terminal: bool) -> int:
        """Write what the template makes of each row, with nothing between.

        Args:
            is_terminal: whether to escape characters that move a cursor, but for the template's own.

        Returns:
            The number of rows.
        """
        count = 0
        for batch in batches:
            count += batch.num_rows
            for row in self._rows(batch):
                sink.write(b"".join(_safe(part(row)) if is_terminal else part(row) for part in self._parts))
            sink.flush()
        return count

    @staticmethod
    def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        columns = [
            column.cast(pa.int64()).to_pylist() if pa.types.is_timestamp(column.type) else column.to_pylist()
            for column in batch.columns
        ]
        for values in zip(*columns, strict=True):
            yield dict(zip(batch.schema.names, values, strict=True))


def _safe(data: bytes) -> bytes:
    """Bytes that may go to a terminal; line feeds and tabs stay."""
    if data in (b"\n", b"\r", b"\t"):
        return data
    return "\n".join(one_line(line) for line in data.decode(errors="backslashreplace").split("\n")).encode()
