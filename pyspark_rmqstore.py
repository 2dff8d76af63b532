"""Spark's way to find the source: it imports every top-level `pyspark_*` module when it meets an unknown format.

One such module that raises hides all the others, so nothing here may: without a working rmqstore_spark there is simply
no DefaultSource.
"""

try:
    from rmqstore_spark.spark.datasource import RmqStoreDataSource as DefaultSource
except Exception as why:
    import warnings

    warnings.warn(f"rmqstore is not available: {why}", ImportWarning, stacklevel=1)
else:
    __all__ = ["DefaultSource"]
