"""What is in a store: `make demo`, or python examples/demo.py STORE."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from rmqstore_spark.cli.main import exit_code

HERE = Path(__file__).resolve().parent
SAMPLE_STORE = HERE.parent / "sample_store"


def quiet_spark() -> SparkSession:
    """A local Spark that prints nothing but errors."""
    # PySpark 4.3 remarks at every start that pandas 3 is new to it.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    return (
        SparkSession.builder.master("local[2]")
        .appName("rmqstore demo")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={(HERE / 'log4j2.properties').as_uri()}")
        .getOrCreate()
    )


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Says what it waits for, and how long that took."""
    print(f"{what} ... ", end="", flush=True)
    begin = time.monotonic()
    yield
    print(f"{time.monotonic() - begin:.0f} s")


def show(spark: SparkSession, store: str) -> None:
    messages = spark.read.format("rmqstore").load(store)

    print(f"\nMessages in {store}, by topic and queue:")
    (
        messages.groupBy("topic", "queueId")
        .agg(
            F.count("*").alias("messages"),
            F.min("queueOffset").alias("first"),
            F.max("queueOffset").alias("last"),
            F.sum(F.length("body")).alias("body bytes"),
            F.min("storeTimestamp").alias("since"),
        )
        .orderBy("topic", "queueId")
        .show(1000, truncate=32)
    )

    print("The first five:")
    (
        messages.orderBy("commitLogOffset")
        .select(
            *("topic", "queueId", "queueOffset", "tags", "keys", "storeTimestamp", "bornHost"),
            F.substring(F.col("body").cast("string"), 1, 24).alias("body starts"),
        )
        .limit(5)
        .show(truncate=False)
    )

    print("The keys used most (only the column `keys` is decoded for this):", flush=True)
    (
        spark.read.format("rmqstore")
        .schema("keys string")
        .load(store)
        .select(F.explode(F.split("keys", " ")).alias("key"))
        .groupBy("key")
        .count()
        .orderBy(F.desc("count"), "key")
        .limit(5)
        .show(truncate=False)
    )


def main() -> int:
    store = sys.argv[1] if len(sys.argv) > 1 else str(SAMPLE_STORE)
    with waiting("Starting Spark, which takes some seconds (up to a minute on a busy machine)"):
        spark = quiet_spark()
    try:
        show(spark, store)
    finally:
        with waiting("Stopping Spark"):
            spark.stop()
    print("\nThe same store at a terminal, without Spark:\n\n$ rmqstore show", store, flush=True)
    return exit_code(["show", store])


if __name__ == "__main__":
    sys.exit(main())
