"""Commands need no more memory for four times the messages, consumers' offsets, or sums: what is read goes on as it
comes. Where something has to be held for each row, docs/performance.md says how much."""

from __future__ import annotations

import importlib.util
import itertools
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from oracle import stores

from rmqstore_spark import write_store

pytestmark = [pytest.mark.slow, pytest.mark.long]

GENERATOR = Path(__file__).parents[2] / "benchmarks" / "generate.py"
PEAKS = Path(__file__).parents[1] / "support" / "peaks.py"
SEGMENT = 8 << 20
SIZES = (2 * SEGMENT, 8 * SEGMENT)  # bytes of the logs: some 50,000 and 200,000 messages, of 1.5 KB in Python
MOST = 24 << 20  # bytes more; what is read ahead of need, and what an allocator keeps
# Copies hold pieces of the log that the small store does not fill, and 28 bytes for each key of an index file: 115 MiB
# with 16 MiB of log, 139 with 64, 135 with 128, 149 with 256.
MOST_OF_COPIES = 40 << 20
MOST_OF_KEYS = 12 << 20  # 82 MiB, 84, and 85 with 256 MiB of log; an allocator may keep a part of each sort
MOST_OF_HISTORY = 40 << 20  # it looks for 16,384 messages at a time, more than the small store has
WAITING = (30_000, 90_000)  # messages of each kind that a broker keeps for later: these do not fit into memory at once

CONSUMED = (1_000_000, 4_000_000)  # offsets of consumers: in 12 bytes each they would be 34 MiB more
MOST_OF_OFFSETS = 28 << 20  # 8 queues for each group and topic, which take some 50 bytes

TAGGED = (200_000, 800_000)  # messages with a tag each: some 500 bytes for each were 290 MiB more

REVIVE = "rmq_sys_REVIVE_LOG_C"

Peak = Callable[..., int]

# In each, STORE is the store, NEW a path that is free, ROWS a file with its messages.
FLAT = [
    "messages STORE --format arrow",
    "messages STORE --format arrow --as-original --body-contains paid",
    "messages STORE --format parquet --columns keys --output NEW.parquet",
    "messages STORE --format arrow --sort -keys --limit 10",
    "messages STORE --format arrow --sort -keys",
    "messages STORE --format arrow --subscribe BenchTopic00",
    "history STORE 0000000017",
    "tail STORE",
    "explain STORE --key 0000000017",
    "show STORE",
    "topics STORE",
    "lag STORE",
    "usage STORE",
    "usage STORE --by tag,hour",
    "consumequeue STORE --format arrow",
    "check STORE",
    "set-offsets STORE --group-offset G=earliest --dry-run",
    "rebuild STORE --config --dry-run",
    "copy STORE NEW --exclude-key 0000000017",
    "salvage STORE NEW",
    "import NEW ROWS",
    "rebuild STORE",
]
OF_WAITING = [
    "inflight STORE",
    *(
        pytest.param(each, marks=pytest.mark.nightly)
        for each in ("transactions STORE", "delayed STORE --format json", "history STORE hot")
    ),
]
OF_OFFSETS = [
    "offsets STORE --format arrow",
    "groups STORE --format arrow",
    "topics STORE --format arrow",
    *(
        pytest.param(each, marks=pytest.mark.nightly)
        for each in ("queues STORE --format arrow", "lag STORE", "show STORE", "check STORE", "copy STORE NEW")
    ),
]


