"""What is in a store: `make demo`, or python examples/demo.py STORE."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

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

    print("The keys used most (only the column `keys` is decoded for this):")
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


def main() -> None:
    spark = quiet_spark()
    try:
        show(spark, sys.argv[1] if len(sys.argv) > 1 else str(SAMPLE_STORE))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
