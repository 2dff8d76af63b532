"""An executor that has another store than the driver, or none, says so with its name. This is the quick proof;
test_other_stores.py has every way to read and to be wrong."""

from __future__ import annotations

import re
import shutil
import socket
from typing import Any

import pytest
from support import replacing
from support.machines import Machines
from support.spark_cluster import HOSTS
from support.spark_driver import JobFailedError

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]


def rows(spark: Any, path: str, **options: Any) -> list[Any]:
    """What two tasks read, with where they ran and with which package."""
    import pyarrow as pa

    def placed(batches: Any) -> Any:
        import socket
        import time

        import rmqstore_spark

        time.sleep(3)  # the other task does not wait for this one's machine, even if its own is slow to begin
        for batch in batches:
            places = [pa.array([text] * len(batch)) for text in (socket.gethostname(), rmqstore_spark.__file__)]
            yield pa.RecordBatch.from_arrays([*batch.columns, *places], names=["keys", "host", "package"])

    loaded = spark.read.format("rmqstore").options(columns="keys", minPartitions=2, **options).load(path)
    found = loaded.mapInArrow(placed, "keys string, host string, package string").collect()
    return [tuple(row) for row in found]


def test_each_machine_has_its_own_store(quick_machines: Machines) -> None:
    machines = quick_machines
    path = machines.stores / "broker"
    replacing.built(path)
    for host in HOSTS:
        shutil.copytree(path, machines.disks[host] / "broker")
    with machines.driver({"spark.task.maxFailures": "1"}) as driver:
        for _ in range(40):  # on a busy machine one executor may take all tasks before the other one has begun
            found = driver(rows, str(path))
            if len({host for _, host, _ in found}) > 1:
                break
        assert sorted(keys for keys, _, _ in found) == sorted(f"k{number}" for number in range(600))
        assert {host for _, host, _ in found} == {"worker-1", "worker-2"}
        (package,) = {package for _, _, package in found}
        assert package.startswith(str(machines.home / "job"))

        replacing.another(machines.disks[HOSTS[1]] / "broker")
        with pytest.raises(JobFailedError) as error:
            driver(rows, str(path), mode="DROPMALFORMED")
        assert re.search(
            rf"this executor \(worker-2\) sees another store under {path} than the plan: {path}/commitlog/\d+: "
            r"position \d+ \(commitLogOffset \d+\): expected a message \(storeSize .*\), found a message \(storeSize",
            str(error.value),
        )

        replacing.gone(machines.disks[HOSTS[0]] / "broker")
        shutil.rmtree(machines.disks[HOSTS[1]] / "broker")
        with pytest.raises(JobFailedError) as error:
            driver(rows, str(path))
        assert re.search(
            rf"this executor \(worker-[12]\) does not see the driver's directories: expected {path}/commitlog/\d+, "
            "found no such directory; give every executor the same store",
            str(error.value),
        )
    assert socket.gethostname() not in ("worker-1", "worker-2")
