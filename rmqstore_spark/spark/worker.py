"""What holds for every call that Spark makes of this package in a worker process."""

import functools
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rmqstore_spark.errors import RmqStoreError

_STREAM_WORKER = "pyspark.sql.streaming.python_streaming_source_runner"


@contextmanager
def called_by_spark() -> Iterator[None]:
    """What every call of Spark's is wrapped in. It changes the process, so outside Spark's workers it does nothing.

    The errors this package raises on purpose reach the user as one line. Spark prints the traceback of a worker's
    error unless a variable is set; the worker ends with the error, so no later one loses its traceback.

    Garbage collection leaves out what the worker has now, modules for the most part. Spark collects after each task,
    and looks at each of the 85,000 objects that the libraries have made: 30 to 100 ms, in which the next task waits.
    """
    # Only Spark's workers have it, but for the one that a stream's source is in.
    if "SPARK_JOB_ARTIFACT_UUID" not in os.environ and not is_run_by(_STREAM_WORKER):
        yield
        return
    freeze_modules()
    try:
        yield
    except RmqStoreError as error:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise error from None


def is_run_by(module: str) -> bool:
    """Does a module of Spark's, by its name, run this process? The daemon imports a worker's module; without a daemon
    it is __main__."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return module in sys.modules or getattr(spec, "name", None) == module


@functools.cache
def freeze_modules() -> None:
    """Once in a process: what is frozen by then and becomes garbage later, stays."""
    gc.freeze()
