"""Spark imports every top-level module named `pyspark_*` when it meets an unknown format, and takes its `DefaultSource`.

One module that raises would hide all the others, so nothing here may: without a working rmqstore_spark there is simply no
DefaultSource.
"""

try:
    from rmqstore_spark.datasource import RmqStoreDataSource as DefaultSource
except Exception as why:
    import warnings

    warnings.warn(f"rmqstore is not available: {why}", ImportWarning, stacklevel=1)
else:
    __all__ = ["DefaultSource"]
