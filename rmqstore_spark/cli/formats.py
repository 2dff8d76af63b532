"""Record batches as JSON lines, CSV, Parquet or Arrow: for programs.

Bytes that are UTF-8 are written as text; JSON and CSV have other bytes in a field of their own, in base64.
"""

import base64
import csv
import io
import json
import os
from collections.abc import Callable, Iterator
from typing import IO, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from rmqstore_spark.cli.base64_columns import BASE64
from rmqstore_spark.cli.bodies import json_body, with_bodies
from rmqstore_spark.cli.rows import few_at_once, rows_of
from rmqstore_spark.errors import OptionError, one_line

Format = Literal["json", "csv", "parquet", "arrow"]
# The names for --format, and the endings of file names.
FORMATS: dict[str, Format] = {
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "csv": "csv",
    "parquet": "parquet",
    "arrow": "arrow",
    "feather": "arrow",
}

Batches = Iterator[pa.RecordBatch]

_QUOTED_ENDS = "\r\n"  # of CSV: a cell with one of these characters is quoted


def format_of(path: str) -> Format:
    """The format that the ending of a file's name stands for.

    Raises:
        OptionError: the ending stands for no format.
    """
    ending = os.path.splitext(path)[1].lower().removeprefix(".")
    if ending not in FORMATS:
        endings = ", ".join(f".{name}" for name in FORMATS)
        raise OptionError(f"--output {path}: give --format too, or a name that ends with one of {endings}")
    return FORMATS[ending]


def write(
    kind: Format,
    schema: pa.Schema,
    batches: Batches,
    sink: IO[bytes],
    *,
    is_terminal: bool = False,
    is_stream: bool = False,
    body: str | None = None,
) -> None:
    """Write batches.

    Args:
        is_terminal: whether to escape characters that move a cursor, also in texts from the store.
        is_stream: whether Arrow data is in the form for pipes, which is read from its beginning on, and not in that of
            files.
        body: how bodies are written, one of bodies.FORMS; None: as text if they are UTF-8, else in base64.

    Raises:
        OptionError: this format has no such bodies.
    """
    if body == "json":
        if kind != "json":
            raise OptionError("--body json: only --format json has bodies that are JSON; use --body text")
        _write_json(schema, batches, sink, is_terminal, json_body)
        return
    writer = _write_arrow_stream if kind == "arrow" and is_stream else _WRITERS[kind]
    writer(*with_bodies(schema, batches, body or ""), sink, is_terminal)


def _write_json(
    schema: pa.Schema,
    batches: Batches,
    sink: IO[bytes],
    is_terminal: bool,
    changed: Callable[[dict[str, Any]], dict[str, Any]] = lambda row: row,
) -> None:
    for batch in few_at_once(batches):
        rows = map(changed, rows_of(batch, is_for_people=False))
        lines = (json.dumps(_plain(row), ensure_ascii=is_terminal) for row in rows)
        sink.write("".join(f"{line}\n" for line in lines).encode(errors="surrogatepass"))
        sink.flush()


class _Lines:
    """Takes the rows of a csv.writer, and ends each with a line feed alone.

    csv.writer quotes only the line ends that it writes itself: without a CR among them, a cell with a CR would be two
    rows to whoever reads it.
    """

    def __init__(self, text: io.StringIO) -> None:
        self._text = text

    def write(self, row: str) -> None:
        self._text.write(row.removesuffix(_QUOTED_ENDS) + "\n")


def _write_csv(schema: pa.Schema, batches: Batches, sink: IO[bytes], is_terminal: bool) -> None:
    names = []
    for field in schema:
        names += [field.name, field.name + BASE64] if pa.types.is_binary(field.type) else [field.name]
    names = [*dict.fromkeys(names)]
    text = io.StringIO(newline="")
    rows = csv.writer(_Lines(text), lineterminator=_QUOTED_ENDS)
    rows.writerow(names)
    for batch in few_at_once(batches):
        for row in rows_of(batch, is_for_people=False):
            known = _plain(row)
            rows.writerow([_cell(known.get(name), is_terminal) for name in names])
        sink.write(text.getvalue().encode())
        sink.flush()
        text.seek(0)
        text.truncate()
    sink.write(text.getvalue().encode())


def _write_parquet(schema: pa.Schema, batches: Batches, sink: IO[bytes], is_terminal: bool) -> None:
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for table in _grouped(schema, batches):
            writer.write_table(table)


def _write_arrow(schema: pa.Schema, batches: Batches, sink: IO[bytes], is_terminal: bool) -> None:
    with pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _write_arrow_stream(schema: pa.Schema, batches: Batches, sink: IO[bytes], is_terminal: bool) -> None:
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            sink.flush()


_WRITERS: dict[Format, Callable[[pa.Schema, Batches, IO[bytes], bool], None]] = {
    "json": _write_json,
    "csv": _write_csv,
    "parquet": _write_parquet,
    "arrow": _write_arrow,
}
_GROUP_BYTES = 64 * 1024 * 1024


def _grouped(schema: pa.Schema, batches: Batches) -> Iterator[pa.Table]:
    """The batches of each row group."""
    some: list[pa.RecordBatch] = []
    nbytes = 0
    for batch in batches:
        some.append(batch)
        nbytes += batch.nbytes
        if nbytes >= _GROUP_BYTES:
            yield pa.Table.from_batches(some, schema)
            some, nbytes = [], 0
    if some:
        yield pa.Table.from_batches(some, schema)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row with only such values as JSON has."""
    plain: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, bytes):
            try:
                plain[name] = value.decode()
            except UnicodeDecodeError:
                plain[name + BASE64] = base64.b64encode(value).decode()
        else:
            plain[name] = value
    return plain


def _cell(value: Any, is_terminal: bool) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
    return one_line(text) if is_terminal else text