@pytest.fixture(scope="module")
def peak() -> Iterator[Peak]:
    """The most bytes that a command has had, which succeeds."""
    with subprocess.Popen([sys.executable, PEAKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        ins, outs = process.stdin, process.stdout

        def ran(command: str, root: Path, new: Path) -> int:
            words = [
                word.replace("STORE", str(root)).replace("NEW", str(new)).replace("ROWS", f"{root}.arrow")
                for word in command.split()
            ]
            print(json.dumps(words), file=ins, flush=True)
            code, nbytes = map(int, outs.readline().split())
            assert code == 0 or command.startswith("rebuild STORE --config"), words  # which finds no groups
            return nbytes

        yield ran
        ins.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    spec = importlib.util.spec_from_file_location("generate", GENERATOR)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "generate", module)  # where dataclasses looks for it
        spec.loader.exec_module(module)
    found = []
    for size in SIZES:
        root = tmp_path_factory.mktemp("memory") / "store"
        module.generate(root, size, 100, SEGMENT)
        offsets = {f"BenchTopic{topic:02}@G": dict.fromkeys(map(str, range(8)), 17) for topic in range(4)}
        (root / "config").mkdir(exist_ok=True)
        (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
        found.append(root)
    return found


@pytest.mark.parametrize("command", FLAT)
def test_flat(pair: list[Path], peak: Peak, tmp_path: Path, command: str) -> None:
    if "ROWS" in command:
        for root in pair:
            peak("messages STORE --format arrow --output ROWS", root, root)
    few, many = (peak(command, root, tmp_path / str(number)) for number, root in enumerate(pair))
    print(f"{command}: {few >> 20} -> {many >> 20} MiB")
    assert many - few < (MOST_OF_COPIES if command.startswith(("copy", "salvage")) else MOST)


def test_flat_in_keys(pair: list[Path], peak: Peak, tmp_path: Path) -> None:
    """The last value of each key, where each message has another one."""
    topics = {f"BenchTopic{topic:02}": {"attributes": {"cleanup.policy": "COMPACTION"}} for topic in range(4)}
    peaks = []
    for root in pair:
        config = root / "config" / "topics.json"
        config.write_text(json.dumps({"topicConfigTable": topics}))
        try:
            peaks.append(
                peak("messages STORE --compacted --format arrow --output NEW", root, tmp_path / root.parent.name)
            )
        finally:
            config.unlink()
    few, many = peaks
    print(f"compacted: {few >> 20} -> {many >> 20} MiB")
    assert many - few < MOST_OF_KEYS


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Stores with half messages, delayed and timed ones, and pops."""
    found = []
    for count in WAITING:
        builder = stores.StoreBuilder(tmp_path_factory.mktemp("waiting") / "store", SEGMENT, 6_000_000)
        for number in range(count):
            put_waiting(builder, number)
        builder.close()
        found.append(builder.root)
    return found


def put_waiting(store: stores.StoreBuilder, number: int) -> None:
    def put(topic: str, body: bytes = b"x" * 100, queue_id: int = 0, tags: str | None = None, **names: str) -> None:
        names |= {"REAL_TOPIC": REVIVE if topic == REVIVE else "Orders", "REAL_QID": "0"}
        name = f"{number:032X}"
        is_hot = topic == REVIVE and number % 6 == 0  # each of them is six events of a history
        keys = f"hot key-{number}" if is_hot else f"key-{number}"
        store.append(topic, body, queue_id, tags, keys, name, names)

    put("RMQ_SYS_TRANS_HALF_TOPIC", PGROUP="P")
    put("RMQ_SYS_TRANS_OP_HALF_TOPIC", f"{number},".encode(), tags="d")
    put("SCHEDULE_TOPIC_XXXX", queue_id=number % 18)
    put("rmq_sys_wheel_timer", TIMER_OUT_MS=str(store.now + 5000))
    record = {
        "bm": 0,
        "c": "G",
        "it": 60_000_000,
        "pt": store.now,
        "q": 0,
        "so": number,
        "t": "Orders",
        "d": [0],
        "n": 1,
    }
    put(REVIVE, json.dumps(record).encode(), tags="ck")


@pytest.mark.parametrize("command", OF_WAITING)
def test_messages_that_wait(waiting: list[Path], peak: Peak, tmp_path: Path, command: str) -> None:
    few, many = (peak(command, root, tmp_path / str(number)) for number, root in enumerate(waiting))
    print(f"{command}: {few >> 20} -> {many >> 20} MiB")
    assert many - few < (MOST_OF_HISTORY if command.startswith("history") else MOST)


@pytest.fixture(scope="module")
def consumed(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Stores of 1,000 queues with many consumer groups."""
    found = []
    for count in CONSUMED:
        builder = stores.StoreBuilder(tmp_path_factory.mktemp("consumed") / "store", SEGMENT, 2_000)
        topics, queues = [f"Topic{number:03}" for number in range(125)], range(8)
        for topic, queue_id, _ in itertools.product(topics, queues, range(3)):
            builder.append(topic, b"x", queue_id)
        builder.close()
        progress = [",".join(f"{each}:{(each + behind) % 4}" for each in queues) for behind in range(4)]
        entries = [
            f'"{topic}@Group{group:04}":{{{progress[group % 4]}}}' for group in range(count // 1000) for topic in topics
        ]
        random.Random(count).shuffle(entries)
        path = builder.root / "config" / "consumerOffset.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'{{"offsetTable":{{{",".join(entries)}}}}}')
        found.append(builder.root)
    return found


@pytest.mark.parametrize("command", OF_OFFSETS)
def test_flat_in_offsets(consumed: list[Path], peak: Peak, tmp_path: Path, command: str) -> None:
    few, many = (peak(command, root, tmp_path / str(number)) for number, root in enumerate(consumed))
    print(f"{command}: {few >> 20} -> {many >> 20} MiB")
    assert many - few < MOST_OF_OFFSETS


def test_flat_in_sums(peak: Peak, tmp_path: Path) -> None:
    """What is added up by what each message has for itself."""
    peaks = []
    for count in TAGGED:
        root = tmp_path / str(count)
        tags = pa.array([f"tag-{number * 7919 % count}" for number in range(count)])
        columns = {"topic": ["T"] * count, "body": [b"x"] * count, "tags": tags}
        assert write_store(root, pa.table(columns)) == count
        peaks.append(peak("usage STORE --by tag --format arrow", root, tmp_path))
    few, many = peaks
    print(f"usage --by tag: {few >> 20} -> {many >> 20} MiB")
    assert many - few < MOST
