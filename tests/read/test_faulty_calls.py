"""A read of which any system call fails, brings less than it was asked for, or finds other files than the call before,
gives right rows or one error of ours.

In each mode, on each way to messages, in each table.

Each call of each read fails (EIO), or is short, for `rare kinds, each call` alone: exhaustive for that store. All other
stores have a sample: each `step`-th call of each read, from a drawn one on. What changes, grows, shrinks, vanishes or
stalls before a call is sampled, too: some changes, before each `step`-th call.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from oracle import stores
from support import flavours, rare_kinds
from support.faulty_program import faulty_library, ran

from rmqstore_spark import Store

SAMPLE = Path(__file__).resolve().parents[2] / "sample_store"
NIGHTLY = [pytest.mark.long, pytest.mark.nightly]


@pytest.fixture(scope="module")
def faulty_calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return faulty_library(tmp_path_factory.mktemp("faulty"))


def sample(directory: Path) -> Path:
    return shutil.copytree(SAMPLE, directory / "store")


def long_queue(directory: Path) -> Path:
    """One whose units are not read at once."""
    builder = stores.StoreBuilder(directory / "store", 1 << 20, 20_000, index=True)
    for _ in range(300):
        builder.append(keys="key")
    builder.close()
    return builder.root


def light_and_static(directory: Path) -> Path:
    found = Store(rare_kinds.light_and_static(directory / "store"))
    assert found.table("logicqueues").num_rows == 1
    assert found.messages("body", subscribe="%LMQ%a").read_all().num_rows == 20
    return directory / "store"


def rare_ones(directory: Path) -> Path:
    return rare_kinds.light_and_static(directory / "store", batches=True)


def flavour(name: str) -> Callable[[Path], Path]:
    return lambda directory: flavours.unpack_store(name, directory)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "step"),
    [
        pytest.param(sample, 300, id="sample"),
        pytest.param(sample, 30, id="sample closely", marks=NIGHTLY),
        pytest.param(light_and_static, 400, id="light and static", marks=pytest.mark.long),
        pytest.param(light_and_static, 20, id="light and static closely", marks=NIGHTLY),
        pytest.param(rare_ones, 1, id="rare kinds, each call", marks=NIGHTLY),
        pytest.param(long_queue, 40, id="a long queue", marks=pytest.mark.long),
        *(
            pytest.param(flavour(name), step, id=name, marks=NIGHTLY if name.endswith("v2") else pytest.mark.long)
            for name, step in (
                ("batchcq", 150),
                ("compaction2", 300),
                ("dledger", 150),
                ("rocksdb-all", 300),
                ("rocksdb-all-v2", 150),
                ("system", 300),
                ("tiered", 150),
            )
        ),
    ],
)
def test_rows_are_right_or_it_is_told(
    faulty_calls: Path, tmp_path: Path, rng: random.Random, make: Callable[[Path], Path], step: int
) -> None:
    root = make(tmp_path)
    wrong, counts = ran(faulty_calls, "support.faulty_reads", root, step, rng.random())
    assert wrong == []
    tried, told = map(int, re.findall(r"\d+", counts))
    assert tried > told > 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("remote", "step", "some"),
    [
        pytest.param([], 150, 1, id="disk"),
        pytest.param([], 61, 5, id="disk closely", marks=NIGHTLY),
        pytest.param(["--only", "stalls, "], 300, 2, id="disk that stalls", marks=pytest.mark.long),
        pytest.param(["--remote"], 26, 4, id="bucket", marks=NIGHTLY),
    ],
)
def test_files_that_change_meanwhile(
    faulty_calls: Path, tmp_path: Path, rng: random.Random, remote: list[str], step: int, some: int
) -> None:
    """As a broker changes them, or anything else; or a call takes half a second, which changes nothing."""
    given = ["--step", step, "--some", some, "--seed", rng.random(), "--count", 30]
    wrong, counts = ran(faulty_calls, "support.changing_reads", tmp_path, *remote, *given)
    assert wrong == []
    assert int(counts.split()[0]) > 50
