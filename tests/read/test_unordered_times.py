"""Store times that do not ascend, as rows that are written may have them: whatever is asked for by time comes as a
filter over all rows gives it, and what is known of times still saves reading."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oracle import stores
from support import reading
from support.following import Query
from support.writing import Row, write

from rmqstore_spark import Store
from rmqstore_spark.errors import DamagedStoreError
from rmqstore_spark.query.selection import Numbers
from rmqstore_spark.read.plan.prune import in_time, ranges_of
from rmqstore_spark.store.format.sizes import Sizes
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.written import record_path

NOW = stores.FIRST_TIMESTAMP  # what a broker's clock says
DAY = 24 * 3600 * 1000
SIZE = 16384
SIZES = Sizes(segment=SIZE, queue_file=200, slots=20, items=50)
COLUMNS = ["commitLogOffset", "topic", "queueId", "queueOffset", "keys"]


def _ms(row: Row) -> int:
    return int(row["storeTimestamp"]) // 1000


def _rows(times: list[int | None], rng: random.Random) -> list[Row]:
    return [
        {
            "topic": f"T{rng.randrange(2)}",
            "queueId": rng.randrange(2),
            "keys": rng.choice(("k0", "k1", "k2", "k3")),
            "body": b"b" * rng.choice((0, 100, 1000)),
            "storeTimestamp": None if time is None else time * 1000,
        }
        for time in times
    ]


def _shuffled(rng: random.Random, count: int) -> list[int | None]:
    return [NOW + rng.randrange(-90 * DAY, 90 * DAY) for _ in range(count)]


def _ascending(rng: random.Random, count: int) -> list[int | None]:
    return [*sorted(time for time in _shuffled(rng, count) if time is not None)]


def _descending(rng: random.Random, count: int) -> list[int | None]:
    return _ascending(rng, count)[::-1]


def _near(rng: random.Random, count: int) -> list[int | None]:
    first = NOW + rng.randrange(-90 * DAY, 90 * DAY)
    return [first + rng.randrange(50_000) for _ in range(count)]


def _some_null(rng: random.Random, count: int) -> list[int | None]:
    return [rng.choice((None, time)) for time in _shuffled(rng, count)]


KINDS: list[Callable[[random.Random, int], list[int | None]]] = [_shuffled, _ascending, _descending, _near, _some_null]


class _Written:
    """A store that a broker and our writer go on with in turns."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.root = root
        self._rng = rng
        self._clock = NOW

    @property
    def record(self) -> Path:
        return Path(record_path(str(self.root)))

    def write(self) -> None:
        rng = self._rng
        rows = [_rows(rng.choice(KINDS)(rng, rng.randrange(1, 30)), rng) for _ in range(rng.randrange(1, 4))]
        write(self.root, *rows, sizes=SIZES)

    def go_on_as_a_broker(self) -> None:
        """What a broker writes, nobody of us notes down; and it keeps the end of the checkpoint."""
        known = self.record.read_bytes() if self.record.exists() else None
        times: list[int | None] = []
        for _ in range(self._rng.randrange(1, 30)):
            self._clock += self._rng.randrange(0, DAY)
            times.append(self._clock)
        write(self.root, _rows(times, self._rng), sizes=SIZES)
        if known is None:
            shutil.rmtree(self.record.parent)
            checkpoint = self.root / "checkpoint"
            checkpoint.write_bytes(checkpoint.read_bytes()[:48] + bytes(4048))
        else:
            self.record.write_bytes(known)

    def cut(self, number: int | None = None) -> None:
        """As a broker does that finds something wrong: the last segments are shorter, or gone."""
        rows = reading.read(self.root, columns=["commitLogOffset"])
        at = (self._rng.choice(rows) if number is None else rows[number])["commitLogOffset"]
        for path in sorted((self.root / "commitlog").iterdir()):
            start = int(path.name)
            if start > at:
                path.unlink()
            elif start + SIZE > at:
                path.write_bytes(path.read_bytes()[: at - start].ljust(SIZE, b"\0"))
        known = self.record.read_bytes() if self.record.exists() else None
        Store(self.root).rebuild()
        if known is not None:
            assert self.record.read_bytes() == known


