"""Where executors see another store than the driver under the same path, the right rows come, or an error that names
the executor, the path, what was expected there and what was found."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support import replacing
from support.machines import Machines
from support.patience import HANG
from support.replacing import READS
from support.spark_cluster import HOSTS
from support.spark_driver import Driver, JobFailedError

from rmqstore_spark import Store
from rmqstore_spark.tables.registry import TABLES

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

WHO = r"this executor \(worker-[12]\)"
SEES_ANOTHER = WHO + r" sees another store under {root} than the plan.*: {root}/\w+/.*: .*expected .*, found "
SEES_NOTHING = WHO + r" does not see the driver's directories: expected {root}/.*, found no such directory"
SAID: dict[Callable[[Path], None], str] = {
    **dict.fromkeys(replacing.REPLACED, SEES_ANOTHER),
    replacing.unmounted: SEES_NOTHING,
    replacing.gone: SEES_NOTHING,
}


@pytest.fixture(scope="module")
def driver(machines: Machines) -> Iterator[Driver]:
    """One that gives up at once: where only one machine is wrong, the next try on another one may go well."""
    with machines.driver({"spark.task.maxFailures": "1"}) as found:
        yield found


@pytest.fixture(scope="module")
def patient(machines: Machines) -> Iterator[Driver]:
    """One that tries a task again, as Spark does where nobody says otherwise."""
    with machines.driver() as found:
        yield found


def on_each(machines: Machines, name: str, replace: Callable[[Path], None] | None = None) -> Path:
    """A store that each machine has, and the workers replaced so."""
    path = replacing.built(machines.stores / name)
    for host in HOSTS:
        shutil.copytree(path, machines.disks[host] / name)
        if replace is not None:
            replace(machines.disks[host] / name)
    return path


def read(spark: Any, path: str, columns: Sequence[str], limit: int | None = None, **options: Any) -> int:
    """How many rows come."""
    given = {name: str(value) for name, value in options.items()}
    loaded = spark.read.format("rmqstore").options(columns=",".join(columns), minPartitions=4, **given).load(path)
    return len((loaded if limit is None else loaded.limit(limit)).collect())


def count_or_why(spark: Any, path: str) -> int | str:
    """How many rows come, or the error."""
    try:
        return read(spark, path, ["keys"])
    except Exception as error:
        return str(error)


def read_table(spark: Any, path: str, name: str) -> int:
    return len(spark.read.format("rmqstore").option("table", name).load(path).collect())


def read_twice(spark: Any, path: str, home: str) -> int:
    """What a task reads when its first try fails, and the store was replaced before that."""

    def waiting(batches: Any) -> Any:
        import time
        from pathlib import Path

        from pyspark import TaskContext

        yield from batches
        task = TaskContext.get()
        if task is not None and task.partitionId() == 0 and task.attemptNumber() == 0:
            Path(home, "read").touch()
            while not Path(home, "replaced").exists():
                time.sleep(0.05)
            raise RuntimeError("this attempt fails")

    loaded = spark.read.format("rmqstore").options(columns="keys", minPartitions=2).load(path)
    return len(loaded.mapInArrow(waiting, loaded.schema).collect())


def read_again(spark: Any, path: str, is_first: bool) -> int:
    """A second action on one DataFrame."""
    if is_first:
        spark.one_frame = spark.read.format("rmqstore").option("columns", "keys").load(path)
    return len(spark.one_frame.collect())


def there(path: Path, columns: Sequence[str], **options: Any) -> int:
    """How many rows there are without Spark."""
    of_store = {name: options.pop(name) for name in ("trust",) if name in options}
    return int(Store(path, **of_store).messages(list(columns), **options).read_all().num_rows)


def write(spark: Any, path: str) -> None:
    rows = spark.range(100).selectExpr("'T' AS topic", "BINARY(STRING(id)) AS body")
    rows.write.format("rmqstore").mode("append").save(path)


# tests/read/test_pinned.py tries all of these in one process.
HERE = (replacing.another, replacing.cut_and_gone_on, replacing.unmounted)


@pytest.mark.parametrize(
    "replace",
    [pytest.param(each, id=each.__name__, marks=() if each in HERE else pytest.mark.nightly) for each in SAID],
)
def test_each_way_to_read(machines: Machines, driver: Driver, replace: Callable[[Path], None]) -> None:
    path = on_each(machines, f"read-{replace.__name__}", replace)
    says = SAID[replace].format(root=re.escape(str(path)))
    for name in ("scan", "key", "covered"):  # tests/read has all of them
        _, columns, options = READS[name]
        with pytest.raises(JobFailedError, match=says) as error:
            driver(read, str(path), columns, mode="DROPMALFORMED", **options)
        assert "DROPMALFORMED" not in str(error.value), name
        assert "damage" not in str(error.value), name
    with pytest.raises(JobFailedError, match=says):
        driver(read, str(path), ["keys"], limit=5)


@pytest.mark.parametrize(
    "replace",
    [replacing.another, *(pytest.param(each, marks=pytest.mark.nightly) for each in (replacing.older, replacing.gone))],
)
def test_tables(machines: Machines, driver: Driver, replace: Callable[[Path], None]) -> None:
    path = on_each(machines, f"table-{replace.__name__}", replace)
    for name in sorted(TABLES)[::3]:  # tests/tables/test_registry.py hands tasks of all of them on
        with pytest.raises(JobFailedError, match=SAID[replace].format(root=re.escape(str(path)))):
            driver(read_table, str(path), name)


def test_one_that_has_grown_or_expired(machines: Machines, driver: Driver) -> None:
    """What has only grown is the same store; of what its broker has deleted the error says so."""
    path = on_each(machines, "grown", replacing.grown)
    for name, (_, columns, options) in READS.items():
        assert driver(read, str(path), columns, **options) == there(path, columns, **options) > 0, name
    path = on_each(machines, "expired", replacing.expired)
    with pytest.raises(JobFailedError, match=r"DeletedMeanwhileError: .*: the file is gone; a broker deletes expired"):
        driver(read, str(path), ["keys"])
    late = {"assign": '{"T1": [1]}', "startingOffsets": '{"T1": {"1": 90}}'}
    assert driver(read, str(path), ["keys"], **late) == 10


def test_a_mount_is_missing_on_one_machine(machines: Machines, patient: Driver) -> None:
    """Spark tries a task again, on the other machine where that is free first. So all rows may come, but never less."""
    path = on_each(machines, "unmounted")
    replacing.unmounted(machines.disks[HOSTS[1]] / "unmounted")
    says = r"this executor \(worker-2\) does not see the driver's directories"
    for _ in range(2):
        found = patient(count_or_why, str(path))
        assert found == 600 or re.search(says, str(found))
    assert re.search(says, patient.said())


def test_replaced_between_two_tries(machines: Machines, patient: Driver) -> None:
    path = replacing.built(machines.home / "shared" / "retried")
    patient.start(read_twice, str(path), str(machines.home))
    since = time.monotonic()
    while not (machines.home / "read").exists():
        assert time.monotonic() < since + HANG
        time.sleep(0.05)
    replacing.another(path)
    (machines.home / "replaced").touch()
    with pytest.raises(JobFailedError, match=SEES_ANOTHER.format(root=path)):
        patient.result()


def test_replaced_between_two_actions(machines: Machines, driver: Driver) -> None:
    path = replacing.built(machines.home / "shared" / "again")
    assert driver(read_again, str(path), is_first=True) == 600
    replacing.another(path)
    with pytest.raises(JobFailedError, match=SEES_ANOTHER.format(root=path)):
        driver(read_again, str(path), is_first=False)
    assert driver(read_again, str(path), is_first=True) == 600


def test_a_write_that_only_the_driver_sees(machines: Machines, driver: Driver) -> None:
    """Where a worker has a directory of its own there, it stays."""
    path = machines.stores / "written"
    for host in HOSTS:
        (machines.disks[host] / "written").mkdir()
    with pytest.raises(JobFailedError, match=WHO + r" does not see the driver's directories"):
        driver(write, str(path))
    assert not list(path.glob("commitlog/*"))
    for host in HOSTS:
        assert list((machines.disks[host] / "written").iterdir()) == []
    shared = machines.home / "shared" / "written"
    driver(write, str(shared))
    assert driver(read, str(shared), ["body"]) == 100
