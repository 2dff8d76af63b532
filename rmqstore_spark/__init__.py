"""Apache RocketMQ store directories as a Spark data source, without a broker.

>>> spark.read.format("rmqstore").load("/data/broker-a/store").groupBy("topic", "queueId").count().show()
"""

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from rmqstore_spark.errors import DamagedStoreError, NotAStoreError, OptionError, RmqStoreError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

try:
    __version__ = version("rmqstore-spark")
except PackageNotFoundError:  # a checkout that was never installed
    __version__ = "0+unknown"

__all__ = ["DamagedStoreError", "NotAStoreError", "OptionError", "RmqStoreError", "__version__", "explain", "register"]


def register(spark: "SparkSession") -> None:
    """Make `format("rmqstore")` known to a session.

    Not needed after `pip install`: Spark finds the source by itself, through the module `pyspark_rmqstore`. It is for
    the places where Spark does not look: a checkout that is only on the driver's sys.path, or a session whose first
    look-up failed because of another package.
    """
    from rmqstore_spark.datasource import RmqStoreDataSource

    spark.dataSource.register(RmqStoreDataSource)


def explain(path: str | Sequence[str], **options: object) -> None:
    """Print how `spark.read.format("rmqstore").options(**options).load(path)` would find its messages, and why so.

    Needs no Spark. The plan is made as for the read, so it also shows what planning itself costs.

    Raises:
        RmqStoreError: as the read itself would.
    """
    from rmqstore_spark.explanation import explanation

    print(explanation(path, options))
