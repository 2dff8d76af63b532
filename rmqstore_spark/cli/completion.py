"""What a shell completes for options: columns, and the topics and groups of the store that stands on the line; and
stores by their paths, as the shell itself does. What cannot be found out is not completed, without a word."""

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator

import click
from click.shell_completion import CompletionItem, FishComplete, add_completion_class, shell_complete

from rmqstore_spark.columns import COLUMNS
from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.jobs.lag import COLUMNS as LAG_COLUMNS
from rmqstore_spark.tables.registry import TABLES, table

__all__ = ["COMPLETED", "directories", "files", "shell_complete", "words"]  # shell_complete knows Fish, below

Complete = Callable[[click.Context, click.Parameter, str], list[str]]
CompletePath = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


@add_completion_class
class Fish(FishComplete):
    """As click's own, which cuts off what comes after a comma."""

    source_template = FishComplete.source_template.replace('string split ","', 'string split --max 1 ","')


def words(known: Iterable[str]) -> Complete:
    """One of some words."""
    some = tuple(known)
    return lambda ctx, parameter, begin: [word for word in some if word.startswith(begin)]


def directories(ctx: click.Context, parameter: click.Parameter, begin: str) -> list[CompletionItem]:
    """Directories: the shell knows them."""
    return [CompletionItem(begin, type="dir")]


def files(ctx: click.Context, parameter: click.Parameter, begin: str) -> list[CompletionItem]:
    """Files, and directories on the way to them."""
    return [CompletionItem(begin, type="file")]


def _columns(ctx: click.Context, parameter: click.Parameter, begin: str) -> list[str]:
    """Comma-separated columns of the command's rows."""
    name = ctx.command.name or ""
    if name == "history":
        from rmqstore_spark.jobs.history import SCHEMA

        return _last_of_some(begin, SCHEMA.names)
    if name in TABLES:
        return _last_of_some(begin, [*table(name).schema.names, *(column.name for column in table(name).by_name)])
    return _last_of_some(begin, LAG_COLUMNS if name == "lag" else COLUMNS)


def _parts(ctx: click.Context, parameter: click.Parameter, begin: str) -> list[str]:
    """What a directory of files may be divided by."""
    return _last_of_some(begin, ["day", "hour", *COLUMNS])


def _usage_by(ctx: click.Context, parameter: click.Parameter, begin: str) -> list[str]:
    names = table("usage").schema.names
    return _last_of_some(begin, names[: names.index("messages")])


def _last_of_some(begin: str, known: Iterable[str]) -> list[str]:
    before, comma, last = begin.rpartition(",")
    return [f"{before}{comma}{name}" for name in known if name.startswith(last)]


def _topics(ctx: click.Context, parameter: click.Parameter, begin: str) -> list[str]:
    return _last_of_some(begin, sorted({topic for topics, _ in _names(ctx) for topic in topics}))


def _groups(ctx: click.Context, parameter: click.Parameter, begin: str) -> list[str]:
    return words(sorted({group for _, groups in _names(ctx) for group in groups}))(ctx, parameter, begin)


def _group_starts(ctx: click.Context, parameter: click.Parameter, begin: str) -> list[str]:
    """A group, and where it may go on."""
    group, equals, place = begin.partition("=")
    if equals:
        return [f"{group}={known}" for known in ("earliest", "latest") if known.startswith(place)]
    return [f"{name}=" for name in _groups(ctx, parameter, begin)]


def _starts(ctx: click.Context, parameter: click.Parameter, begin: str) -> list[str]:
    groups = [f"group:{group}" for group in _groups(ctx, parameter, "")] if begin.startswith("g") else []
    return words(["earliest", "latest", *(groups or ["group:"])])(ctx, parameter, begin)


def _names(ctx: click.Context) -> Iterator[tuple[set[str], set[str]]]:
    """The topics and the groups of each store on the line."""
    from rmqstore_spark.cli.reading import stores_of
    from rmqstore_spark.store.structures.config import group_entries

    # Where the option that is completed comes last, click has not given the other words to parameters.
    given = [*(ctx.params.get("paths") or ()), *filter(None, [ctx.params.get("path")])] or ctx.args
    logging.disable()
    for path in given:  # one by one, as a copy's target is no store yet
        with contextlib.suppress(RmqStoreError, OSError):
            for store in stores_of([path], {}):
                groups = {*group_entries(store.root, store.files), *(group for group, _ in store.consumer_offsets)}
                yield store.known_topics, groups


# By the option's name.
COMPLETED: dict[str, Complete | CompletePath] = {
    "columns": _columns,
    "sort": _columns,
    "subscribe": _topics,
    "group": _groups,
    "startingOffsets": _starts,
    "excludeTopic": _topics,
    "groupOffset": _group_starts,
    "by": _usage_by,
    "partition_by": _parts,
    "storePathCommitLog": directories,
    "tiered": directories,
    "configFrom": directories,
}
