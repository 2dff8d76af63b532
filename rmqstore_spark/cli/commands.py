"""The commands. Those that read a table are made from the table of tables, their options from the table of options."""

import itertools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click
import pyarrow as pa

import rmqstore_spark
from rmqstore_spark.cli import formats
from rmqstore_spark.cli.exit_codes import EXIT_CODES, FINE, NOT_ALL, NOT_FOUND, WRONG
from rmqstore_spark.cli.parameters import (
    FINDINGS_SHOWN,
    LAST_SHOWN,
    ROWS_SHOWN,
    Command,
    one_path,
    options_for,
    output_options,
    some_paths,
    table_options,
)
from rmqstore_spark.columns import COLUMNS, DEFAULT_COLUMNS
from rmqstore_spark.errors import OptionError, counted, nearest, one_line
from rmqstore_spark.options import (
    MESSAGES,
    OPTIONS,
    WRITE_OPTIONS,
    Use,
    check_columns,
    going_with,
    of_stores,
    understand,
)
from rmqstore_spark.read.told import Listener, heard
from rmqstore_spark.tables.registry import TABLES, table

_OF_FINDINGS = f"{FINDINGS_SHOWN} of each problem on the screen, else all"
_ALL = 1 << 62
# What a table shows of messages if no columns are named: first what goes into 80 columns.
_MESSAGE_COLUMNS = ["storeTimestamp", "topic", "keys", "body", "tags", "queueId", "queueOffset"]

Batches = Iterator[pa.RecordBatch]


