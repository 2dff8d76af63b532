"""Rows from a file or a pipe, to be written to a store: JSON lines, CSV, Parquet or Arrow, as `--format` writes them.

Rows of texts (JSON, CSV) get the types of messages' columns here; a field that is not there is null. Parquet and Arrow
have types, which the write checks.
"""

import base64
import binascii
import codecs
import contextlib
import csv
import io
import itertools
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rmqstore_spark.cli.base64_columns import BASE64
from rmqstore_spark.cli.formats import FORMATS, Format
from rmqstore_spark.columns import BYTES, COLUMNS, INT, MAP, TIME, as_schema
from rmqstore_spark.errors import BadRowError, OptionError, quoted
from rmqstore_spark.query.instants import parse_instant
from rmqstore_spark.query.options import check_columns

Batches = Iterator[pa.RecordBatch]
Row = Mapping[str, Any]

STDIN = "-"
_ROWS = 4096  # in a batch of texts, at most
_CHARACTERS = 4 * 1024 * 1024  # of lines in a batch, about
_MOST_CHARACTERS = 256 * 1024 * 1024  # in a line, or a field
_BODY64 = "body" + BASE64
_KNOWN = [*COLUMNS, _BODY64]
_WRITTEN = as_schema(column for column in COLUMNS.values() if not column.derived or column.name == "queueOffset")
_OUR_TIME = re.compile(r"([+-]?[0-9]{4,6}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,6}))?Z")
# What Arrow raises for a file that does not keep to its format: a name may be no UTF-8, a length beyond all memory.
_BROKEN = (pa.ArrowException, OSError, UnicodeDecodeError, MemoryError)
_BOUNDS = {32: 1 << 31, 64: 1 << 63}


@contextlib.contextmanager
def incoming_rows(path: str, kind: Format | None) -> Iterator[Batches]:
    """The rows of a file, in at least one batch; `-` is standard input.

    Args:
        kind: one of FORMATS; None: what the file's name says, or else its first bytes.

    Raises:
        OptionError: there is no such file, it is not of this format, or has a column that messages do not have.
        BadRowError: by the batches: a row does not fit, with the number of its line.
    """
    name = "standard input" if path == STDIN else path
    with contextlib.ExitStack() as opened:
        try:
            file = sys.stdin.buffer if path == STDIN else opened.enter_context(open(path, "rb"))
        except OSError as why:
            raise OptionError(f"{name}: expected a file with rows, found none: {why.strerror}") from None
        source = file if isinstance(file, io.BufferedReader) else io.BufferedReader(cast(io.RawIOBase, file))
        known = kind or FORMATS.get(path.rpartition(".")[2].lower()) or _kind_of(source.peek(6))
        try:
            schema, batches = _READERS[known](source, name, opened)
        except _BROKEN as why:
            if isinstance(why, OSError) and why.errno:  # which Arrow's own have not
                raise
            raise OptionError(f"{name}: expected {known}, found something else: {_line(why)}") from None
        yield _with_clear_errors(schema, batches, name)


