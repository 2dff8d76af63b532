"""Apache RocketMQ store directories as a Spark data source, without a broker.

>>> spark.read.format("rmqstore").load("sample_store").groupBy("topic", "queueId").count().show()

The same store without Spark, as Arrow tables:

>>> rmqstore_spark.Store("sample_store").topics()
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
    from rmqstore_spark.query.option_texts import Path, Paths

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
    """Load slow modules only when their names are first used."""
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
    """Rebuild the ConsumeQueue and index files of a store from its commitlog, as a broker would have built them.

    No broker may run on the store. A store that a crashed broker left (`abort`) is accepted: afterwards a broker starts
    on it as after a clean stop. The new files are built beside the old ones and replace them in one step. The commitlog
    is only read.

    >>> rmqstore_spark.rebuild("copy_of_sample_store")

    Args:
        store: the store directory.
        options: `mappedFileSizeConsumeQueue`, `maxHashSlotNum` and `maxIndexNum`, as in broker.conf, where no old files
            show the sizes; `messageIndexEnable=False` builds no index files.

    Returns:
        The number of messages in the new queues.

    Raises:
        RmqStoreError: the rebuild is not possible. The store is unchanged.
    """
    from rmqstore_spark.api import rebuild as rebuild_store

    return rebuild_store(store, **options)


def write_store(
    path: "Path",
    data: object,
    mode: "Literal['append', 'overwrite']" = "append",
    **options: object,
) -> int:
    """Append messages to a store, or create a store of them: `df.write.format("rmqstore")` without Spark.

    >>> orders = pa.table({"topic": ["Orders"] * 2, "body": ["paid", "shipped"]})
    >>> rmqstore_spark.write_store("test_store", orders)

    Either all messages are written or none. Memory use does not grow with their number.

    Args:
        path: the store directory; created if missing.
        data: an Arrow table, a reader (as `Store.messages` returns), record batches, or anything with the Arrow stream
            interface, such as a Polars or pandas DataFrame. docs/writing.md says which columns it may have.
        mode: `append` adds to the store; `overwrite` replaces all of it.
        options: write options, see docs/options.md.

    Returns:
        The number of messages written: 0 if `txnVersion` shows that this write has been done before.

    Raises:
        BadRowError: a row cannot become a message; the text names row and column. Nothing was written.
        RmqStoreError: the write is not possible. Nothing was written, unless the text says so.
    """
    from rmqstore_spark.api import write_store as write_rows

    return write_rows(path, data, mode, **options)


def register(spark: "SparkSession") -> None:
    """Register `format("rmqstore")` and the table functions of SQL, `rmqstore_get` and `rmqstore_history`, with a
    session.

    After `pip install` the format needs no call: Spark finds it through the module `pyspark_rmqstore`. Call this for
    the functions, in Sail, and where Spark does not look: for a checkout that is only on the driver's sys.path, in a
    session whose first look-up failed because of another package, or where `PYSPARK_DRIVER_PYTHON` names a Python
    without this package.

    >>> rmqstore_spark.register(spark)
    >>> spark.sql("SELECT timestamp, event, topic FROM rmqstore_history('sample_store', 'retried-0')").show()
    """
    _check_session(spark)
    from rmqstore_spark.spark.datasource import RmqStoreDataSource
    from rmqstore_spark.spark.functions import register_functions

    spark.dataSource.register(RmqStoreDataSource)
    register_functions(spark)


def storage_options(spark: "SparkSession", bucket: str | None = None) -> dict[str, str]:
    """Translate a session's S3 settings (`fs.s3a.*`: keys, token, endpoint, region) into options for reads and `Store`.

    A source written in Python does not see the session's configuration, so these settings have to be passed on.

    >>> options = rmqstore_spark.storage_options(spark)
    >>> spark.read.format("rmqstore").options(**options).load("s3a://stores/broker")

    Args:
        spark: the session; not one of Spark Connect, which hides these settings.
        bucket: if given, settings of `fs.s3a.bucket.<bucket>.*` override the others.

    Returns:
        Options that contain secrets: never print or log them. Credentials from a credential provider are not among
        them; set environment variables on the workers for those.

    Raises:
        OptionError: the session is one of Spark Connect.
    """
    _check_session(spark)
    from rmqstore_spark.query.option_texts import TEXT, text_of
    from rmqstore_spark.spark.hadoop import storage_options as options_of_session

    return options_of_session(spark, None if bucket is None else text_of("bucket", bucket, TEXT))


def load_ipython_extension(shell: object) -> None:
    """`%load_ext rmqstore_spark`: a notebook shows Arrow tables as people read them, a few rows with sizes and times as
    text, and a history drawn. `%unload_ext rmqstore_spark` ends that."""
    from rmqstore_spark.notebook.extension import load

    load(shell)


def unload_ipython_extension(shell: object) -> None:
    """`%unload_ext rmqstore_spark`."""
    from rmqstore_spark.notebook.extension import unload

    unload(shell)


def _check_session(spark: object) -> None:
    if not hasattr(spark, "dataSource"):
        raise OptionError(f"spark: expected a SparkSession, found another value (of type {type(spark).__name__})")


def explain(path: "Paths", **options: object) -> None:
    """Print how a read with these options would find its messages, why, and how many bytes it would read.

    Needs no Spark. Planning is done as for the read itself, so the output also shows what planning costs.

    >>> rmqstore_spark.explain("sample_store", key="retried-0")

    Args:
        path: the store directory, a glob, or a list of them.
        options: read options, see docs/options.md.

    Raises:
        RmqStoreError: the read itself would fail with the same error.
    """
    from rmqstore_spark.read.explain import explanation

    print(explanation(path, options))
