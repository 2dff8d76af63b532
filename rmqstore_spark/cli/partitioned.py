"""Rows as a directory of Parquet files, one part for each value of some columns: `topic=Orders/hour=2026-11-21T00/`."""

import os
import secrets
import shutil
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from rmqstore_spark.cli.output_file import refuse_in_store
from rmqstore_spark.errors import OptionError, one_line

Batches = Iterator[pa.RecordBatch]

_TIME = "storeTimestamp"
# Parts of the store time (UTC) that have no column of their own.
_OF_TIME: dict[str, Callable[[pa.Array], pa.Array]] = {
    "day": lambda times: pc.strftime(times, "%Y-%m-%d"),
    "hour": lambda times: pc.strftime(times, "%Y-%m-%dT%H"),
}
_MOST_PARTS = 10_000


def names_of(text: str) -> list[str]:
    """The columns in a `--partition-by`, in order."""
    names = [name.strip() for name in text.split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise OptionError(f"--partition-by: expected different columns, comma-separated, found {text!r}")
    return names


def needed(names: list[str]) -> list[str]:
    """The columns that have to be read for these parts."""
    return list(dict.fromkeys(_TIME if name in _OF_TIME else name for name in names))


def write(schema: pa.Schema, batches: Batches, path: str, names: list[str]) -> None:
    """Write rows to a new directory, which appears only when it is complete. The columns of the parts are in the names
    of directories (Hive's form), and not in the files.

    Args:
        names: columns of the schema; `day` and `hour` are those of storeTimestamp, in UTC.

    Raises:
        OptionError: there is something at the path, the path is in a store, or a column cannot be a part's name.
    """
    target = os.path.realpath(path)
    if os.path.lexists(target):
        raise OptionError(f"--output {one_line(path)}: something is there already; give the name of a new directory")
    refuse_in_store(path, target)
    for name in names:
        kind = pa.string() if name in _OF_TIME else schema.field(name).type
        if not (pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
            raise OptionError(f"--partition-by {name}: a column of this type cannot be in the name of a directory")
    for name in _OF_TIME.keys() & set(names):
        schema = schema.append(pa.field(name, pa.string()))
    parts = ds.partitioning(pa.schema([schema.field(name) for name in names]), flavor="hive")
    failed: list[BaseException] = []

    def rows() -> Batches:
        try:
            for batch in batches:
                yield _with_parts(batch, schema)
        except BaseException as why:  # raised below: where pyarrow's source fails, its threads may outlive the process
            failed.append(why)

    made = f"{os.path.join(os.path.dirname(target), '.' + os.path.basename(target)[:50])}.{secrets.token_hex(8)}"
    try:
        ds.write_dataset(
            rows(),
            made,
            schema=schema,
            format="parquet",
            partitioning=parts,
            max_partitions=_MOST_PARTS,
            file_options=ds.ParquetFileFormat().make_write_options(compression="zstd"),
        )
        if failed:
            raise failed[0]
        os.rename(made, target)
    except pa.ArrowInvalid as why:
        shutil.rmtree(made, ignore_errors=True)
        raise OptionError(f"--partition-by {','.join(names)}: {why}") from None
    except OSError as why:
        shutil.rmtree(made, ignore_errors=True)
        raise OptionError(f"--output {one_line(path)}: cannot be written: {why.strerror or why}") from None
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _with_parts(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    for name in schema.names[batch.num_columns :]:
        times = batch.column(_TIME).cast(pa.timestamp("s"), safe=False)
        batch = batch.append_column(schema.field(name), _OF_TIME[name](times))
    return batch