def _check_reads(root: Path, rng: random.Random, tries: int = 5) -> None:
    rows = reading.read(root, columns=[*COLUMNS, "storeTimestamp"])
    times = sorted({_ms(row) for row in rows}) or [NOW]
    for _ in range(tries):
        least, most = sorted(rng.choice(times) + rng.choice((-1, 0, 0, 1, DAY)) for _ in range(2))
        asked: dict[str, Any] = rng.choice(
            [
                {"startingTimestamp": least, "endingTimestamp": most + 1},
                {"startingTimestamp": least},
                {"endingTimestamp": most + 1},
            ]
        )
        wanted = [
            row
            for row in rows
            if ("startingTimestamp" not in asked or least <= _ms(row))
            and ("endingTimestamp" not in asked or _ms(row) <= most)
        ]
        others: dict[str, Any]
        for others, is_right in (
            ({}, lambda row: True),
            ({"key": "k1"}, lambda row: row["keys"] == "k1"),
            ({"subscribe": "T1"}, lambda row: row["topic"] == "T1"),
            ({"subscribe": "T1", "trust": "queues"}, lambda row: row["topic"] == "T1"),
            ({"maxPartitionBytes": "2k"}, lambda row: True),
        ):
            if others.get("subscribe") and not any(row["topic"] == "T1" for row in rows):
                continue
            prices = rng.choice((None, reading.FREE))
            found = reading.read(root, columns=COLUMNS, prices=prices, **asked, **others)
            expected = [{name: row[name] for name in COLUMNS} for row in wanted if is_right(row)]
            assert sorted(found, key=lambda row: int(row["commitLogOffset"])) == expected, (asked, others)
        _check_segments(root, rows, asked, least, most)
    _check_offsets(root, rows, rng.choice(times) + rng.choice((-1, 0, 1)))


def _check_segments(root: Path, rows: list[Row], asked: dict[str, Any], least: int, most: int) -> None:
    """Each segment that has such a message is told."""
    least = least if "startingTimestamp" in asked else -(1 << 60)
    most = most if "endingTimestamp" in asked else 1 << 60
    found = set(Store(root).segments(**asked).column("startOffset").to_pylist())
    assert found >= {
        row["commitLogOffset"] - row["commitLogOffset"] % SIZE for row in rows if least <= _ms(row) <= most
    }


def _check_offsets(root: Path, rows: list[Row], time: int) -> None:
    queues: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        queues.setdefault((row["topic"], row["queueId"]), []).append(row)
    expected: dict[str, dict[str, int]] = {}
    for (topic, queue_id), of_queue in queues.items():
        late = [row["queueOffset"] for row in of_queue if _ms(row) >= time]
        expected.setdefault(topic, {})[str(queue_id)] = min(late, default=of_queue[-1]["queueOffset"] + 1)
    found = json.loads(Store(root).offsets_at(time))
    assert {topic: {queue: found[topic][queue] for queue in queues} for topic, queues in expected.items()} == expected


def _check_stream(root: Path, rng: random.Random) -> None:
    rows = reading.read(root, columns=["commitLogOffset", "storeTimestamp"])
    since = _ms(rng.choice(rows))
    query = Query(root, startingOffsets="earliest", startingTimestamp=since, columns=["commitLogOffset"])
    found = [row["commitLogOffset"] for row in query.run()]
    assert found == [row["commitLogOffset"] for row in rows if _ms(row) >= since]


def _check_copy(root: Path, target: Path, rng: random.Random) -> None:
    rows = reading.read(root, columns=["storeTimestamp", "keys"])
    least, most = sorted(_ms(rng.choice(rows)) for _ in range(2))
    wanted = [row for row in rows if least <= _ms(row) <= most]
    copied = Store(root).copy(target, startingTimestamp=least, endingTimestamp=most + 1)
    assert copied.messages == len(wanted)
    assert reading.read(target, columns=["storeTimestamp", "keys"]) == wanted
    _check_reads(target, rng, tries=3)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_times_select_what_a_filter_selects(number: int, tmp_path: Path, rng: random.Random) -> None:
    store = _Written(tmp_path / "store", rng)
    steps = [store.write, store.write, store.go_on_as_a_broker, store.cut]
    for step in range(5):
        act = rng.choice(steps if step else steps[:3])
        act()
        if reading.read(store.root, columns=["commitLogOffset"]):
            _check_reads(store.root, rng)
    if not reading.read(store.root, columns=["commitLogOffset"]):
        return
    _check_stream(store.root, rng)
    _check_copy(store.root, tmp_path / "copy", rng)
    other = _Written(tmp_path / "other", rng)
    other.write()
    Store([str(store.root), str(other.root)]).copy(tmp_path / "merged")
    _check_reads(tmp_path / "merged", rng)


