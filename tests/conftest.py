"""What all tests share: one Spark session, seeded randomness, and no exception that nobody sees."""

from __future__ import annotations

import faulthandler
import gc
import os
import random
import re
import secrets
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from support import distribution, failed_draws, jvm, memory, sweeps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A merge must not fail by chance over what it did not touch: in CI the random examples are always the same, those of
# Hypothesis too. Everywhere else each run has its own.
IN_CI = "CI" in os.environ
IS_DRAWN = not IN_CI and "RMQ_TEST_SEED" not in os.environ  # the seed is this run's own
SEED = os.environ.get("RMQ_TEST_SEED") or ("1" if IN_CI else str(secrets.randbelow(10**9)))
os.environ["RMQ_TEST_SEED"] = SEED  # for the workers of pytest-xdist, which must agree, and for pytest in a test
ROOT = Path(__file__).resolve().parents[1]
# What one worker has, one after the other, where there are several: all that starts Spark, a cluster of it too, so that
# there is never more than one; the brokers in some parts, of which only one needs stores that brokers write
# (`store_of`); and the store of 256 MiB. Workers begin with these, in this order: the longest first. (pytest 9 ignores
# xdist's own groups.)
TOGETHER = {
    "tests/spark/": "Spark",
    "tests/cluster/": "Spark",
    "tests/repo/test_notebook.py": "Spark",
    "tests/repo/test_packaging.py": "Spark",
    "tests/interop/test_on_a_cluster.py": "Spark",
    "tests/interop/test_follow_with_spark.py": "Spark",
    "tests/interop/test_accept.py": "brokers on what they wrote",
    "tests/interop/test_copying.py::test_a_brokers_own_store": "brokers on what they wrote",
    "tests/interop/test_interop.py": "brokers on what they wrote",
    "tests/interop/test_moved.py": "brokers on what they wrote",
    "tests/interop/test_writing.py": "brokers on what they wrote",
    "tests/interop/test_hdfs.py": "brokers' HDFS",
    "tests/interop/test_batches.py": "brokers of rarer stores",
    "tests/interop/test_compacted.py": "brokers of rarer stores",
    "tests/interop/test_dledger.py": "brokers of rarer stores",
    "tests/interop/test_light_queues.py": "brokers of rarer stores",
    "tests/interop/test_rocksdb.py": "brokers of rarer stores",
    "tests/interop/test_tiered.py": "brokers of rarer stores",
    "tests/interop/": "brokers",
    "tests/read/test_select_bytes.py": "generated",
}

# Which tests have their files in memory: those that make many small stores, but for one about the page cache.
IN_MEMORY = ("tests/read/", "tests/tables/", "tests/store/", "tests/face/", "tests/kernel/")
ON_DISK = "tests/store/test_guest.py"

# Time limits of an example mean nothing on a shared machine or under a sanitizer.
hypothesis.settings.register_profile("rmq", deadline=None, print_blob=True, derandomize=IN_CI)
hypothesis.settings.load_profile("rmq")

# Spark's workers run in the driver's Python (or else in whatever `python3` is on the PATH), and Spark binds to
# localhost whatever the machine's name resolves to. Before any JVM starts, and for the subprocesses of tests too.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
jvm.quick_spark()

# A shell starts what runs in the background with interrupts ignored, and so would be the processes of tests.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)  # after pytest's own, which shows all threads
def pytest_configure() -> None:
    """Where a test crashes the process, show the thread that did it. Of all threads Python shows the hundred newest,
    and those that wait for requests to remote files are more."""
    faulthandler.enable(os.dup(2), all_threads=False)  # of now: for each test pytest puts a file in the place of 2


def pytest_report_header() -> list[str]:
    from native_io import _common, _io, _read, _write

    kernel = [Path(str(module.__file__)) for module in (_common, _io, _read, _write)]
    wanted = os.environ.get("RMQ_SANITIZED")
    sign = b"__tsan_init" if wanted == "thread" else b"__asan_init"
    plain = [path for path in kernel if sign not in path.read_bytes()]
    if wanted and plain:
        pytest.exit(f"RMQ_SANITIZED={wanted}, but {plain[0]} was not built with that sanitizer", returncode=2)
    return [f"RMQ_TEST_SEED={SEED}", f"kernel: {kernel[0].parent}{'' if plain else ' (sanitized)'}"]