def _kind_of(head: bytes) -> Format:
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return "arrow"
    return "json" if head.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{") or not head else "csv"


def _with_clear_errors(schema: pa.Schema, batches: Batches, name: str) -> Batches:
    try:
        yield pa.RecordBatch.from_pylist([], schema)
        for batch in batches:
            batch.validate(full=True)  # Arrow takes what a file says of its own layout, and texts, as they come
            yield batch
    except _BROKEN as why:
        raise BadRowError(f"{name}: it cannot be read to its end, and nothing was written: {_line(why)}") from None


def _line(why: Exception) -> str:
    return str(why).partition("\n")[0][:200] or type(why).__name__


def _parquet(file: IO[bytes], name: str, opened: contextlib.ExitStack) -> tuple[pa.Schema, Batches]:
    """Parquet is read from its end: what comes through a pipe goes to a temporary file first."""
    if not file.seekable():
        kept = tempfile.TemporaryFile()  # noqa: SIM115
        opened.callback(kept.close)
        for some in iter(lambda: file.read(1 << 20), b""):
            kept.write(some)
        kept.seek(0)
        file = kept
    reader = pq.ParquetFile(file)
    return _with_bytes(reader.schema_arrow, reader.iter_batches(), name)


def _arrow(file: io.BufferedReader, name: str, opened: contextlib.ExitStack) -> tuple[pa.Schema, Batches]:
    if file.peek(6).startswith(b"ARROW1") and file.seekable():
        reader = pa.ipc.open_file(file)
        return _with_bytes(
            reader.schema, (reader.get_batch(number) for number in range(reader.num_record_batches)), name
        )
    if file.peek(6).startswith(b"ARROW1"):
        file.read(8)  # the form for files is the stream after eight bytes
    stream = pa.ipc.open_stream(file)
    return _with_bytes(stream.schema, iter(stream), name)


def _with_bytes(schema: pa.Schema, batches: Batches, name: str) -> tuple[pa.Schema, Batches]:
    """Columns in base64 as the bytes that they stand for."""
    _check(schema.names, name)
    if _BODY64 not in schema.names:
        return schema, batches
    at = schema.get_field_index(_BODY64)
    if "body" in schema.names or not pa.types.is_string(schema.types[at]):
        raise OptionError(f"{name}: column {_BODY64!r}: expected texts, and no column 'body' beside it")
    decoded = schema.set(at, pa.field("body", BYTES))
    return decoded, (_decoded(batch, at, decoded, name) for batch in batches)


def _decoded(batch: pa.RecordBatch, at: int, schema: pa.Schema, name: str) -> pa.RecordBatch:
    texts = batch.column(at).to_pylist()
    bodies = [None if text is None else _from_base64(text, f"{name}: a row") for text in texts]
    columns = [pa.array(bodies, BYTES) if i == at else column for i, column in enumerate(batch.columns)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _check(names: Iterable[str], where: str) -> None:
    try:
        check_columns(list(names), _KNOWN)
    except OptionError as why:
        raise OptionError(f"{where}: {why}") from None


def _json(file: IO[bytes], name: str, opened: contextlib.ExitStack) -> tuple[pa.Schema, Batches]:
    return _WRITTEN, _batches(_json_rows(file, name), name)


def _json_rows(file: IO[bytes], name: str) -> Iterator[tuple[int, int, Row]]:
    """The number of each line, its length, and its row."""
    known: set[str] = set()
    for number in itertools.count(1):
        line = file.readline(_MOST_CHARACTERS)
        if not line:
            return
        where = f"{name}: line {number}"
        if line.isspace():
            continue
        try:
            row = _JSON.decode(line.removeprefix(codecs.BOM_UTF8).decode(errors="surrogatepass"))
        except (ValueError, RecursionError) as why:
            raise BadRowError(f"{where}: expected a JSON object, found {quoted(_start(line))}: {_line(why)}") from None
        if not isinstance(row, dict):
            raise BadRowError(f"{where}: expected a JSON object, found {quoted(_start(line))}")
        if not row.keys() <= known:
            _check(row, where)
            known |= row.keys()
        yield number, len(line), row


@dataclass(frozen=True, repr=False)
class _Number:
    """A number of JSON that Python's float would change, as 1.10 and 1e400, in its own digits."""

    text: str

    def __repr__(self) -> str:
        return self.text


def _number(text: str) -> float | _Number:
    return number if repr(number := float(text)) == text else _Number(text)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{quoted(max(names, key=names.count)[:80])} is in an object twice")
    return made


_JSON = json.JSONDecoder(object_pairs_hook=_members, parse_float=_number)


def _shortest(value: Any) -> str:
    """A value of _JSON as JSON."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except TypeError:  # there is a _Number in it, which json cannot write
        pass
    if isinstance(value, dict):
        return "{" + ",".join(f"{_shortest(name)}:{_shortest(member)}" for name, member in value.items()) + "}"
    return "[" + ",".join(map(_shortest, value)) + "]" if isinstance(value, list) else str(value)


def _start(line: bytes) -> str:
    return line[:80].decode(errors="replace").rstrip()


def _csv(file: IO[bytes], name: str, opened: contextlib.ExitStack) -> tuple[pa.Schema, Batches]:
    before = csv.field_size_limit(_MOST_CHARACTERS)
    opened.callback(csv.field_size_limit, before)
    text = io.TextIOWrapper(file, "utf-8-sig", newline="")
    opened.callback(text.detach)  # else it would close the file once all rows are read
    rows = csv.reader(text, strict=True)
    names = _next(rows, name)
    if not names:
        raise OptionError(f"{name}: expected a line with the names of columns, found none")
    _check(names, f"{name}: line 1")
    return _WRITTEN, _batches(_csv_rows(rows, names, name), name)


def _next(rows: Any, name: str) -> list[str] | None:
    try:
        found: list[str] | None = next(rows, None)
    except (csv.Error, UnicodeDecodeError) as why:
        raise BadRowError(f"{name}: after line {rows.line_num}: expected CSV in UTF-8: {_line(why)}") from None
    return found


def _csv_rows(rows: Any, names: list[str], name: str) -> Iterator[tuple[int, int, Row]]:
    """As _json_rows(). An empty cell is null; but a body is empty, in its own column and in base64."""
    has_body = not {"body", _BODY64}.isdisjoint(names)
    while (cells := _next(rows, name)) is not None:
        if not cells:
            continue
        if len(cells) != len(names):
            raise BadRowError(f"{name}: line {rows.line_num}: expected {len(names)} cells, found {len(cells)}")
        row = {column: cell for column, cell in zip(names, cells, strict=True) if cell}
        if _BODY64 not in row and has_body:
            row.setdefault("body", "")
        yield rows.line_num, sum(map(len, cells)), row


def _batches(rows: Iterator[tuple[int, int, Row]], name: str) -> Batches:
    some: list[Row] = []
    numbers: list[int] = []
    size = 0
    for number, length, row in rows:
        some.append(row)
        numbers.append(number)
        size += length
        if len(some) == _ROWS or size >= _CHARACTERS:
            yield _batch(some, numbers, name)
            some, numbers, size = [], [], 0
    if some:
        yield _batch(some, numbers, name)


def _batch(rows: list[Row], numbers: list[int], name: str) -> pa.RecordBatch:
    arrays = []
    for field in _WRITTEN:
        values = [_value(field, row, f"{name}: line {number}") for row, number in zip(rows, numbers, strict=True)]
        arrays.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=_WRITTEN)


def _value(field: pa.Field, row: Row, where: str) -> Any:
    """The value of a column in a row."""
    value = row.get(field.name)
    if field.name == "body" and row.get(_BODY64) is not None:
        if value:
            raise BadRowError(f"{where}: expected 'body' or {_BODY64!r}, found both")
        return _from_base64(row[_BODY64], where)
    if value is None and field.name == "body":
        raise BadRowError(f"{where}: column 'body': expected a text, or {_BODY64!r}, found none")
    if value is None:
        return None
    try:
        made: Callable[[Any], Any] = _MADE.get(field.type, _text)
        return made(value)
    except (ValueError, OverflowError, RecursionError):
        raise BadRowError(
            f"{where}: column {field.name!r}: expected {_EXPECTED.get(field.type, 'a text')}, found "
            f"{quoted(str(value)[:80])}"
        ) from None


def _from_base64(text: Any, where: str) -> bytes:
    try:
        return base64.b64decode(_text(text), validate=True)
    except (ValueError, binascii.Error):
        raise BadRowError(f"{where}: column {_BODY64!r}: expected base64, found {quoted(str(text)[:80])}") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    value.encode()
    return value


def _bytes(value: Any) -> bytes:
    """Texts as they are, and JSON (as `--body json` writes bodies) in its shortest form."""
    if isinstance(value, dict | list):
        value = _shortest(value)
    return _text(value).encode()


def _whole(bits: int) -> Callable[[Any], int]:
    def made(value: Any) -> int:
        if isinstance(value, str) and re.fullmatch("-?[0-9]{1,19}", value):
            value = int(value)
        if type(value) is not int or not -_BOUNDS[bits] <= value < _BOUNDS[bits]:
            raise ValueError
        return value

    return made


_LONG = _whole(64)


def _time(value: Any) -> int:
    """In microseconds, a time as we write it, of any year; or as options take it."""
    if isinstance(value, str) and (ours := _OUR_TIME.fullmatch(value)):
        seconds = int(np.datetime64(ours[1], "s").astype(np.int64))  # microseconds would wrap around unnoticed
        return _LONG(seconds * 1_000_000 + int((ours[2] or "").ljust(6, "0")))
    if type(value) is not int and not isinstance(value, str):
        raise ValueError
    return _LONG(int(parse_instant(str(value)).milliseconds * 1000))


def _map(value: Any) -> list[tuple[str, str]]:
    pairs = _JSON.decode(value) if isinstance(value, str) else value
    if not isinstance(pairs, dict):
        raise ValueError
    return [(_text(name), _text(text)) for name, text in pairs.items()]


_MADE: dict[pa.DataType, Callable[[Any], Any]] = {
    BYTES: _bytes,
    INT: _whole(32),
    pa.int64(): _LONG,
    TIME: _time,
    MAP: _map,
}
_EXPECTED: dict[pa.DataType, str] = {
    BYTES: "a text, or JSON",
    INT: "a whole number of 32 bits",
    pa.int64(): "a whole number of 64 bits",
    TIME: "a time in ISO-8601, or milliseconds since 1970",
    MAP: "an object of texts",
}

_READERS: dict[Format, Callable[[Any, str, contextlib.ExitStack], tuple[pa.Schema, Batches]]] = {
    "json": _json,
    "csv": _csv,
    "parquet": _parquet,
    "arrow": _arrow,
}
