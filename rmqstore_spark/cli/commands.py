"""The commands. Those that read a table are made from the table of tables, their options from the table of options."""

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click
import pyarrow as pa

import rmqstore_spark
from rmqstore_spark.cli import formats
from rmqstore_spark.cli.exit_codes import WRONG
from rmqstore_spark.columns import COLUMNS, DEFAULT_COLUMNS
from rmqstore_spark.errors import OptionError, counted, one_line
from rmqstore_spark.option_texts import of_stores
from rmqstore_spark.options import MESSAGES, NOT_FOR_COPIES, OPTIONS, WRITE_OPTIONS, Option, check_columns
from rmqstore_spark.tables.registry import TABLES, table

_ROWS_SHOWN = 100
_LINES_OF_TAIL = 10
_FINDINGS = 20  # of a kind
_ALL = 1 << 62
# What a table shows of messages if no columns are named: first what goes into 80 columns.
_MESSAGE_COLUMNS = ["storeTimestamp", "topic", "keys", "body", "tags", "queueId", "queueOffset"]
_HOW = frozenset({"storePathCommitLog", "columns", "dropCache", "maxTaskBytesPerSecond"})
# Of Spark's side, or said in another way here.
_NOT_HERE = {"path", "paths", "table", "pushdown", "minPartitions", "maxPartitionBytes"}
_NOT_FOR_ONE = {"deduplicate"}
# What else options of a read are called at a terminal.
_SHORT = {"subscribe": "--topic", "startingTimestamp": "--from", "endingTimestamp": "--to"}
_REBUILD = ("mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum", "messageIndexEnable")

Batches = Iterator[pa.RecordBatch]


class Rmqstore(click.Group):
    """All commands; each is made when it is asked for, so that the others' modules are not imported."""

    def __init__(self) -> None:
        super().__init__(
            help="What is in the store directory of an Apache RocketMQ broker. No broker is needed, and nothing in "
            "the store is changed but by `rebuild`; `copy` and `salvage` make a new one.",
            epilog="Exit codes: 0 fine, 1 something is wrong with the store, 2 wrong use, 130 interrupted. "
            "`rmqstore COMMAND --help` has examples. For completion in bash: "
            'eval "$(_RMQSTORE_COMPLETE=bash_source rmqstore)"; zsh_source and fish_source likewise.',
            context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        )
        show = click.Option(
            ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_version, help="show the version"
        )
        self.params.append(show)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_COMMANDS, *(name for name in TABLES if name not in _COMMANDS)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        made = _COMMANDS.get(cmd_name)
        if made is not None:
            return made()
        return _table_command(cmd_name) if cmd_name in TABLES else None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            from rmqstore_spark.errors import nearest, one_line

            near = nearest(args[0], self.list_commands(ctx))
            raise click.UsageError(f"there is no command {one_line(args[0])!r}.{near}", ctx)
        return super().resolve_command(ctx, args)


