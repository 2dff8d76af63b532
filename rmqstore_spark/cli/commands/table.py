"""`rmqstore TABLE`: a command for each table."""

from collections.abc import Sequence

import click
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore_spark.cli.command import command
from rmqstore_spark.cli.exit_codes import FINE
from rmqstore_spark.cli.output import Output, code_after, say_nothing
from rmqstore_spark.cli.parameters import group_option, output_options, some_paths, table_options
from rmqstore_spark.read.run.damage_reports import listening
from rmqstore_spark.tables.registry import table

_GROUP = "group"  # the column of consumer groups
_TOPICS = "topics"  # the table whose bytes are shown where they cost little
# What most people come for, first on the screen: a terminal does not have space for all columns.
_FIRST = {
    "topics": ["topic", "kind", "queues", "messages", "bytes", "lastStoreTimestamp", "readQueueNums"],
    "queues": ["topic", "queueId", "messages", "minOffset", "maxOffset", "lastStoreTimestamp", "sizeOnDisk"],
    "groups": ["group", "topics", "retryMaxTimes"],
    "offsets": ["group", "topic", "queueId", "lag", "lagMillis", "consumerOffset", "maxOffset"],
    "segments": ["file", "state", "allocated", "lastStoreTimestamp", "firstStoreTimestamp"],
    "checkpoint": ["abort", "locked"],
    "logicqueues": [
        "topic",
        "logicQueueId",
        "brokerName",
        "queueId",
        "logicOffset",
        "minLogicOffset",
        "maxLogicOffset",
    ],
    "indexfiles": ["file", "items", "beginTimestamp", "endTimestamp"],
    "index": ["keyHash", "commitLogOffset", "storeTimestamp", "item", "previousItem"],
    "delayed": ["deliverTimestamp", "state", "realTopic", "keys", "kind", "delayLevel", "msgId"],
    "transactions": ["state", "realTopic", "keys", "storeTimestamp", "checkTimes", "producerGroup", "msgId"],
    "inflight": ["group", "topic", "queueId", "queueOffset", "visibleTimestamp", "retries"],
    "traces": ["timestamp", "traceType", "topic", "keys", "group", "success", "costMillis", "clientHost", "msgId"],
}


def _bytes_are_quick(paths: Sequence[str], given: dict[str, str]) -> bool:
    """Are the bytes of topics known in a moment, in all of the stores?"""
    from rmqstore_spark.cli.reading import stores_of
    from rmqstore_spark.jobs.summary import are_bytes_quick

    where = {option: text for option, text in given.items() if option == "storePathCommitLog"}
    with listening(is_silent=True):  # what the table says as well
        return all(map(are_bytes_quick, stores_of(paths, where, with_queue_logs=True)))


def table_command(name: str) -> click.Command:
    """The command that shows a table."""
    found = table(name)

    def show(paths: Sequence[str], output: Output, given: dict[str, str], group: str | None = None) -> int:
        from rmqstore_spark.cli.reading import batches_of

        is_shown = output.is_table and "columns" not in given
        if is_shown and name == _TOPICS and ("bytes" in (output.sort or "") or _bytes_are_quick(paths, given)):
            given = {**given, "columns": ",".join([*found.schema.names, "bytes"])}
        if group is None:
            schema, batches = batches_of(name, paths, given)
        else:
            schema, _ = batches_of(name, paths, given)
            needed = ",".join(dict.fromkeys([*schema.names, _GROUP]))
            _, all_groups = batches_of(name, paths, {**given, "columns": needed})
            batches = (batch.filter(pc.equal(batch[_GROUP], group)).select(schema.names) for batch in all_groups)
        if is_shown:
            known = set(schema.names)
            order = [*dict.fromkeys([*(each for each in _FIRST.get(name, ()) if each in known), *schema.names])]
            batches = (batch.select(order) for batch in batches)
            schema = pa.schema([schema.field(each) for each in order])
        with listening(is_once=True) as damage:
            if not output.put(schema, batches):
                say_nothing(given, paths, found.row, "" if group is None else f"group {group!r}")
        return FINE if "mode" in found.options else code_after(damage, paths)

    own = [group_option()] if _GROUP in found.schema.names else []
    return command(
        [some_paths(), *table_options(found), *own, *output_options()],
        f"One row is {found.row}. Its columns: {', '.join(found.schema.names)}.",
        "/data/store --format json",
        name,
    )(show)
