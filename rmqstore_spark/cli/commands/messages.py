"""`rmqstore messages`: the messages, or some of them."""

from collections.abc import Sequence

from rmqstore_spark.cli.command import command
from rmqstore_spark.cli.output import MESSAGE_COLUMNS, Output, found_code
from rmqstore_spark.cli.parameters import body_options, options_for, output_options, partition_option, some_paths
from rmqstore_spark.columns import COLUMNS, DEFAULT_COLUMNS
from rmqstore_spark.query.options import MESSAGES, Use
from rmqstore_spark.read.run.damage_reports import listening


@command(
    [some_paths(), *options_for(Use.MESSAGES), *output_options(), *body_options(), partition_option()],
    f"The messages, or some of them. Their columns: {', '.join(COLUMNS)}.",
    "/data/store --subscribe Orders --output orders.parquet",
)
def messages(paths: Sequence[str], output: Output, given: dict[str, str]) -> int:
    from rmqstore_spark.cli.reading import batches_of

    if output.is_table:
        given.setdefault("columns", ",".join(MESSAGE_COLUMNS))
    if output.parts is not None:
        from rmqstore_spark.cli.partitioned import needed

        asked = given.get("columns", ",".join(DEFAULT_COLUMNS)).split(",")
        given["columns"] = ",".join(dict.fromkeys([*map(str.strip, asked), *needed(output.parts)]))
    with listening() as damage:
        rows = output.put(*batches_of(MESSAGES, paths, given))
    return found_code(rows, paths, given, damage)