class Rmqstore(click.Group):
    """All commands; each is made when it is asked for, so that the others' modules are not imported."""

    def __init__(self) -> None:
        super().__init__(
            help="What is in the store directory of an Apache RocketMQ broker. No broker is needed, and nothing in "
            "the store is changed but by `rebuild`; `copy` and `salvage` make a new one.",
            epilog=f"Exit codes: {'; '.join(f'{code}: {what}' for code, what in EXIT_CODES.items())}. "
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
            near = nearest(args[0], self.list_commands(ctx))
            if not near and os.path.isdir(args[0]):
                near = f" Did you mean 'show {args[0]}'?"
            raise click.UsageError(f"there is no command {args[0]!r}.{near}", ctx)
        return super().resolve_command(ctx, args)


def _version(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked:
        click.echo(f"rmqstore {rmqstore_spark.__version__}")
        ctx.exit()


# ---- what commands have in common


def _command(
    name: str, function: Callable[..., int | None], parameters: Sequence[click.Parameter], text: str, example: str
) -> click.Command:
    """A command.

    Args:
        text: what it does, in one or two sentences.
        example: arguments after `rmqstore NAME`.
    """
    return Command(
        name,
        callback=function,
        params=list(parameters),
        help=text,
        epilog=f"Example: rmqstore {name} {example}",
        short_help=text.partition(".")[0],
    )


def _given(options: dict[str, Any]) -> dict[str, str]:
    """Those of the data source's options that are given, as its texts."""
    given = {name: value for name, value in options.items() if value is not None}
    return {name: str(value).lower() if isinstance(value, bool) else value for name, value in given.items()}


def _show(
    name: str, paths: Sequence[str], kind: str | None, output: str | None, limit: int | None, options: dict[str, Any]
) -> int:
    """Read a table and show it, or write it to a file."""
    from rmqstore_spark.cli.reading import batches_of

    given = _given(options)
    if name == MESSAGES and kind in (None, "table") and output is None:
        given.setdefault("columns", ",".join(_MESSAGE_COLUMNS))
    with heard() as damage:
        rows = _put_out(*batches_of(name, paths, given), kind, output, limit)
    if name == MESSAGES:
        return _found(rows, paths, given, damage)
    if not rows:
        click.echo("nothing found", err=True)
    return FINE


def _found(rows: int, paths: Sequence[str], given: dict[str, str], damage: Listener, what: str = "") -> int:
    """The exit code of what looks for messages, and has had so many rows. Where there was none, that is said.

    Args:
        damage: whether there was any where they might have been.
        what: was looked for, if it is not all that options say.
    """
    if rows:
        return FINE
    from rmqstore_spark.cli.reading import is_all_looked_at

    asked = [what] if what else []
    asked += [f"{name} {text!r}" for name, text in given.items() if name in going_with(Use.SELECT)]
    click.echo(one_line(f"nothing found{' with ' if asked else ''}{', '.join(asked)}"), err=True)
    return NOT_FOUND if not damage.is_lost and is_all_looked_at(paths, given) else NOT_ALL


def _put_out(schema: pa.Schema, batches: Batches, kind: Any, output: str | None, limit: int | None) -> int:
    """Show rows, or write them to a file.

    Returns:
        How many were written; of those that are shown, whether there are any.
    """
    if kind is None:
        kind = "table" if output is None else formats.format_of(output)
    if output is not None and kind == "table":
        raise OptionError("--output: a table is for people; give --format json, csv, parquet or arrow")
    if kind in ("parquet", "arrow") and output is None and sys.stdout.isatty():
        raise OptionError(f"--format {kind} is no text: give --output FILE, or send it to another program")
    count = _Count()
    if kind == "table":
        from rmqstore_spark.cli.screen import show_rows

        show_rows(schema, count.of(batches), ROWS_SHOWN if limit is None else limit or None)
        return count.rows
    some = count.of(_first(batches, limit) if limit else batches)
    if output is None:
        _write(kind, schema, some)
        return count.rows
    from rmqstore_spark.cli.output_file import output_file
    from rmqstore_spark.cli.progress_bar import progress_bars

    with output_file(output) as sink, progress_bars():
        formats.write(kind, schema, some, sink)
    click.echo(f"{one_line(output)} has {counted(count.rows, 'row')}", err=True)
    return count.rows


def _write(kind: Any, schema: pa.Schema, batches: Batches) -> None:
    formats.write(kind, schema, batches, sys.stdout.buffer, is_terminal=sys.stdout.isatty())


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
        from rmqstore_spark.jobs.summary import summarize

        for number, store in enumerate(stores_of(paths, _given(options))):
            if number:
                click.echo()
            with progress_bars():
                summary = summarize(store)
            show_summary(summary)

    parameters = [some_paths(), *options_for(Use.SHOW)]
    text = "What is in a store at a glance. Its size and time, the largest topics, the groups that lag."
    return _command("show", run, parameters, text, "/data/store")


def _tail() -> click.Command:
    def run(path: str, follow: bool, kind: str | None, output: str | None, limit: int | None, **options: Any) -> int:
        from rmqstore_spark.cli.reading import last_batches

        given = _given(options)
        if kind in (None, "table") and output is None:
            given.setdefault("columns", ",".join(_MESSAGE_COLUMNS))
        count = LAST_SHOWN if limit is None else limit or _ALL
        if follow:
            return _follow(path, given, count, kind, output, is_limited=limit is not None)
        with heard() as damage:
            rows = _put_out(*last_batches(path, given, count), kind, output, 0)
        return _found(rows, [path], given, damage)

    follow = click.Option(["--follow", "-f"], is_flag=True, help="go on with those that come, until Ctrl-C")
    which = "the most rows, the last ones of those that are there"
    parameters = [one_path(), follow, *options_for(Use.TAIL), *output_options(str(LAST_SHOWN), which)]
    text = (
        f"The last messages, {LAST_SHOWN} of them unless --limit says else. With --follow also those that come, or "
        "with --starting-offsets all from there on."
    )
    return _command("tail", run, parameters, text, "/data/store --subscribe Orders -n 3")


def _follow(
    path: str, given: dict[str, str], count: int, kind: str | None, output: str | None, is_limited: bool
) -> int:
    from rmqstore_spark.cli.base64_columns import Asked
    from rmqstore_spark.cli.following import followed

    if output is not None or kind in ("parquet", "arrow"):
        raise OptionError("--follow: what has no end cannot be such a file; give --format json or csv, and no --output")
    asked = Asked(given)
    last, coming = followed(path, asked.given, count, is_limited)
    schema, batches = asked.of(last.schema, itertools.chain(last.to_batches(), coming))
    if kind in (None, "table"):
        from rmqstore_spark.cli.screen import show_rows

        show_rows(schema, batches, None, measured=max(1, last.num_rows))
    else:
        _write(kind, schema, batches)
    return FINE


def _table_command(name: str) -> click.Command:
    found = table(name)

    def run(paths: Sequence[str], kind: str | None, output: str | None, limit: int | None, **options: Any) -> int:
        return _show(name, paths, kind, output, limit, options)

    parameters = [some_paths(), *table_options(found), *output_options()]
    text = f"One row is {found.row}. Its columns: {', '.join(found.schema.names)}."
    return _command(name, run, parameters, text, "/data/store --format json")


def _messages() -> click.Command:
    def run(paths: Sequence[str], kind: str | None, output: str | None, limit: int | None, **options: Any) -> int:
        return _show(MESSAGES, paths, kind, output, limit, options)

    parameters = [
        some_paths(),
        *options_for(Use.MESSAGES),
        *output_options(),
    ]
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
        is_in_full = kind is None and output is None and "columns" not in given
        given.setdefault("columns", ",".join([*DEFAULT_COLUMNS, "store"]))
        from rmqstore_spark.cli.reading import batches_of

        with heard() as damage:
            schema, batches = batches_of(MESSAGES, [path], given)
            rows = _show_messages(batches, limit) if is_in_full else _put_out(schema, batches, kind, output, limit or 0)
        return _found(rows, [path], given, damage)

    parameters = [
        one_path(),
        click.Argument(["wanted"], metavar="[ID]", required=False),
        *options_for(Use.GET),
        *output_options("all"),
    ]
    text = "One message, by its msgId or offsetMsgId; or those with a key. All that is known of them, and their bodies."
    return _command("get", run, parameters, text, "/data/store --key order-4711")


def _show_messages(batches: Batches, limit: int | None) -> int:
    from rmqstore_spark.cli.message import show_message
    from rmqstore_spark.cli.rows import rows_of
    from rmqstore_spark.cli.screen import console

    out = console()
    count = 0
    for batch in _first(batches, limit) if limit else batches:
        for row in rows_of(batch, is_for_people=True):
            if count:
                out.print()
            show_message(out, row)
            count += 1
    return count


def _history() -> click.Command:
    def run(path: str, wanted: str, kind: str | None, output: str | None, limit: int | None, **options: Any) -> int:
        from rmqstore_spark.api import Store

        given = {**_given(options), "key": wanted}
        asked, named = understand(given, OPTIONS)
        how = {name: text for name, text in given.items() if name not in ("columns", "key")}
        with heard() as damage:
            found = Store(path, **how).history(wanted)  # type: ignore[arg-type]
        if "columns" in named:
            check_columns(asked["columns"], found.schema.names)
            found = found.select(asked["columns"])
        elif kind in (None, "table") and output is None:
            names = ["timestamp", "event", "topic", "details", "group", "queueId", "queueOffset"]
            found = found.select([*names, *(name for name in found.schema.names if name not in names)])
        rows = _put_out(found.schema, iter(found.to_batches()), kind, output, limit)
        del given["key"]  # it may be an id
        return _found(rows, [path], given, damage, f"key or id {wanted!r}")

    parameters = [
        one_path(),
        click.Argument(["wanted"], metavar="KEY_OR_ID"),
        *options_for(Use.HISTORY),
        *output_options(),
    ]
    text = "What happened to a message, in order of time. Transactions, delays, retries, who has consumed it, traces."
    return _command("history", run, parameters, text, "/data/store order-4711")


def _check() -> click.Command:
    def run(paths: Sequence[str], kind: str | None, output: str | None, limit: int | None, **options: Any) -> int:
        from rmqstore_spark.cli.progress_bar import progress_bars
        from rmqstore_spark.cli.reading import batches_of

        given = _given(options)
        shown, _ = batches_of("check", paths, given)
        # What is shown is one thing; the exit code follows what was found.
        needed = dict.fromkeys([*shown.names, "severity", "problem"])
        schema, batches = batches_of("check", paths, {**given, "columns": ",".join(needed)})
        with progress_bars():
            found = pa.Table.from_batches(batches, schema)
        if output is None and kind in (None, "table") and "columns" not in given:
            from rmqstore_spark.cli.findings import show_findings

            show_findings(found, limit)
        else:
            _put_out(shown, iter(found.select(shown.names).to_batches()), kind, output, limit)
        if {"error", "warning"} & set(found.column("severity").to_pylist()):
            return WRONG
        return NOT_ALL if "notLookedAt" in found.column("problem").to_pylist() else FINE

    parameters = [some_paths(), *table_options(table("check")), *output_options(_OF_FINDINGS)]
    text = (
        "What is wrong with a store, or suspicious. The whole log is read, and compared with queues, index files, "
        "config and offsets. Exit code 1: there are errors or warnings; 3: there are none where it could look."
    )
    return _command("check", run, parameters, text, "/data/store")


def _explain() -> click.Command:
    def run(paths: Sequence[str], **options: Any) -> None:
        from rmqstore_spark.read.explain import explanation

        click.echo(explanation(list(paths), _given(options)))

    parameters = [some_paths(), *options_for(Use.MESSAGES)]
    text = "How `messages` with these options would find its rows, and what that costs."
    return _command("explain", run, parameters, text, "/data/store --key order-4711")


def _rebuild() -> click.Command:
    def run(path: str, **options: Any) -> None:
        from rmqstore_spark.cli.progress_bar import progress_bars

        with progress_bars():
            count = rmqstore_spark.rebuild(path, **_given(options))
        click.echo(f"the queues have {counted(count, 'message')}")

    parameters = [one_path(), *options_for(Use.REBUILD, WRITE_OPTIONS)]
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
        paths: Sequence[str],
        kind: str | None,
        output: str | None,
        limit: int | None,
        messageIndexEnable: bool | None,
        **options: Any,
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
            made = make(target, messageIndexEnable=messageIndexEnable is not False, **given)
        click.echo(f"{target} has {counted(made.messages, 'message')}", err=True)
        if output is not None or (kind or "table") != "table":
            _put_out(made.lost.schema, iter(made.lost.to_batches()), kind, output, limit)
        elif made.lost.num_rows:
            from rmqstore_spark.cli.findings import show_findings

            show_findings(made.lost, limit)
        return WRONG if name == "salvage" and made.lost.num_rows else FINE

    parameters: list[click.Parameter] = [
        some_paths("SOURCE... TARGET"),
        *options_for(Use.MESSAGES | Use.COPIES),
        *options_for(Use.COPIES, WRITE_OPTIONS),
        *output_options(_OF_FINDINGS),
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
