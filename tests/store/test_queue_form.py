"""A form of queues is one module below the structures and one line in `queues.FORMS`: selections, tables, check and
copies run on it unchanged."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from oracle.stores import FIRST_TIMESTAMP, StoreBuilder
from support.reading import read

from rmqstore_spark import Store
from rmqstore_spark.store.format.queue_block import UNIT_SIZE
from rmqstore_spark.store.structures import queues
from rmqstore_spark.store.structures.consumequeue import Queue, QueueFile, Units
from rmqstore_spark.tables.registry import TABLES

TOPICS = ("Orders", "Payments", "Mails")
DIRECTORY = "toyconsumequeue"

# ---- the form: what its module would have


def turned(data: bytes | bytearray | memoryview) -> bytes:
    """Units of the one form as those of the other: their bytes stand backwards."""
    units = bytes(data)
    return b"".join(units[at : at + UNIT_SIZE][::-1] for at in range(0, len(units), UNIT_SIZE))


class TurnedUnits:
    """A file of such a queue, open: its units as those of a simple queue."""

    def __init__(self, file: Units) -> None:
        self._file = file

    def __enter__(self) -> TurnedUnits:
        self._file.__enter__()
        return self

    def __exit__(self, *why: object) -> None:
        self._file.__exit__(*why)

    def expect(self, start: int, stop: int) -> None:
        self._file.expect(start, stop)

    def load(self, offset: int, size: int, buffer: Callable[[int], memoryview]) -> memoryview:
        return memoryview(self.read(offset, size))

    def read(self, offset: int, size: int) -> bytes:
        return turned(self._file.read(offset, size))

    def read_into(self, buffer: memoryview, offset: int) -> int:
        data = self.read(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def data_end(self) -> int:
        return self._file.data_end()

    def used_end(self) -> int:
        return self._file.used_end()

    def likely_data_end(self) -> int:
        return self._file.likely_data_end()


class ToyQueue(Queue):
    """A queue whose units stand backwards."""

    form: ClassVar[str] = "toy"
    directory_name: ClassVar[str] = DIRECTORY
    is_plain: ClassVar[bool] = False
    has_ext: ClassVar[bool] = False

    def opened(self, file: QueueFile) -> Units:
        return TurnedUnits(super().opened(file))


# ---- the line


@pytest.fixture(autouse=True)
def _toy_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "FORMS", (*queues.FORMS, ToyQueue))


# ---- what runs unchanged


@pytest.fixture
def pair(tmp_path: Path, rng: random.Random) -> tuple[Path, Path]:
    """A store whose queues have the form, and the same with simple ones, at paths of one length."""
    seed = rng.randbytes(8)
    toy, plain = (_built(tmp_path / name, random.Random(seed)) for name in ("b", "a"))
    (toy / "consumequeue").rename(toy / DIRECTORY)
    for path in (each for each in (toy / DIRECTORY).rglob("*") if each.is_file()):
        units = path.read_bytes().rstrip(b"\0")
        units += bytes(-len(units) % UNIT_SIZE)
        with path.open("r+b") as file:  # the hole behind the units stays one
            file.write(turned(units))
    return toy, plain


def _built(root: Path, rng: random.Random) -> Path:
    store = StoreBuilder(root, 65536, index=True)
    for number in range(250):
        store.append(
            topic=TOPICS[number % len(TOPICS)],
            body=rng.randbytes(rng.choice((0, 20, 300, 3000))),
            queue_id=rng.randrange(2),
            tags=rng.choice((None, "a", "b")),
            keys=f"k{number % 40}",
            msg_id=f"{number:032X}",
            sys_flag=0x4 if number % 20 == 3 else 0,  # half messages are in no queue
        )
    store.close()
    return Path(store.root)


SELECTIONS: list[dict[str, Any]] = [
    {},
    {"subscribe": "Orders"},
    {"subscribe": "Orders", "tags": "a"},
    {"key": "k7", "subscribe": "Payments"},
    {"key": "k7"},
    {"msgId": f"{99:032X}"},
    {"startingTimestamp": str(FIRST_TIMESTAMP + 100), "endingTimestamp": str(FIRST_TIMESTAMP + 140)},
    {
        "startingOffsets": '{"Orders": {"0": 5, "1": 9}}',
        "endingOffsets": '{"Orders": {"0": 12, "1": 30}}',
        "subscribe": "Orders",
    },
    {"maxPartitionBytes": "8k", "subscribe": "Mails"},
]


def _without_paths(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in ("store", "file", "path")} for row in rows]


@pytest.mark.parametrize("options", SELECTIONS, ids=str)
def test_selections(pair: tuple[Path, Path], options: dict[str, Any]) -> None:
    rows, expected = (_without_paths(read(root, **options)) for root in pair)
    assert rows == expected
    assert rows


@pytest.mark.parametrize("table", sorted(set(TABLES)))
def test_tables(pair: tuple[Path, Path], table: str) -> None:
    """All rows; only `queues` says of which form a queue is."""
    rows, expected = (_rows(Store(root), table) for root in pair)
    if table == "queues":
        assert {row.pop("queueType") for row in rows} == {"toy"}
        assert {row.pop("queueType") for row in expected} == {"simple"}
    assert rows == expected


def _rows(store: Store, table: str) -> list[dict[str, Any]]:
    found: pa.Table = getattr(store, table)() if table != "messages" else store.messages().read_all()
    return _without_paths(found.to_pylist())


def test_check_sees_what_is_wrong(pair: tuple[Path, Path]) -> None:
    """A unit that is gone and one that points elsewhere: the same findings, but for the places in files."""
    assert [_rows(Store(root), "check") for root in pair] == [[], []]
    for root in pair:
        (path,) = [
            each for each in root.rglob("0" * 20) if each.parent.parent.name == "Orders" and each.parent.name == "0"
        ]
        data = bytearray(path.read_bytes())
        data[3 * UNIT_SIZE : 4 * UNIT_SIZE] = bytes(UNIT_SIZE)
        data[5 * UNIT_SIZE + (7 if root == pair[1] else UNIT_SIZE - 8)] ^= 1  # the last byte of the position
        path.write_bytes(data)
    rows, expected = (_rows(Store(root), "check") for root in pair)
    assert rows == expected
    assert {row["problem"] for row in rows} == {"missingQueueUnit", "wrongQueueUnit"}


def test_queues_are_believed(pair: tuple[Path, Path]) -> None:
    """`usage` reads the log only where no queue proves it: all of it if the units were taken for those of simple
    queues."""
    sources = [set(Store(root).usage().column("source").to_pylist()) for root in pair]
    assert sources == [{"queues and log"}, {"queues and log"}]  # half messages are in no queue
    (pair[0] / DIRECTORY).rename(pair[0] / "consumequeue")
    assert set(Store(pair[0]).usage().column("source").to_pylist()) == {"log"}


def test_a_copy_has_simple_queues(pair: tuple[Path, Path], tmp_path: Path) -> None:
    for root, name in zip(pair, ("copy", "same"), strict=True):
        Store(root).copy(tmp_path / name)
    rows, expected = (_without_paths(read(tmp_path / name)) for name in ("copy", "same"))
    assert rows == expected
    assert (tmp_path / "copy" / "consumequeue").is_dir()
