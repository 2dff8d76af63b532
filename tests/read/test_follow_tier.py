"""A stream of a tiered store gives each message once, while a broker brings messages, begins queues and deletes
files."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from oracle.tiered import GrowingQueue, read_tier
from support import reading
from support.following import Clock, Query, stream_options

from rmqstore_spark import Store
from rmqstore_spark.errors import DamagedStoreError, DataLossError, OptionError, RmqStoreError
from rmqstore_spark.read.follow.stream_offset import stream_offset
from rmqstore_spark.read.follow.tier import follower_of
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.logs import find_logs
from rmqstore_spark.store.tiered_log import TieredLog

Row = dict[str, Any]
Message = tuple[str, int, int, bytes]


def known(rows: list[Row]) -> list[Message]:
    return [(row["topic"], row["queueId"], row["queueOffset"], row["body"]) for row in rows]


def brought(*queues: GrowingQueue, first: int = 0) -> list[Message]:
    """All messages that were brought and are whole."""
    return sorted(
        (queue.topic, queue.queue_id, offset, body)
        for queue in queues
        for offset, body in queue.bodies.items()
        if offset >= first and (queue.is_whole or offset < queue.offset - 1)
    )


def queue_of(row: Row) -> tuple[str, int]:
    return row["topic"], row["queueId"]


def begin(tier: Path, counts: dict[tuple[str, int], int]) -> list[GrowingQueue]:
    """Queues with so many messages each, three in a file."""
    queues = [GrowingQueue(tier, *name) for name in counts]
    for queue, count in zip(queues, counts.values(), strict=True):
        for number in range(count):
            if number and number % 3 == 0:
                queue.roll()
            queue.bring(b"%d" % number)
    return queues


def grow(queues: list[GrowingQueue], rng: random.Random) -> None:
    """What a broker may do between two looks."""
    for queue in rng.sample(queues, rng.randint(0, len(queues))):
        queue.finish()
        for _ in range(rng.randrange(5)):
            if rng.random() < 0.3:
                queue.roll(coda=rng.random() < 0.4)
            queue.bring(rng.randbytes(rng.choice([0, 20, 700])))
        for _ in range(rng.choice([0, 0, 3])):
            queue.bring(b"late", is_late=True)
        if rng.random() < 0.3:
            queue.bring(b"half" * 50, half=rng.randrange(150), is_ahead=(is_ahead := rng.random() < 0.5))
            # Half a message at the very start of a queue is damage, as for a read: no unit before it proves what it is.
            if not is_ahead and queue.has_units and rng.random() < 0.6:
                queue.kill()
        elif rng.random() < 0.3:
            queue.kill(is_late=rng.random() < 0.5)


@pytest.mark.parametrize("count", [1, pytest.param(12, marks=pytest.mark.slow)])
def test_all_batches_are_what_was_brought(tmp_path: Path, rng: random.Random, count: int) -> None:
    """Files grow and roll, queues begin, what was read expires, the query is killed: each message comes once, in the
    order of its queue; and a batch that is planned again has the same rows."""
    for number in range(count):
        tier = tmp_path / str(number)
        queues = begin(tier, {("A", 0): rng.randrange(1, 9), ("A", 1): 1, ("B", 7): rng.randrange(9)})
        limits: dict[str, Any] = rng.choice(({}, {"maxBytesPerTrigger": 900}, {"maxOffsetsPerTrigger": 3}))
        query = Query(tier, startingOffsets="earliest", **limits)
        for step in range(12):
            if query.trigger() is not None and rng.random() < 0.5:
                again = query.rows_between(-2, -1)
                assert query.rows[len(query.rows) - len(again) :] == again
            if rng.random() < 0.4:
                query.restart()
            for queue in queues:
                place = query.at.stores.get(str(queue.log.parent))
                passed = [] if place is None else [f for f in queue.files[1:] if int(f.name[8:]) <= place.position]
                if passed and rng.random() < 0.3:
                    queue.expire()
            grow(queues, rng)
            if rng.random() < 0.3:
                queues.append(GrowingQueue(tier, rng.choice("AC"), 10 + step))
            query.clock.pass_(2)
        for queue in queues:
            queue.finish()
        for _ in range(3):
            query.run()
            query.clock.pass_(2)
        assert sorted(known(query.rows)) == brought(*queues)
        for _, rows in itertools.groupby(sorted(query.rows, key=queue_of), queue_of):
            offsets = [row["queueOffset"] for row in rows]
            assert offsets == sorted(offsets)
        assert {row["commitLogOffset"] for row in query.rows} <= {None}
        assert json.loads(query.offsets[-1])["tiers"].keys() == {str(tier)}


def test_rows_are_those_of_a_read(tmp_path: Path) -> None:
    begin(tmp_path, {("A", 0): 7, ("A", 1): 2, ("B", 0): 4})
    query = Query(tmp_path, startingOffsets="earliest")
    query.run()
    assert known(query.rows) == known(list(read_tier(tmp_path)))
    columns = ["topic", "queueId", "queueOffset", "store", "file", "storeSize", "commitLogOffset", "offsetMsgId"]
    query = Query(tmp_path, columns=columns, startingOffsets="earliest")
    query.run()
    assert query.rows == Store(tmp_path).messages(columns).read_all().to_pylist()


def test_starts(tmp_path: Path) -> None:
    one, other, of_b = queues = begin(tmp_path, {("A", 0): 7, ("A", 1): 2, ("B", 0): 4})
    latest = Query(tmp_path)
    named = Query(tmp_path, startingOffsets='{"A": {"0": 5, "1": -1}, "B": {"0": -2}}')
    of_topic = Query(tmp_path, startingOffsets="earliest", subscribe="B")
    in_time = Query(tmp_path, startingTimestamp=1_700_000_000_003)
    for query in (latest, named, of_topic, in_time):
        query.run()
    assert known(latest.rows) == []
    assert sorted(known(named.rows)) == [*brought(one, first=5), *brought(of_b)]
    assert sorted(known(of_topic.rows)) == brought(of_b)
    assert sorted(known(in_time.rows)) == brought(*queues, first=3)
    queues.append(GrowingQueue(tmp_path, "B", 1))
    for queue in queues:
        queue.bring(b"new")
    for query in (latest, named, of_topic, in_time):
        query.clock.pass_(2)
        query.restart()
        query.run()
    assert sorted(known(latest.rows)) == [
        ("A", 0, 7, b"new"),
        ("A", 1, 2, b"new"),
        ("B", 0, 4, b"new"),
        ("B", 1, 0, b"new"),
    ]
    assert sorted(known(named.rows)) == brought(one, first=5) + brought(other, first=2) + brought(of_b, queues[3])
    assert sorted(known(of_topic.rows)) == brought(of_b, queues[3])
    refused: list[tuple[dict[str, Any], str]] = [
        ({"startingOffsets": "group:g"}, "no store has an offset of consumer group 'g'"),
        ({"subscribe": "C"}, "unknown topic 'C'"),
    ]
    for options, text in refused:
        with pytest.raises(OptionError, match=text):
            Query(tmp_path, **options).start()


def test_other_topics_after_a_restart(tmp_path: Path) -> None:
    """Queues that are no longer selected keep their place."""
    one, other = begin(tmp_path, {("A", 0): 2, ("B", 0): 2})
    query = Query(tmp_path, startingOffsets="earliest")
    query.run()
    other.bring(b"later")
    query.restart(subscribe="A")
    one.bring(b"new")
    query.run()
    assert sorted(known(query.rows)) == brought(one) + brought(other)[:2]
    query.restart(subscribe="A,B")
    query.run()
    assert sorted(known(query.rows)) == brought(one, other)


@pytest.mark.parametrize("is_of_broker", [False, True], ids=["tier", "broker"])
def test_a_restart_wherever_the_path_is(tmp_path: Path, is_of_broker: bool) -> None:
    """The path may be that of one broker in the tier, in which queues have short names."""
    (one,) = begin(tmp_path, {("A", 7): 4})
    (topic,) = (path for path in one.log.parents if path.name == "A")
    query = Query(topic.parent if is_of_broker else tmp_path, startingOffsets="earliest")
    query.run()
    one.bring(b"new")
    query.restart()
    query.run()
    assert known(query.rows) == brought(one)


@pytest.mark.parametrize("what", ["expired", "anew", "gone", "older"])
def test_losses(tmp_path: Path, what: str) -> None:
    """They are an error; with failOnDataLoss=false the stream goes on with what is there, and reads nothing again."""
    one, other = begin(tmp_path, {("A", 0): 7, ("A", 1): 2})
    query = Query(tmp_path, startingOffsets="earliest")
    query.run()
    before = brought(one, other)
    assert sorted(known(query.rows)) == before
    if what == "expired":
        one.bring(b"lost")
        one.roll()
        while len(one.files) > 1:
            one.expire()
        one.bring(b"left")
        left = [("A", 0, 8, b"left")]
    elif what == "anew":
        one.begin_anew(lost=4)
        one.bring(b"left")
        left = [("A", 0, 11, b"left")]
    elif what == "gone":
        one.begin_anew(lost=0)
        for path in (one.log, one.queue):
            for file in path.iterdir():
                file.unlink()
            path.rmdir()
        one.log.parent.rmdir()
        left = []
    else:
        one.begin_anew(lost=-7)
        for number in range(5):
            one.bring(b"%d" % number)
        left = []
    other.bring(b"new")
    query.clock.pass_(2)
    query.restart()
    with pytest.raises(DataLossError, match="gone" if what in ("expired", "gone") else "not the one that was read"):
        query.run()
    query.restart(failOnDataLoss=False)
    query.run()
    assert sorted(known(query.rows)) == sorted([*before, *left, ("A", 1, 2, b"new")])
    if what == "older":
        for _ in range(3):
            one.bring(b"again")
        query.clock.pass_(2)
        query.run()
        assert known(query.rows)[-1] == ("A", 0, 7, b"again")


def test_loss_between_planning_the_end_and_the_batch(tmp_path: Path) -> None:
    """An offset that was written before a kill is planned anew, when some of its messages have gone."""
    (one,) = begin(tmp_path, {("A", 0): 8})
    query = Query(tmp_path, startingOffsets="earliest")
    query.trigger()
    one.expire()
    query.restart()
    with pytest.raises(DataLossError, match=r"positions 0 to .* are gone"):
        query.rows_between(-2, -1)
    query.restart(failOnDataLoss=False)
    assert known(query.rows_between(-2, -1)) == brought(one, first=3)


def run_until_late(query: Query) -> None:
    """Until no unit can show any more that a killed broker left half a message."""
    for _ in range(2):
        query.run()
        query.clock.pass_(5)
    query.run()


@pytest.mark.parametrize("is_read", [False, True], ids=["at once", "before and after"])
@pytest.mark.parametrize("half", [None, 1, 70])
def test_messages_brought_again(tmp_path: Path, is_read: bool, half: int | None) -> None:
    """By a broker that was killed before their units were there, and perhaps in the midst of a message."""
    (one,) = begin(tmp_path, {("A", 0): 5})
    query = Query(tmp_path, startingOffsets="earliest")
    for _ in range(2):
        one.bring(b"late", is_late=True)
        one.bring(b"later", is_late=True)
        if half is not None:
            one.bring(b"half", half=half)
        if is_read:
            query.run()
        one.kill()
        one.bring(b"new")
    query.run()
    assert known(query.rows) == brought(one)
    for number in range(1, len(query.offsets) - 1):  # planned again, with all units there
        again = known(query.rows_between(number - 1, number))
        assert all(row in brought(one) for row in again)
    again = [row for number in range(1, len(query.offsets)) for row in known(query.rows_between(number - 1, number))]
    assert again == brought(one)


def test_half_a_message_that_looks_whole(tmp_path: Path) -> None:
    """With what follows it, but for its bodyCRC."""
    (one,) = begin(tmp_path, {("A", 0): 2})
    query = Query(tmp_path, startingOffsets="earliest")
    for _ in range(3):
        one.bring(b"late", is_late=True)
    one.bring(b"half" * 50, half=4)  # as many bytes as are missing to those of three more
    query.run()
    one.kill()
    one.bring(b"new")
    query.run()
    assert known(query.rows) == brought(one)
    assert known(Store(tmp_path).messages().read_all().to_pylist()) == brought(one)


def test_a_long_log_is_looked_at_by_its_units(tmp_path: Path) -> None:
    one = GrowingQueue(tmp_path, "A", 0)
    for _ in range(600):
        one.bring(b"x" * 500)
    query = Query(tmp_path, startingOffsets="earliest")
    query.start()
    nbytes = query.files.bytes
    end = query.follower.latest(query.at, is_limited=False)
    assert [place.position for place in end.stores.values()] == [one.next]
    assert query.files.bytes - nbytes < one.next / 2


def test_damage(tmp_path: Path) -> None:
    """A message in the middle that is damaged; half a message at the end is none."""
    (one,) = begin(tmp_path, {("A", 0): 8})
    data = bytearray(one.files[0].read_bytes())
    data[4] ^= 1  # the magic of the first message
    one.files[0].write_bytes(data)
    with pytest.raises(DamagedStoreError, match="COMMIT_LOG"):
        run_until_late(Query(tmp_path, startingOffsets="earliest"))
    query = Query(tmp_path, startingOffsets="earliest", mode="DROPMALFORMED")
    run_until_late(query)
    assert known(query.rows) == brought(one, first=1)
    one.bring(b"last", half=60)
    assert query.run() == []
    one.finish()
    assert [row["queueOffset"] for row in query.run()] == [8]


def test_a_damaged_last_message_is_over(tmp_path: Path) -> None:
    """It never becomes one: the log ends behind it, where the next message comes."""
    (one,) = begin(tmp_path, {("A", 0): 5})
    last = one.files[1]
    data = bytearray(last.read_bytes())
    size = len(data) // 2
    data[size + 4] ^= 1  # the magic
    last.write_bytes(data)
    (log,) = find_logs(str(tmp_path), Files())
    assert isinstance(log, TieredLog)
    end, message = log.whole_to(0)
    assert (end, message and message.queue_offset) == (one.next, 3)


def test_hole(tmp_path: Path) -> None:
    (one,) = begin(tmp_path, {("A", 0): 8})
    one.files[1].unlink()
    with pytest.raises(DamagedStoreError, match="a hole in the log of this queue"):
        Query(tmp_path, startingOffsets="earliest").run()
    query = Query(tmp_path, startingOffsets="earliest", mode="DROPMALFORMED")
    query.run()
    assert [row["queueOffset"] for row in query.rows] == [0, 1, 2, 6, 7]


def test_before_spark_4_2(tmp_path: Path) -> None:
    """Spark does not tell where the stream is."""
    one, other = begin(tmp_path, {("A", 0): 3, ("A", 1): 2})
    options, clock = stream_options(tmp_path, startingOffsets="earliest"), Clock()
    follower = follower_of(options, gets_start=False, clock=clock)
    places, rows = [follower.initial()], list[Row]()
    for number in range(3):
        clock.pass_(2)
        places.append(follower.latest(None, is_limited=False))
        for task in follower.plan(places[-2], places[-1]):
            rows += reading.read_one(task, options.read)
        one.bring(b"new")
        if number == 1:
            new = GrowingQueue(tmp_path, "A", 2)
            new.bring(b"first")
    assert sorted(known(rows)) == brought(one, other, new)[:5] + brought(other, new)


def test_available_now(tmp_path: Path) -> None:
    one, other = begin(tmp_path, {("A", 0): 7, ("A", 1): 2})
    query = Query(tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger=2)
    query.start()
    query.follower.stop_here()
    before = brought(one, other)
    one.bring(b"later")
    GrowingQueue(tmp_path, "N", 0).bring(b"later")
    query.clock.pass_(2)
    query.run()
    assert sorted(known(query.rows)) == before


def test_an_idle_look_reads_no_file(tmp_path: Path) -> None:
    begin(tmp_path, {("A", number): 5 for number in range(10)})
    query = Query(tmp_path, startingOffsets="earliest")
    query.run()
    nbytes = query.files.bytes
    query.clock.pass_()
    assert query.trigger() is None
    assert query.files.bytes == nbytes


def test_batches_of_many_queues_are_few_tasks(tmp_path: Path) -> None:
    begin(tmp_path, {("A", number): 2 for number in range(40)})
    query = Query(tmp_path, startingOffsets="earliest")
    query.run()
    start, end = (stream_offset(json.loads(text)) for text in query.offsets[-2:])
    assert len(query.follower.plan(start, end)) <= 4
    assert len(query.rows) == 80


@pytest.mark.parametrize(
    "tiers",
    [[], {"/t": 1}, {"/t": {"A/0": [1]}}, {"/t": {"A/0": [1, -1]}}, {"/t": {"A/x": [1, 1]}}, {"/t": {"0": [1, 1]}}],
)
def test_checkpoints_of_others(tiers: object) -> None:
    with pytest.raises(RmqStoreError, match="the checkpoint's offset"):
        stream_offset({"version": 1, "stores": {}, "tiers": tiers})
