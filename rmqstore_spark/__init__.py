"""Apache RocketMQ store directories as a Spark data source, without a broker.

>>> spark.read.format("rmqstore").load("/data/broker-a/store").groupBy("topic", "queueId").count().show()

The same without Spark, as Arrow tables:

>>> rmqstore_spark.Store("/data/broker-a/store").topics()
"""

from typing import TYPE_CHECKING, Literal

from rmqstore_spark.errors import (
    BadRowError,
    DamagedStoreError,
    DataLossError,
    DeletedMeanwhileError,
    NotAStoreError,
    OptionError,
    RmqStoreError,
    StorageError,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rmqstore_spark.api import Store
    from rmqstore_spark.option_texts import Path, Paths

    __version__: str

__all__ = [
    "BadRowError",
    "DamagedStoreError",
    "DataLossError",
    "DeletedMeanwhileError",
    "NotAStoreError",
    "OptionError",
    "RmqStoreError",
    "StorageError",
    "Store",
    "__version__",
    "explain",
    "rebuild",
    "register",
    "storage_options",
    "write_store",
]


def __getattr__(name: str) -> object:
    """What takes long to load is loaded when it is asked for."""
    if name == "Store":
        from rmqstore_spark.api import Store

        return Store
    if name == "__version__":
        return _version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("rmqstore-spark")
    except PackageNotFoundError:  # a checkout that was never installed
        return "0+unknown"


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def rebuild(store: "Path", **options: object) -> int:
    """Make ConsumeQueue and IndexFile anew from the commitlog, as a broker would have built them.

    No broker may run on the store. It may be what a crashed one left (`abort`): afterwards a broker starts on it as
    after a clean stop. All is made beside what is there, and takes its place at once; the commitlog is only read.

    Args:
        store: the store directory.
        options: of the write options those that give sizes (mappedFileSizeConsumeQueue, maxHashSlotNum, maxIndexNum),
            as in broker.conf, where there are no files left to tell; and messageIndexEnable=False for no index files.

    Returns:
        How many messages the queues have got.

    Raises:
        RmqStoreError: it cannot be done; the store is as it was.
    """
    from rmqstore_spark.api import rebuild as rebuild_store

    return rebuild_store(store, **options)


def write_store(
    path: "Path",
    data: object,
    mode: "Literal['append', 'overwrite']" = "append",
    **options: object,
) -> int:
    """Write messages into a store, or make one of them: what `df.write.format("rmqstore")` does, without Spark.

    >>> rmqstore_spark.write_store("/data/test-store", pa.table({"topic": ["Orders"], "body": [b"1"]}))

    All of them are written, or none. Memory does not grow with their number.

    Args:
        path: the store directory; it is made if it is not there.
        data: an Arrow table, a reader (as `Store.messages` gives), record batches, or anything that is an Arrow stream,
            such as a DataFrame of Polars or pandas. The columns are those of a read; docs/writing.md tells which.
        mode: `append` adds to a store; `overwrite` replaces all of it.
        options: the write options; docs/options.md has the table of them.

    Returns:
        How many messages were written: 0 where `txnVersion` says that they have been before.

    Raises:
        BadRowError: naming row and column.
        RmqStoreError: it cannot be done. Nothing was written.
    """
    from rmqstore_spark.api import write_store as write_rows

    return write_rows(path, data, mode, **options)


def register(spark: "SparkSession") -> None:
    """Make `format("rmqstore")` known to a session.

    Not needed after `pip install`: Spark finds the source by itself, through the module `pyspark_rmqstore`. It is for
    the places where Spark does not look: a checkout that is only on the driver's sys.path, or a session whose first
    look-up failed because of another package.
    """
    _check_session(spark)
    from rmqstore_spark.spark.datasource import RmqStoreDataSource

    spark.dataSource.register(RmqStoreDataSource)


def storage_options(spark: "SparkSession", bucket: str | None = None) -> dict[str, str]:
    """What a session says of S3 in `fs.s3a.*` (keys, token, endpoint, region), as options of ours.

    They are for the reader, which does not see a session's configuration, and for Store.

    >>> spark.read.format("rmqstore").options(**storage_options(spark)).load("s3a://bucket/store")

    Args:
        bucket: with it `fs.s3a.bucket.<bucket>.*` counts, too.

    Returns:
        Options with secrets in them: never print or log them. What a credential provider would find out is not there;
        environment variables serve the workers as well.

    Raises:
        OptionError: the session is one of Spark Connect's.
    """
    _check_session(spark)
    from rmqstore_spark.option_texts import TEXT, text_of
    from rmqstore_spark.spark.hadoop import storage_options as options_of_session

    return options_of_session(spark, None if bucket is None else text_of("bucket", bucket, TEXT))


def _check_session(spark: object) -> None:
    if not hasattr(spark, "dataSource"):
        raise OptionError(f"spark: expected a SparkSession, found another value (of type {type(spark).__name__})")


def explain(path: "Paths", **options: object) -> None:
    """Print how `spark.read.format("rmqstore").options(**options).load(path)` would find its messages, and why so.

    Needs no Spark. The plan is made as for the read, so it also shows what planning itself costs.

    Raises:
        RmqStoreError: as the read itself would.
    """
    from rmqstore_spark.read.explain import explanation

    print(explanation(path, options))
