"""`rmqstore sql`: one query of DuckDB's over all tables of a store."""

import re
from typing import Any, NoReturn

import click
import pyarrow as pa

import rmqstore_spark
from rmqstore_spark.cli.command import command
from rmqstore_spark.cli.exit_codes import FINE
from rmqstore_spark.cli.output import Batches, Output
from rmqstore_spark.cli.parameters import one_path, options_for, output_options
from rmqstore_spark.columns import COLUMNS, DEFAULT_COLUMNS
from rmqstore_spark.errors import OptionError, RmqStoreError, one_line, quoted
from rmqstore_spark.query.options import MESSAGES, Use
from rmqstore_spark.tables.registry import TABLES, table

_BATCH_ROWS = 100_000
# Types of DuckDB that the formats have. What is not among them is cast to the second kind, or else to text.
_KEPT = re.compile(
    r"VARCHAR|BLOB|BOOLEAN|DOUBLE|FLOAT|U?(TINYINT|SMALLINT|INTEGER)|BIGINT|TIMESTAMP( WITH TIME ZONE)?"
    r"|MAP\(VARCHAR, (VARCHAR|BIGINT)\)|VARCHAR\[\]"
)
_CAST = {"HUGEINT": "BIGINT", "UHUGEINT": "BIGINT", "UBIGINT": "BIGINT", "DECIMAL": "DOUBLE"}
_OWN_ERROR = re.compile(r"rmqstore_spark\.(\w+Error): ([^\n]*)")
_NO_TABLE = re.compile(r"Catalog Error: Table with name (\w+) does not exist!")
# Names of tables and columns that are words of SQL, where they are used as such.
_UNQUOTED = re.compile(r"(?<![\w.])(check|group|order)\b(?!\s+by\b)", re.IGNORECASE)
_TEXT_OR_NAME = re.compile(r"'[^']*'|\"[^\"]*\"")
_OFFLINE = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}


@command(
    [
        one_path(),
        click.Argument(["query"], metavar="QUERY"),
        *options_for(Use.STORE),
        *output_options(),
    ],
    "The rows of a query (DuckDB's SQL) over the tables messages, "
    f'{", ".join(TABLES)}. Write "check", "group" and "order" in quotes, as they are words of SQL. Only the columns '
    "that the query names are read, and only the messages that its conditions on topic, queueId, queueOffset, "
    "storeTimestamp, commitLogOffset, tags, keys and ids may let pass. Times are in UTC. Sums of more than 63 bits are "
    "errors; dates, intervals and structures become texts.",
    "/data/store \"select topic, count(*) from messages where topic = 'Orders' group by topic\"",
)
def sql(path: str, query: str, output: Output, given: dict[str, str]) -> int:
    duckdb = _duckdb()
    with duckdb.connect(config=_OFFLINE) as connection:
        connection.execute("set TimeZone = 'UTC'")
        # It would stand among the rows, on stdout: in a session at a prompt, or what DuckDB takes for one.
        connection.execute("set enable_progress_bar = false")
        for name, dataset in _datasets(path, query, given).items():
            connection.register(name, dataset)
        try:
            reader = _reader(duckdb, connection, query)
            if not output.put(reader.schema, _with_errors_of_duckdb(duckdb, reader)):
                click.echo(one_line(f"nothing found in {path}: the query has no rows"), err=True)
        except duckdb.Error as why:
            _raise(why, query)
    return FINE


def _datasets(path: str, query: str, given: dict[str, str]) -> dict[str, Any]:
    """All tables. A column of messages that is only returned when it is named is there when the query names it."""
    words = {word.lower() for word in re.findall(r"\w+", query)}
    named = [name for name in COLUMNS if name not in DEFAULT_COLUMNS and name.lower() in words]
    store = rmqstore_spark.Store(path, **given)  # type: ignore[arg-type]
    return {MESSAGES: store.dataset(columns=[*DEFAULT_COLUMNS, *named]).reporting_here()} | {
        name: store.dataset(name).reporting_here() for name in TABLES
    }


def _reader(duckdb: Any, connection: Any, query: str) -> Any:
    """The rows of the query, in types that the formats have.

    Raises:
        OptionError: it is not one query, or two columns have the same name.
    """
    kinds = [statement.type for statement in connection.extract_statements(query)]
    if len(kinds) != 1 or kinds[0] != duckdb.StatementType.SELECT:
        raise OptionError(f"expected one query, such as 'select count(*) from messages', found {quoted(query)}")
    found = connection.sql(query)
    names = list(found.columns)
    if twice := [name for name in names if names.count(name) > 1]:
        raise OptionError(
            f"two columns of the query have the name {quoted(twice[0])}; give one of them another with 'as'"
        )
    casts = [(name, _cast(str(kind))) for name, kind in zip(names, found.types, strict=True)]
    if any(cast for _, cast in casts):
        found = found.project(
            ", ".join(_escaped(name) + (f"::{to} as {_escaped(name)}" if to else "") for name, to in casts)
        )
    make = getattr(found, "to_arrow_reader", None) or found.fetch_arrow_reader  # the second in older versions
    return make(_BATCH_ROWS)


def _cast(kind: str) -> str | None:
    return None if _KEPT.fullmatch(kind) else _CAST.get(kind.partition("(")[0], "VARCHAR")


def _escaped(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _with_errors_of_duckdb(duckdb: Any, reader: pa.RecordBatchReader) -> Batches:
    """The batches; errors are those of DuckDB. (Arrow gives what DuckDB says as an OSError.)"""
    try:
        yield from reader
    except (OSError, pa.ArrowException) as why:
        raise duckdb.Error(str(why)) from None


def _raise(why: Exception, query: str) -> NoReturn:
    """Raise what a store's read has raised below DuckDB, or else what DuckDB has to say of the query."""
    text = str(why)
    own = _OWN_ERROR.findall(text)
    if own:
        name, said = own[-1]
        kind = getattr(rmqstore_spark, name, RmqStoreError)
        raise kind(said) from None
    said = " ".join(text.partition("\n\nLINE")[0].split())
    unknown = _NO_TABLE.match(said)
    if unknown and unknown[1] != MESSAGES:
        table(unknown[1])  # which says what tables there are, where DuckDB also names its own
    hint = _quotes_hint(query) if said.startswith("Parser Error") else ""
    raise OptionError(f"query {quoted(query)}: {said}{hint}") from None


def _quotes_hint(query: str) -> str:
    """What may be wrong with a query that DuckDB cannot read: the name of a table or column is a word of SQL."""
    found = _UNQUOTED.search(_TEXT_OR_NAME.sub("''", query))
    return f'; as a name of a table or column {found[0]} is written "{found[0]}", in quotes' if found else ""


def _duckdb() -> Any:
    try:
        import duckdb
    except ModuleNotFoundError:
        raise OptionError("rmqstore sql needs DuckDB; install it with: pip install duckdb") from None
    return duckdb