@pytest.hookimpl(tryfirst=True)  # before those who deselect by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Quick tests first, those that use the shared session last: the others that start a Spark of their own are then
    through, so that there is never one beside another in a worker. With several workers, what belongs together first
    of all."""
    group = ["", "brokers", "Spark", "Spark"]

    def order(item: pytest.Item) -> int:
        if "spark" in getattr(item, "fixturenames", ()):
            return 3
        return 2 if item.get_closest_marker("spark") else 1 if item.get_closest_marker("interop") else 0

    for item in sweeps.slow_cases(items):
        item.add_marker(pytest.mark.slow)
    for item in sweeps.samples(items):
        item.add_marker(pytest.mark.sample)
    for item in sweeps.nightly_cases(items):
        item.add_marker(pytest.mark.long)
        item.add_marker(pytest.mark.nightly)
    for item in items:
        if item.get_closest_marker("long") and not item.get_closest_marker("slow"):
            raise pytest.UsageError(f"{item.nodeid} is long and not slow: `make test-fast` would run it")
        if item.get_closest_marker("nightly") and not item.get_closest_marker("long"):
            raise pytest.UsageError(f"{item.nodeid} is nightly and not long: `make test` would run it")
    items.sort(key=order)
    if hasattr(config, "workerinput"):
        groups = list(dict.fromkeys(TOGETHER.values()))
        items.sort(key=lambda item: [*groups, together(item.nodeid)].index(together(item.nodeid)))
    astray = [item.nodeid for item in items if order(item) and not together(item.nodeid).startswith(group[order(item)])]
    if astray:
        raise pytest.UsageError(f"these may run beside others of their kind: add them to TOGETHER: {astray}")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """To collect 8,800 tests leaves no garbage, and to look for some took a fifth of the time."""
    from rmqstore_spark.garbage import collector_paused

    with collector_paused():
        found = yield
    gc.collect()
    gc.freeze()
    return found


def together(nodeid: str) -> str:
    """The name of what this test belongs to; most belong to nothing."""
    return next((name for path, name in TOGETHER.items() if nodeid.startswith(path)), nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False  # the order above, not that of how many tests there are
    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = together
    return scheduler


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("spark"):
        jvm.archive_spark()
    is_in_memory = item.nodeid.startswith(IN_MEMORY) and not item.nodeid.startswith(ON_DISK)
    place = memory.place() if is_in_memory else None
    tempfile.tempdir = None if place is None else str(place)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test in which code of ours raised where nobody could catch it, in this process or in a Spark worker.

    Python and Cython then only write "Exception ignored" to stderr. In this process pytest itself sees it (a
    PytestUnraisableExceptionWarning, hence an error); a worker's stderr ends up in what pytest captures.
    """
    report = yield
    ignored = re.search(r"Exception ignored.{0,2000}(native_io|rmqstore)", report.capstderr, re.DOTALL)
    if report.when == "call" and report.passed and ignored:
        report.outcome = "failed"
        report.longrepr = f"stderr has an ignored exception:\n{report.capstderr[ignored.start() :][:4000]}"
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """How tests that have failed with what they drew are run again. In CI, and with a seed that was given, it is known
    what they draw; else it is written down."""
    failed = [report for report in terminalreporter.getreports("failed") if "rng" in dict(report.user_properties)]
    draws = [failed_draws.Draw(SEED, report.nodeid) for report in failed]
    if draws:
        terminalreporter.section("what was drawn, again")
        terminalreporter.write("".join(f"{draw.again()}\n" for draw in draws))
    if IS_DRAWN:
        failed_draws.keep(draws)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Randomness of this test alone: the same with the same RMQ_TEST_SEED, whatever other tests run."""
    request.node.user_properties.append(("rng", True))
    return random.Random(f"{SEED} {request.node.nodeid}")


@pytest.fixture(autouse=True)
def logs_end_like_large_ones(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a short log is found without hints, and nearly all logs of tests are short. So hints are used here as
    in large ones, but for half of what is drawn."""
    seed = f"short {SEED} {request.node.nodeid}"
    if "rng" not in request.fixturenames or random.Random(seed).random() < 0.5:
        monkeypatch.setattr("rmqstore_spark.store.log_end._SHORT", 0)


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """pytest's own, or one in memory (pytest_runtest_setup)."""
    if tempfile.tempdir is None:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="rmqstore-tests-", ignore_cleanup_errors=True) as home:
        (path := Path(home, "test")).mkdir()  # tests look at what is beside it, too
        yield path


@pytest.fixture
def public_path() -> Iterator[Path]:
    """A directory that everyone may enter; those of pytest are for their owner only."""
    path = Path(tempfile.mkdtemp(prefix="rmqstore-tests-", dir=memory.place()))
    path.chmod(0o755)
    yield path
    for directory, _, _ in os.walk(path):
        os.chmod(directory, 0o755)
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def small_store() -> Path:
    """60 messages of TopicA in two queues, as RocketMQ 5.3.3's store code wrote them."""
    return ROOT / "tests" / "data" / "rocketmq-5.3.3"


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution."""
    return distribution.make_sdist(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="session")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of it."""
    return distribution.make_wheel(sdist, tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def storage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How stores are reached (support/storages.py)."""
    from support import reading

    monkeypatch.setattr(reading, "STORAGE", request.param)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("rmqstore-spark tests")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.authenticate.socketTimeout", "1h")  # a worker may connect late where much else runs
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    yield session
    session.stop()
