"""Real brokers, at most a few at a time, and none left behind.

They wait more than they work, above all when they stop. So what tests ask of them is begun ahead, two at a time.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from interop import jars, rocketmq, scenario
from interop.accept import assert_broker_accepts
from interop.rocketmq import TRIED, Sizes
from interop.scenario import Written

Pair = tuple[str, str]  # the version that wrote a store, and the one that is to accept it


@pytest.fixture(scope="session")
def real() -> None:
    """Skips, or with RMQ_INTEROP (`make interop`) fails, where RocketMQ is not to be had."""
    try:
        for version in TRIED:
            rocketmq.runtime(version)
    except jars.Unavailable as why:
        if os.environ.get("RMQ_INTEROP"):
            pytest.fail(f"no real RocketMQ: {why}", pytrace=False)
        pytest.skip(f"no real RocketMQ: {why}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """pytest puts skips of one place into one line. Those of a fixture it takes to be at each test."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        report.longrepr = (__file__, 1, report.longrepr[2])
    return report


def wanted(request: pytest.FixtureRequest, name: str, test: str | None = None) -> list[Any]:
    """What the tests here have for this parameter in this run: no store is written for a test that is not run.

    Args:
        test: only this one.
    """
    items = (item for item in request.session.items if Path(__file__).parent in item.path.parents)
    items = (item for item in items if test is None or getattr(item, "originalname", None) == test)
    specs = (getattr(item, "callspec", None) for item in items)
    return list(dict.fromkeys(spec.params[name] for spec in specs if spec and name in spec.params))


@pytest.fixture(scope="session")
def pool(real: None) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool
        pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="session")
def store_of(pool: ThreadPoolExecutor, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Written]:
    """The store that a version wrote."""

    def write(version: str, directory: Path) -> Written:
        seed = secrets.randbelow(1 << 31)
        return scenario.write(version, directory, Sizes(), seed=seed, plain=300, largest=1 << 20)

    @cache
    def written(version: str) -> Future[Written]:
        return pool.submit(write, version, tmp_path_factory.mktemp(f"written-{version}"))

    return lambda version: written(version).result()


@pytest.fixture(scope="session")
def accepted(
    request: pytest.FixtureRequest,
    pool: ThreadPoolExecutor,
    store_of: Callable[[str], Written],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[Pair], None]:
    """Whether the one version accepts the store of the other."""

    def accept(writer: str, version: str, home: Path) -> None:
        assert_broker_accepts(store_of(writer).root, home, [version], restart=False)

    tasks: dict[object, Future[None]] = {}
    for pair in wanted(request, "accepted_pair"):
        writer, version = pair
        tasks[pair] = pool.submit(accept, writer, version, tmp_path_factory.mktemp(f"accepted-{version}"))
    return lambda pair: tasks[pair].result()


@pytest.fixture(scope="session")
def acceptances() -> dict[tuple[str, str], Future[None]]:
    """By kind of store and version."""
    return {}


@pytest.fixture
def accept_ours(
    request: pytest.FixtureRequest,
    pool: ThreadPoolExecutor,
    tmp_path_factory: pytest.TempPathFactory,
    acceptances: dict[tuple[str, str], Future[None]],
) -> Callable[..., None]:
    """Whether a version accepts the store that `make(version, root)` makes for it.

    At the first version of a kind the stores for all versions of this test are made, here and now, and their brokers
    begin. More arguments go to assert_broker_accepts.
    """

    def accept(kind: str, version: str, make: Callable[[str, Path], object], **arguments: Any) -> None:
        if (kind, version) not in acceptances:
            for other in dict.fromkeys([version, *wanted(request, "version", request.node.originalname)]):
                directory = tmp_path_factory.mktemp(f"{kind}-{other}")
                make(other, directory / "store")
                acceptances[kind, other] = pool.submit(
                    assert_broker_accepts, directory / "store", directory / "home", [other], **arguments
                )
        acceptances[kind, version].result()

    return accept