@pytest.mark.parametrize("is_signed", [True, False])
def test_a_store_without_its_record(is_signed: bool, tmp_path: Path, rng: random.Random) -> None:
    """It was copied without `.rmqstore-spark/`. The checkpoint tells that times were noted down; without that nobody
    knows of it."""
    root = tmp_path / "store"
    write(root, _rows([NOW, NOW + 5 * DAY, NOW + 3 * DAY, NOW + DAY], rng), sizes=SIZES)
    shutil.rmtree(root / ".rmqstore-spark")
    if not is_signed:
        (root / "checkpoint").unlink()
    found = reading.read(root, columns=["keys"], startingTimestamp=NOW + 2 * DAY)
    assert len(found) == 2 or not is_signed


@pytest.mark.parametrize("has_queues", [True, False])
@pytest.mark.parametrize("kind", [_descending, _shuffled])
def test_damage_in_the_last_segment(
    has_queues: bool, kind: Callable[[random.Random, int], list[int | None]], tmp_path: Path, rng: random.Random
) -> None:
    """What comes after it is older than what comes before, and no left-over of a log that was cut."""
    root = tmp_path / "store"
    write(root, _rows(kind(rng, 30), rng)[:3], sizes=SIZES)
    write(root, [{**row, "body": b"", "topic": "T0"} for row in _rows(kind(rng, 30), rng)], sizes=SIZES)
    if not has_queues:
        shutil.rmtree(root / "consumequeue")
    places = [row["commitLogOffset"] for row in reading.read(root, columns=["commitLogOffset"])]
    at = places[rng.randrange(4, 30)]
    segment = root / "commitlog" / f"{at - at % SIZE:020d}"
    data = bytearray(segment.read_bytes())
    data[at % SIZE + 4] ^= 0xFF  # magic
    segment.write_bytes(data)
    with pytest.raises(DamagedStoreError, match=f"commitLogOffset {at}"):
        reading.read(root)
    found = reading.read(root, columns=["commitLogOffset"], mode="DROPMALFORMED")
    assert [row["commitLogOffset"] for row in found] == [place for place in places if place != at]


