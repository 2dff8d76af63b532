"""The wrapper around every call that Spark makes of this package in a worker process."""

import functools
import gc
import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rmqstore_spark.cores import work_beside_others
from rmqstore_spark.errors import OptionError, RmqStoreError, one_line
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.io.storage import scheme_of
from rmqstore_spark.store.structures.layout import local_path

log = logging.getLogger(__name__)

LONG_SECONDS = 10.0
_SESSION = "SPARK_JOB_ARTIFACT_UUID"
_NO_SESSION = "default"  # the session of a worker that runs in the driver's own directory
_STREAM_WORKER = "pyspark.sql.streaming.python_streaming_source_runner"


@contextmanager
def called_by_spark() -> Iterator[None]:
    """The context of every call by Spark. It changes the process, so outside Spark's workers it does nothing.

    The errors this package raises on purpose reach the user as one line. Spark prints the traceback of a worker's
    error unless a variable is set; the worker ends with the error, so no later one loses its traceback.

    Garbage collection leaves out the objects that the worker has now, mostly modules. Spark collects after each task,
    and would visit the 85,000 objects of the libraries each time: 30 to 100 ms, in which the next task waits.
    """
    # All workers of Spark have this variable, except the one that a stream's source runs in.
    if _SESSION not in os.environ and not is_run_by(_STREAM_WORKER):
        yield
        return
    freeze_modules()
    work_beside_others()
    try:
        yield
    except RmqStoreError as error:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise error from None


def refuse_relative(paths: Iterable[str]) -> None:
    """Refuse relative paths where the worker runs in a directory of the session's own, as under Spark Connect. That is
    not the program's directory, and it is deleted with the session.

    Raises:
        OptionError: a path is relative.
    """
    if os.environ.get(_SESSION, _NO_SESSION) == _NO_SESSION:
        return
    files = Files()
    for path in paths:
        if scheme_of(path) is None and not os.path.isabs(local_path(path, files)):
            raise OptionError(
                f"{path}: a relative path: expected an absolute one, as Spark Connect's server looks for it in "
                f"a directory that it deletes with the session ({os.getcwd()}); give the path in full, as on the server"
            )


@contextmanager
def logged(begun: str) -> Iterator[list[str]]:
    """Log the begin, the result and the duration of work that Spark does not show. The end of work that took long is a
    warning, which workers show; the other lines are of level INFO.

    Args:
        begun: the work in words, without the user's paths: a path that is still to be refused may have a secret in it.

    Yields:
        a list to which the caller adds the results, in words.
    """
    log.info("%s", one_line(begun))
    result: list[str] = []
    start = time.monotonic()
    yield result
    seconds = time.monotonic() - start
    level = logging.WARNING if seconds >= LONG_SECONDS else logging.INFO
    log.log(level, "%s: %s, in %.1f s", *map(one_line, (begun, ", ".join(result))), seconds)


def is_run_by(module: str) -> bool:
    """Does this module of Spark run the process? The daemon imports a worker's module; without a daemon the module is
    __main__."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return module in sys.modules or getattr(spec, "name", None) == module


@functools.cache
def freeze_modules() -> None:
    """Exclude the process's present objects from garbage collection. Done once in a process: frozen objects that become
    garbage later are never freed."""
    gc.freeze()
