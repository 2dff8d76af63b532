"""A driver of Spark's in a process of its own, that runs functions of a test: it may have another Python, another
package and other settings than the tests, and be killed."""

from __future__ import annotations

import os
import pickle
import select
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark import cloudpickle as _untyped

cloudpickle: Any = _untyped

# What is called gets the session first. It has the functions by value, so it needs no module of the tests.
_LOOP = """
import os, pickle, sys

calls, answers = os.fdopen(int(sys.argv[1]), "rb"), os.fdopen(int(sys.argv[2]), "wb")
settings = pickle.load(calls)

from pyspark.sql import SparkSession

spark = SparkSession.builder.config(map=settings).getOrCreate()
while True:
    try:
        function, arguments, options = pickle.load(calls)
    except EOFError:
        break
    try:
        answer = True, function(spark, *arguments, **options)
    except Exception as error:
        answer = False, f"{type(error).__name__}: {error}"
    pickle.dump(answer, answers)
    answers.flush()
spark.stop()
"""
_SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.authenticate.socketTimeout": "1h",
    # All executors are there before the first task is given to one of them.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
}


class JobFailedError(Exception):
    """What was called in the driver has failed; its words."""


class Driver:
    """A driver that runs. A context manager.

    Args:
        home: the directory that it is started in; its log is put there.
        python: what it runs.
        settings: of the session, beside those that all have.
        environment: what is other than in this process; None: not set at all.
    """

    def __init__(
        self,
        home: Path,
        python: str | Path,
        settings: Mapping[str, str],
        environment: Mapping[str, str | None],
    ) -> None:
        self._log = home / "driver.log"
        kept = {**os.environ, "PYTHONPATH": None, **environment}
        theirs, self._calls = _pipe(write_end=True)
        self._answers, ours = _pipe(write_end=False)
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(python), "-c", _LOOP, str(theirs), str(ours)],
                pass_fds=[theirs, ours],
                env={name: value for name, value in kept.items() if value is not None},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=home,
            )
        os.close(theirs)
        os.close(ours)
        java = {"spark.executor.extraJavaOptions": os.environ["SPARK_SUBMIT_OPTS"]}
        pickle.dump({**_SETTINGS, **java, **settings}, self._calls)
        self._calls.flush()  # its session begins, and executors come, without a call

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.process.terminate()  # it may wait for what never comes
        self._calls.close()
        self._answers.close()
        self.process.wait()

    def start(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        """Have a function called; result() waits for it. Its module's other functions go with it."""
        module = sys.modules[function.__module__]
        cloudpickle.register_pickle_by_value(module)
        try:
            self._calls.write(cloudpickle.dumps((function, arguments, options)))
        finally:
            cloudpickle.unregister_pickle_by_value(module)
        self._calls.flush()

    @property
    def has_answered(self) -> bool:
        """Whether the function has ended, and result() need not wait."""
        return bool(select.select([self._answers], [], [], 0)[0])

    def result(self) -> Any:
        """What the function gave.

        Raises:
            JobFailedError: it has failed.
        """
        try:
            is_done, answer = pickle.load(self._answers)
        except EOFError:
            raise AssertionError(f"the driver has ended:\n{self.said()[-5000:]}") from None
        if not is_done:
            raise JobFailedError(answer)
        return answer

    def __call__(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """What a function gives."""
        self.start(function, *arguments, **options)
        return self.result()

    def said(self) -> str:
        """What it has logged, with what its Python workers have."""
        return self._log.read_text(errors="replace")


def _pipe(write_end: bool) -> tuple[Any, Any]:
    """Both ends of a pipe, the one to read from first; one of them as a file."""
    reading, writing = os.pipe()
    return (reading, os.fdopen(writing, "wb")) if write_end else (os.fdopen(reading, "rb"), writing)
