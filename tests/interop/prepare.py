"""Brings what the tests here need from elsewhere, so that they need not wait for it: `.ci/run` begins it before it
installs Python's packages. Needs Python alone.

    PYTHONPATH=tests CI=true python -m interop.prepare
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from interop import buckets, hdfs_cluster, proxies, rocketmq
from interop.jars import Unavailable


def main() -> None:
    brokers = [partial(rocketmq.runtime, version) for version in rocketmq.VERSIONS]
    others = [hdfs_cluster.command, partial(proxies.jars, rocketmq.NEWEST)]
    with ThreadPoolExecutor(2) as pool:
        pool.map(bring, ([*brokers, *others], buckets.PROGRAMS.values()))


def bring(things: Iterable[Callable[[], object]]) -> None:
    for thing in things:
        try:
            thing()
        except Unavailable as why:
            print(why)


if __name__ == "__main__":
    main()