def _version(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked:
        click.echo(f"rmqstore {rmqstore_spark.__version__}")
        ctx.exit()


# ---- what commands have in common


def _options(names: Sequence[str], table_of: dict[str, Option] = OPTIONS) -> list[click.Parameter]:
    """Options of the data source, by the same names and with the same help; `--starting-timestamp` is one, too."""
    return [_option(table_of[name]) for name in table_of if name in names]


def _option(option: Option) -> click.Option:
    """An option of the data source."""
    kebab = "".join(f"-{c.lower()}" if c.isupper() else c for c in option.name)
    text = option.help.replace("`", "").replace(r"\|", "|")
    default = f" [default: {option.default}]" if option.default else ""
    spellings = [f"--{option.name}", f"--{kebab}", *([_SHORT[option.name]] if option.name in _SHORT else [])]
    return click.Option([*dict.fromkeys(spellings), option.name], help=text + default, metavar="TEXT")


def _paths(metavar: str = "PATH...") -> click.Argument:
    return click.Argument(["paths"], metavar=metavar, nargs=-1, required=True)


def _path() -> click.Argument:
    return click.Argument(["path"])


def _output() -> list[click.Parameter]:
    return [
        click.Option(
            ["--format", "kind"],
            type=click.Choice(["table", *formats.FORMATS]),
            help="table: for people; json: one object a line. [default: table, or what the name of --output says]",
        ),
        click.Option(["--output", "-o"], metavar="FILE", help="write to this file instead of showing it"),
        click.Option(
            ["--limit", "-n"],
            type=click.IntRange(min=0),
            help=f"the most rows; 0: all of them. [default: {_ROWS_SHOWN} in a table, else all]",
        ),
    ]


def _command(
    name: str, function: Callable[..., int | None], parameters: Sequence[click.Parameter], text: str, example: str
) -> click.Command:
    """A command.

    Args:
        text: what it does, in one or two sentences.
        example: arguments after `rmqstore NAME`.
    """
    return click.Command(
        name,
        callback=function,
        params=list(parameters),
        help=text,
        epilog=f"Example: rmqstore {name} {example}",
        short_help=text.partition(".")[0],
    )


def _given(options: dict[str, Any]) -> dict[str, str]:
    return {name: value for name, value in options.items() if value is not None}


def _show(
    name: str, paths: Sequence[str], kind: str | None, output: str | None, limit: int | None, options: dict[str, Any]
) -> int:
    """Read a table and show it, or write it to a file."""
    from rmqstore_spark.cli.reading import batches_of

    given = _given(options)
    if name == MESSAGES and kind in (None, "table") and output is None:
        given.setdefault("columns", ",".join(_MESSAGE_COLUMNS))
    return _put_out(*batches_of(name, paths, given), kind, output, limit)


def _put_out(schema: pa.Schema, batches: Batches, kind: str | None, output: str | None, limit: int | None) -> int:
    """Show rows, or write them to a file."""
    if kind is None:
        kind = "table" if output is None else formats.format_of(output)
    if output is not None and kind == "table":
        raise OptionError("--output: a table is for people; give --format json, csv, parquet or arrow")
    if kind in ("parquet", "arrow") and output is None and sys.stdout.isatty():
        raise OptionError(f"--format {kind} is no text: give --output FILE, or send it to another program")
    if kind == "table":
        from rmqstore_spark.cli.screen import show_rows

        show_rows(schema, batches, _ROWS_SHOWN if limit is None else limit or None)
    else:
        _write(kind, schema, _first(batches, limit) if limit else batches, output)
    return 0


def _write(kind: Any, schema: pa.Schema, batches: Batches, output: str | None) -> None:
    if output is None:
        formats.write(kind, schema, batches, sys.stdout.buffer, is_terminal=sys.stdout.isatty())
        return
    from rmqstore_spark.cli.output_file import output_file
    from rmqstore_spark.cli.progress_bar import progress_bars

    count = _Count()
    with output_file(output) as sink, progress_bars():
        formats.write(kind, schema, count.of(batches), sink)
    click.echo(f"{one_line(output)} has {counted(count.rows, 'row')}", err=True)


class _Count:
    """How many rows went by."""

    rows = 0

    def of(self, batches: Batches) -> Batches:
        """The same batches, counted."""
        for batch in batches:
            self.rows += batch.num_rows
            yield batch


def _first(batches: Batches, limit: int) -> Batches:
    for batch in batches:
        yield batch.slice(0, limit)
        limit -= min(limit, batch.num_rows)
        if not limit:
            return


# ---- the commands


def _show_store() -> click.Command:
    def run(paths: Sequence[str], **options: Any) -> None:
        from rmqstore_spark.cli.progress_bar import progress_bars
        from rmqstore_spark.cli.reading import stores_of
        from rmqstore_spark.cli.show import show_summary
        from rmqstore_spark.tables.summary import summarize

        for number, store in enumerate(stores_of(paths, _given(options))):
            if number:
                click.echo()
            with progress_bars():
                summary = summarize(store)
            show_summary(summary)

    parameters = [_paths(), *_options(["storePathCommitLog"])]
    text = "What is in a store at a glance. Its size and time, the largest topics, the groups that lag."
    return _command("show", run, parameters, text, "/data/store")


def _tail() -> click.Command:
    def run(path: str, follow: bool, kind: str | None, output: str | None, limit: int | None, **options: Any) -> int:
        from rmqstore_spark.cli.reading import last_batches

        given = _given(options)
        if kind in (None, "table") and output is None:
            given.setdefault("columns", ",".join(_MESSAGE_COLUMNS))
        count = _LINES_OF_TAIL if limit is None else limit or _ALL
        if follow:
            return _follow(path, given, count, kind, output)
        return _put_out(*last_batches(path, given, count), kind, output, 0)

    follow = click.Option(["--follow", "-f"], is_flag=True, help="go on with those that come, until Ctrl-C")
    names = [name for name in OPTIONS if name not in _NOT_HERE | _NOT_FOR_ONE]
    parameters = [_path(), follow, *_options(names), *_output()]
    text = (
        f"The last messages, {_LINES_OF_TAIL} of them unless --limit says else. With --follow also those that come, or "
        "with --starting-offsets all from there on."
    )
    return _command("tail", run, parameters, text, "/data/store --subscribe Orders -n 3")


def _follow(path: str, given: dict[str, str], count: int, kind: str | None, output: str | None) -> int:
    from rmqstore_spark.cli.following import followed

    if output is not None or kind in ("parquet", "arrow"):
        raise OptionError("--follow: what has no end cannot be such a file; give --format json or csv, and no --output")
    last, coming = followed(path, given, count)
    batches = itertools.chain(last.to_batches(), coming)
    if kind in (None, "table"):
        from rmqstore_spark.cli.screen import show_rows

        show_rows(last.schema, batches, None, measured=max(1, last.num_rows))
    else:
        _write(kind, last.schema, batches, None)
    return 0


def _table_command(name: str) -> click.Command:
    found = table(name)

    def run(paths: Sequence[str], kind: str | None, output: str | None, limit: int | None, **options: Any) -> int:
        return _show(name, paths, kind, output, limit, options)

    parameters = [_paths(), *_options([*found.options, *_HOW]), *_output()]
    text = f"One row is {found.row}. Its columns: {', '.join(found.schema.names)}."
    return _command(name, run, parameters, text, "/data/store --format json")


def _messages() -> click.Command:
    def run(paths: Sequence[str], kind: str | None, output: str | None, limit: int | None, **options: Any) -> int:
        return _show(MESSAGES, paths, kind, output, limit, options)

    parameters = [_paths(), *_options([name for name in OPTIONS if name not in _NOT_HERE]), *_output()]
    text = f"The messages, or some of them. Their columns: {', '.join(COLUMNS)}."
    return _command(MESSAGES, run, parameters, text, "/data/store --subscribe Orders --output orders.parquet")


def _get() -> click.Command:
    def run(
        path: str, wanted: str | None, kind: str | None, output: str | None, limit: int | None, **options: Any
    ) -> int:
        given = _given(options)
        if (wanted is None) == ("key" not in given):
            raise click.UsageError("give an ID, or --key")
        if wanted is not None:
            given["msgId"] = wanted
        given["columns"] = given.get("columns") or ",".join([*DEFAULT_COLUMNS, "store"])
        if kind is None and output is None and "columns" not in _given(options):
            return _show_messages(path, given, limit or 0)
        from rmqstore_spark.cli.reading import batches_of

        schema, batches = batches_of(MESSAGES, [path], given)
        count = _Count()
        _put_out(schema, count.of(batches), kind, output, limit)
        return 0 if count.rows else WRONG

    how = [*_HOW, "key", "subscribe", "startingTimestamp", "endingTimestamp", "mode", "trust", "deduplicate"]
    parameters = [_path(), click.Argument(["wanted"], metavar="[ID]", required=False), *_options(how), *_output()]
    text = "One message, by its msgId or offsetMsgId; or those with a key. All that is known of them, and their bodies."
    return _command("get", run, parameters, text, "/data/store --key order-4711")


def _show_messages(path: str, given: dict[str, str], limit: int) -> int:
    from rmqstore_spark.cli.message import show_message
    from rmqstore_spark.cli.reading import batches_of
    from rmqstore_spark.cli.rows import rows_of
    from rmqstore_spark.cli.screen import console

    out = console()
    count = 0
    _, batches = batches_of(MESSAGES, [path], given)
    for batch in _first(batches, limit) if limit else batches:
        for row in rows_of(batch, is_for_people=True):
            if count:
                out.print()
            show_message(out, row)
            count += 1
    if not count:
        print("nothing found", file=sys.stderr)
    return 0 if count else WRONG


def _history() -> click.Command:
    def run(path: str, wanted: str, kind: str | None, output: str | None, limit: int | None, **options: Any) -> int:
        from rmqstore_spark.api import Store

        given = _given(options)
        columns = given.pop("columns", None)
        found = Store(path, **given).history(wanted)  # type: ignore[arg-type]
        if columns is not None:
            names = columns.split(",")
            check_columns(names, found.schema.names)
            found = found.select(names)
        elif kind in (None, "table") and output is None:
            names = ["timestamp", "event", "topic", "details", "group", "queueId", "queueOffset"]
            found = found.select([*names, *(name for name in found.schema.names if name not in names)])
        _put_out(found.schema, iter(found.to_batches()), kind, output, limit)
        return 0 if found.num_rows else WRONG

    parameters = [_path(), click.Argument(["wanted"], metavar="KEY_OR_ID"), *_options([*_HOW, "mode"]), *_output()]
    text = "What happened to a message, in order of time. Transactions, delays, retries, who has consumed it, traces."
    return _command("history", run, parameters, text, "/data/store order-4711")


def _check() -> click.Command:
    def run(paths: Sequence[str], kind: str | None, output: str | None, limit: int | None, **options: Any) -> int:
        from rmqstore_spark.cli.progress_bar import progress_bars
        from rmqstore_spark.cli.reading import batches_of

        given = _given(options)
        shown, _ = batches_of("check", paths, given)
        # What is shown is one thing; the exit code follows what was found.
        needed = dict.fromkeys([*shown.names, "severity"])
        schema, batches = batches_of("check", paths, {**given, "columns": ",".join(needed)})
        with progress_bars():
            found = pa.Table.from_batches(batches, schema)
        if output is None and kind in (None, "table") and "columns" not in given:
            from rmqstore_spark.cli.findings import show_findings

            show_findings(found, _FINDINGS if limit is None else limit or None)
        else:
            _put_out(shown, iter(found.select(shown.names).to_batches()), kind, output, limit)
        return WRONG if {"error", "warning"} & set(found.column("severity").to_pylist()) else 0

    parameters = [_paths(), *_options([*table("check").options, *_HOW]), *_output()]
    text = (
        "What is wrong with a store, or suspicious. The whole log is read, and compared with queues, index files, "
        "config and offsets. Exit code 1: there are errors or warnings."
    )
    return _command("check", run, parameters, text, "/data/store")


def _explain() -> click.Command:
    def run(paths: Sequence[str], **options: Any) -> None:
        from rmqstore_spark.read.explain import explanation

        click.echo(explanation(list(paths), _given(options)))

    parameters = [_paths(), *_options([name for name in OPTIONS if name not in _NOT_HERE])]
    text = "How `messages` with these options would find its rows, and what that costs."
    return _command("explain", run, parameters, text, "/data/store --key order-4711")


def _rebuild() -> click.Command:
    def run(path: str, **options: Any) -> None:
        from rmqstore_spark.cli.progress_bar import progress_bars

        with progress_bars():
            count = rmqstore_spark.rebuild(path, **_given(options))
        click.echo(f"the queues have {counted(count, 'message')}")

    parameters = [_path(), *_options(_REBUILD, WRITE_OPTIONS)]
    text = (
        "Make ConsumeQueue and IndexFile anew from the commitlog. No broker may run on the store; the commitlog is "
        "only read."
    )
    return _command("rebuild", run, parameters, text, "/data/store")


def _copy() -> click.Command:
    text = (
        "Make a new store of one, or of several. Messages keep their queue offsets, and groups their place. TARGET "
        "does not exist yet, or is empty; sources are only read. Where several become one, the queues of a topic come "
        "one after the other. Retried and dead messages come along, and so do delayed and half messages with the "
        "broker's state. Of timed messages only those that still wait come along; where several stores become one, "
        "the same holds for delayed and half messages. "
        "With --subscribe, name %RETRY%GROUP and the like, too, where these are to come."
    )
    return _copying("copy", text, "/data/store /new/store")


def _salvage() -> click.Command:
    text = (
        "Make a new store of what is whole in a damaged one. Messages keep their queue offsets; a "
        "broker passes over lost ones as over expired ones. What is lost is shown, as by check. Exit code 1: "
        "something is. Otherwise it is like copy."
    )
    return _copying("salvage", text, "/data/store /new/store --format json --output lost.json")


def _copying(name: str, text: str, example: str) -> click.Command:
    def run(
        paths: Sequence[str], kind: str | None, output: str | None, limit: int | None, index: bool, **options: Any
    ) -> int:
        from rmqstore_spark.api import Store
        from rmqstore_spark.cli.progress_bar import progress_bars

        if len(paths) < 2:
            raise click.UsageError("give the store, and the directory of the new one")
        *sources, target = paths
        given = _given(options)
        store = Store(sources, **of_stores(given))
        with progress_bars():
            make: Callable[..., Any] = store.salvage if name == "salvage" else store.copy
            made = make(target, messageIndexEnable=index, **given)
        click.echo(f"{target} has {counted(made.messages, 'message')}", err=True)
        if output is not None or (kind or "table") != "table":
            _put_out(made.lost.schema, iter(made.lost.to_batches()), kind, output, limit)
        elif made.lost.num_rows:
            from rmqstore_spark.cli.findings import show_findings

            show_findings(made.lost, _FINDINGS if limit is None else limit or None)
        return WRONG if name == "salvage" and made.lost.num_rows else 0

    parameters: list[click.Parameter] = [
        _paths("SOURCE... TARGET"),
        *_options([option for option in OPTIONS if option not in _NOT_HERE | NOT_FOR_COPIES]),
        click.Option(["--index/--no-index"], default=True, help="make index files. [default: yes]"),
        *_output(),
    ]
    return _command(name, run, parameters, text, example)


_COMMANDS: dict[str, Callable[[], click.Command]] = {
    "show": _show_store,
    MESSAGES: _messages,
    "tail": _tail,
    "get": _get,
    "history": _history,
    "check": _check,
    "explain": _explain,
    "rebuild": _rebuild,
    "copy": _copy,
    "salvage": _salvage,
}