def test_what_is_noted_down_saves_reading(tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where times ascend only what can be selected is read; where they do not, runs of the log are told apart."""
    monkeypatch.setattr("rmqstore_spark.write.build.staging.CHUNK_SIZE", SIZE // 2)
    monkeypatch.setattr("rmqstore_spark.store.structures.written._RUN_SIZE", SIZE // 2)
    root = tmp_path / "store"
    days = [day for day in range(40) for _ in range(20)]
    write(root, _rows([NOW + day * DAY + rng.randrange(1000) for day in days], rng), sizes=SIZES)
    write(root, _rows([NOW + (200 - day) * DAY + rng.randrange(1000) for day in days], rng), sizes=SIZES)
    for day in (20, 180):
        times = Numbers(NOW + day * DAY, NOW + (day + 1) * DAY)
        files = reading.new_files()
        store = Snapshot.find(str(root), files)
        assert len(store.log.extents) > 20
        before = files.requests
        assert 0 < len(in_time(store, ranges_of(store), times)) <= 4
        assert files.requests - before < 3 * len(store.log.extents)
        found = reading.read(root, startingTimestamp=times.least, endingTimestamp=times.most)
        assert len(found) == 20


def test_a_merged_store_ascends(tmp_path: Path, rng: random.Random) -> None:
    """Where times ascend in each of the stores, so that brokers find messages by time."""
    for number, name in enumerate(("one", "two", "three")):
        times = [NOW + (3 * at + number) * DAY for at in range(60)]
        write(tmp_path / name, _rows([*times], rng), sizes=SIZES)
    Store([str(tmp_path / name) for name in ("one", "two", "three")]).copy(tmp_path / "merged")
    rows = reading.read(tmp_path / "merged", columns=["storeTimestamp"])
    assert [_ms(row) for row in rows] == [NOW + at * DAY for at in range(180)]


def test_a_cut_before_what_was_written(tmp_path: Path, rng: random.Random) -> None:
    """What was noted down of the message before that is not true any more, either."""
    root = tmp_path / "store"
    store = _Written(root, rng)
    store.go_on_as_a_broker()
    count = len(reading.read(root))
    write(root, _rows([NOW + 1000 * DAY] * 100, rng), sizes=SIZES)
    store.cut(count // 2)
    for _ in range(3):
        store.go_on_as_a_broker()
    opened = Snapshot.find(str(root), reading.new_files())
    (written,) = opened.written.stretches
    rows = reading.read(root, columns=["commitLogOffset", "storeTimestamp"])
    newest = max(_ms(row) for row in rows if row["commitLogOffset"] < written.start)
    assert opened.times.may_hold(0, written.start, newest, newest)


# ---- the file


BAD = [
    b"",
    b"[]",
    b"{",
    b'{"version":2,"written":[]}',
    b'{"version":true,"written":[]}',
    b'{"version":1.0,"written":[]}',
    b'{"version":1}',
    b'{"version":1,"written":[1]}',
    b'{"version":1,"written":[{"start":0,"stop":0,"before":null,"last":null,"runs":[]}]}',
    b'{"version":1,"written":[{"start":0,"stop":9,"before":null,"last":null,"runs":[[9,1,2,0]]}]}',
    b'{"version":1,"written":[{"start":0,"stop":9,"before":null,"last":[1,2],"runs":[[9,1,2,0]]}]}',
    b'{"version":1,"written":[{"start":0,"stop":9,"before":null,"last":[1,2,3],"runs":[[9,2,1,0]]}]}',
    b'{"version":1,"written":[{"start":0,"stop":9,"before":null,"last":[1,2,3],"runs":[[8,1,2,0]]}]}',
    b'{"version":1,"written":[{"start":0,"stop":9,"before":1e400,"last":[1,2,3],"runs":[[9,1,2,true]]}]}',
    b'{"version":1,"written":[{"start":5,"stop":9,"before":null,"last":null,"runs":[]},'
    b'{"start":0,"stop":9,"before":null,"last":null,"runs":[]}]}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("content", BAD)
def test_a_record_that_says_nothing(content: bytes, tmp_path: Path, rng: random.Random) -> None:
    """Then nothing is known of any store time, and all is read; the next write begins a new one."""
    write(tmp_path, _rows([NOW, NOW + 5 * DAY, NOW + 3 * DAY, NOW + DAY], rng), sizes=SIZES)
    Path(record_path(str(tmp_path))).write_bytes(content)
    for count in (2, 3):
        assert len(reading.read(tmp_path, startingTimestamp=NOW + 2 * DAY)) == count
        write(tmp_path, _rows([NOW + 9 * DAY, NOW], rng), sizes=SIZES)
    assert json.loads(Path(record_path(str(tmp_path))).read_bytes())["written"][0]["last"] is None


@pytest.mark.parametrize("count", [3, 30])
def test_a_record_of_another_log(tmp_path: Path, rng: random.Random, count: int) -> None:
    """Its last messages are not there, so it is not believed: also not of what comes after where that log ended."""
    for name, rows in (("one", count), ("two", 30)):
        write(tmp_path / name, _rows(_shuffled(rng, rows), rng), sizes=SIZES)
    shutil.copy(record_path(str(tmp_path / "one")), record_path(str(tmp_path / "two")))
    _check_reads(tmp_path / "two", rng)


@pytest.mark.slow
def test_many_writes_are_noted_down_in_little_space(tmp_path: Path, rng: random.Random) -> None:
    for _ in range(60):
        write(tmp_path, _rows(_shuffled(rng, 2), rng), sizes=SIZES)
    written = json.loads(Path(record_path(str(tmp_path))).read_bytes())["written"]
    assert len(written) == 2  # the last one alone: it is lost with what is undone
    assert sum(len(each["runs"]) for each in written) == 2
    _check_reads(tmp_path, rng)
