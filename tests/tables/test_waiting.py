"""`transactions`, `delayed` and `inflight` of random stores, with few ids and many odd values, are what plain Python
says with dictionaries; also where nearly all rows wait in temporary files, and where some messages are damaged."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from oracle import reference, stores

from rmqstore_spark import Store, sorting, temporary

HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
SCHEDULE, TIMER, REVIVE = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_C"
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
BODY_AT = 88  # in a unit with IPv4 addresses
BEGIN = 1_700_000_000_000  # ms
OUT = (str(BEGIN + 100), str(BEGIN + 500))  # times of timers; what is due, and is not, at the end of a store

Row = dict[str, Any]


def build(root: Path, rng: random.Random, count: int) -> stores.StoreBuilder:
    store = stores.StoreBuilder(root, 1 << 20, 6_000_000)
    ids = [None, "x", "é", "Orders+x", *(f"{number:032X}" for number in range(rng.choice([4, 60])))]
    halves: list[tuple[int, str | None, str | None]] = [(0, None, None)]
    for number in range(count):
        put_one(store, rng, number, ids, halves)
    (root / "config").mkdir(exist_ok=True)
    delays = {str(level): rng.randrange(1 + count // 40) for level in (1, 2)}
    (root / "config" / "delayOffset.json").write_text(json.dumps({"offsetTable": delays}))
    passed = {f"{HALF}@CID_RMQ_SYS_TRANS": {"0": rng.randrange(1 + count // 9)}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": passed}))
    store.close()
    return store


def put_one(
    store: stores.StoreBuilder,
    rng: random.Random,
    number: int,
    ids: list[str | None],
    halves: list[tuple[int, str | None, str | None]],
) -> None:
    name, real, times = rng.choice(ids), rng.choice(["Orders", "Pay", None]), rng.choice([0, 0, 1])
    names = {} if real is None else {"REAL_TOPIC": real, "REAL_QID": "1"}
    key = f"key-{number}"
    match rng.choice(["half", "half", "commit", "op", "given up", "level", "timer", "recall", "deliver", "pop", "ack"]):
        case "half":
            if rng.random() < 0.3:
                names |= {"TRANSACTION_CHECK_TIMES": rng.choice(["1", "2", "x"])}
            if rng.random() < 0.3:
                names |= {"TRAN_PREPARED_QUEUE_OFFSET": str(rng.randrange(20))}
            halves.append((store.append(HALF, b"x", rng.choice([0, 0, 1]), None, key, name, names), name, real))
        case "commit":
            at, half_name, half_real = rng.choice(halves)
            some = name if rng.random() < 0.2 else half_name
            flag = {"sys_flag": reference.COMMIT, "prepared_transaction_offset": at if rng.random() < 0.9 else 7}
            store.append(half_real or "Orders", b"x", 0, None, key, some, {}, **flag)
        case "op":
            texts = [rng.choice([str(rng.randrange(len(halves))), "x", ""]) for _ in range(rng.randrange(4))]
            store.append(OP, ",".join(texts).encode(), rng.choice([0, 0, 1]), "d")
        case "given up":
            store.append(GIVEN_UP, b"x", 0, None, key, name, names)
        case "level":
            store.append(SCHEDULE, b"x", rng.randrange(3), None, key, name, names, reconsume_times=times)
        case "timer":
            names |= {"TIMER_OUT_MS": rng.choice(OUT)} if rng.random() < 0.9 else {}
            store.append(TIMER, b"x", 0, None, key, name, names, reconsume_times=times)
        case "recall":
            recalled = f"{real}+{name or 'x'}" if rng.random() < 0.5 else name or "x"
            names |= {"TIMER_DEL_UNIQKEY": recalled, "TIMER_OUT_MS": rng.choice(OUT)}
            store.append(TIMER, b"x", 0, None, key, rng.choice(ids), names)
        case "deliver":
            store.append(real or "Pay", b"x", 0, None, key, name, {}, reconsume_times=times)
        case what:
            start = rng.randrange(30)
            record = {"c": "G", "t": "Orders", "q": rng.choice([0, 1, 1 << 33]), "so": start, "pt": BEGIN + start % 3}
            if what == "pop":
                record |= {"it": rng.choice([10, 10**9]), "n": 2, "bm": rng.choice([0, 1]), "d": [0, 1]}
            else:
                record |= rng.choice([{"ao": start}, {"aol": [start, start + 1]}, {"ao": 1 << 70}])
            topic, tag = rng.choice([REVIVE, TIMER]), "ck" if what == "pop" else rng.choice(["ack", "bAck"])
            store.append(topic, json.dumps(record).encode(), 0, tag, None, name, {"REAL_TOPIC": REVIVE})


# ---- plain Python


def number_of(text: str | None) -> int | None:
    return int(text) if text is not None and text.lstrip("-").isdigit() else None


def transactions(rows: list[Row], passed: dict[str, int]) -> list[tuple[Any, ...]]:
    halves = [row for row in rows if row["topic"] == HALF]
    by_offset = {row["commitLogOffset"]: row for row in halves}
    topics = {row["properties"].get("REAL_TOPIC", HALF) for row in halves}
    committed = {
        half["commitLogOffset"]
        for row in rows
        if row["sysFlag"] & reference.TRANSACTION_BITS == reference.COMMIT and row["topic"] in topics
        if (half := by_offset.get(row["preparedTransactionOffset"])) is not None and row["msgId"] == half["msgId"]
        if row["msgId"] is not None or row["topic"] == half["properties"].get("REAL_TOPIC", HALF)
    }
    ops = {(row["queueId"], text) for row in rows if row["topic"] == OP for text in row["body"].decode().split(",")}
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in halves:
        key = row["properties"].get("REAL_TOPIC", HALF), row["msgId"]
        groups[row["commitLogOffset"] if None in key else key].append(row)
    copies = {(row["properties"].get("REAL_TOPIC"), row["msgId"]) for row in rows if row["topic"] == GIVEN_UP}
    found = []
    for key, some in groups.items():
        last = some[-1]
        ended = any(
            (row["queueId"], str(offset)) in ops
            for row in some
            for offset in (row["queueOffset"], row["properties"].get("TRAN_PREPARED_QUEUE_OFFSET"))
        )
        state = "committed" if any(row["commitLogOffset"] in committed for row in some) else ""
        state = state or ("rolledBack" if ended else "")
        is_passed = last["queueOffset"] < passed.get(str(last["queueId"]), 0)
        state = state or ("givenUp" if is_passed or key in copies else "open")
        checks = number_of(last["properties"].get("TRANSACTION_CHECK_TIMES")) or 0
        found.append((some[0]["commitLogOffset"], state, checks, some[0]["keys"]))
    return sorted(found)


def delayed(rows: list[Row], delays: dict[str, int]) -> list[tuple[Any, ...]]:
    end = rows[-1]["storeTimestamp"] // 1000
    last: dict[Any, int] = {(row["topic"], row["msgId"], row["reconsumeTimes"]): row["commitLogOffset"] for row in rows}
    timers = [row for row in rows if row["topic"] == TIMER and row["properties"].get("REAL_TOPIC") != REVIVE]
    recalls = {
        (row["properties"].get("REAL_TOPIC"), row["properties"]["TIMER_DEL_UNIQKEY"], row["properties"]["TIMER_OUT_MS"])
        for row in timers
        if "TIMER_DEL_UNIQKEY" in row["properties"]
    }
    seen = set()
    found = []
    for row in rows:
        names = row["properties"]
        real, name, out = names.get("REAL_TOPIC"), row["msgId"], names.get("TIMER_OUT_MS")
        is_again = (
            None not in (real, name) and last.get((real, name, row["reconsumeTimes"]), -1) > row["commitLogOffset"]
        )
        if row["topic"] == SCHEDULE:
            is_done = row["queueOffset"] < delays.get(str(row["queueId"] + 1), 0)
            state = "delivered" if is_done or is_again else "pending"  # all are due: their tagsCode is 0
        elif row["topic"] == TIMER and real != REVIVE and "TIMER_DEL_UNIQKEY" not in names:
            key = real, name, out
            if None not in key and key in seen:
                continue
            seen.add(key)
            is_recalled = None not in key and (key in recalls or (real, f"{real}+{name}", out) in recalls)
            is_due = out is not None and int(out) <= end
            state = "delivered" if is_due and is_again else "cancelled" if is_recalled else "pending"
        else:
            continue
        found.append((row["commitLogOffset"], state, row["keys"]))
    return found


def inflight(rows: list[Row]) -> list[tuple[Any, ...]]:
    end = rows[-1]["storeTimestamp"] // 1000
    found = {}
    records = [json.loads(row["body"]) for row in rows if row["properties"].get("REAL_TOPIC") == REVIVE]
    for each in records:
        if "it" in each and each["q"] < 1 << 31 and each["pt"] + each["it"] > end:
            for bit in (0, 1):
                if not each["bm"] >> bit & 1:
                    found[each["q"], each["so"], each["pt"], each["so"] + bit] = each["pt"] + each["it"]
    for each in records:
        if "it" not in each:
            for offset in each.get("aol", [each.get("ao")]):
                found.pop((each["q"], each["so"], each["pt"], offset), None)
    return sorted((queue_id, offset, pop, until) for (queue_id, _, pop, offset), until in found.items())


# ---- the tests


def damaged(root: Path, rng: random.Random, rows: list[Row]) -> list[Row]:
    """Damage some messages of a store, but for the last one; the others."""
    (path,) = [path for path in (root / "commitlog").iterdir() if any(path.read_bytes())]
    data = bytearray(path.read_bytes())
    lost = {row["commitLogOffset"] for row in rng.sample(rows[:-1], len(rows) // rng.choice([3, 10, 30]))}
    for row in rows:
        start, size = row["commitLogOffset"], row["storeSize"]
        if start not in lost:
            continue
        match rng.choice(["body", "zeros", "noise", "size"]):
            case "body" if row["body"]:
                data[start + BODY_AT] ^= 1 << rng.randrange(8)
            case "noise":
                data[start : start + size] = rng.randbytes(size)
            case "size":
                data[start : start + 4] = rng.randrange(1 << 32).to_bytes(4, "big")
            case _:
                data[start : start + size] = bytes(size)
    path.write_bytes(data)
    return [row for row in rows if row["commitLogOffset"] not in lost]


def told(root: Path) -> tuple[list[tuple[Any, ...]], ...]:
    store = Store(root, mode="DROPMALFORMED")
    names = ("commitLogOffset", "state", "checkTimes", "keys")
    of_transactions = [tuple(row[name] for name in names) for row in store.transactions().to_pylist()]
    of_delayed = [tuple(row[name] for name in (names[0], names[1], names[3])) for row in store.delayed().to_pylist()]
    of_inflight = [
        (
            row["queueId"],
            row["queueOffset"],
            *(round(row[name].timestamp() * 1000) for name in ("popTimestamp", "visibleTimestamp")),
        )
        for row in store.inflight().to_pylist()
    ]
    return of_transactions, of_delayed, of_inflight


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("count", [3, 40, 1500])
def test_as_plain_python(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, count: int, is_whole: bool
) -> None:
    for number in range(3 if is_whole else 1 + 40 // count):
        root = tmp_path / str(number)
        build(root, rng, count)
        config = {
            name: json.loads((root / "config" / f"{name}.json").read_text())["offsetTable"]
            for name in ("consumerOffset", "delayOffset")
        }
        rows = reference.read_store(root)
        if not is_whole:
            rows = damaged(root, rng, rows)
        expected = (
            transactions(rows, next(iter(config["consumerOffset"].values()))),
            delayed(rows, config["delayOffset"]),
            inflight(rows),
        )
        assert told(root) == expected
        with monkeypatch.context() as patch:
            patch.setattr(temporary, "IN_MEMORY", 10_000)
            patch.setattr(sorting, "_MOST_PIECE", 2_000)
            patch.setattr(sorting, "_RUNS", 3)
            assert told(root) == expected


@pytest.mark.parametrize(("topic", "state"), [("Orders", "committed"), ("Pay", "open")])
def test_a_half_message_at_the_start_of_the_log(tmp_path: Path, topic: str, state: str) -> None:
    """Its physical offset, 0, is also what a message names that commits none; without ids their topics tell."""
    store = stores.StoreBuilder(tmp_path)
    for half in ("Orders", "Pay"):
        store.append(HALF, properties={"REAL_TOPIC": half, "REAL_QID": "0"})
    store.append(topic, sys_flag=reference.COMMIT, prepared_transaction_offset=0)
    store.close()
    assert Store(tmp_path).transactions()["state"].to_pylist() == [state, "open"]


@pytest.mark.parametrize("written", [12, 16, 20])
def test_the_time_of_a_message_whose_unit_was_being_written(tmp_path: Path, written: int) -> None:
    """A broker was killed, or a page is lost: the tagsCode of a queue's unit lacks its end. When the message is due is
    not known then, but that it was delivered the log says."""
    store = stores.StoreBuilder(tmp_path)
    names = {"REAL_TOPIC": "Orders", "DELAY": "1"}
    store.append(SCHEDULE, b"x", msg_id="ID1", properties=names, store_timestamp=BEGIN)
    store.append("Orders", b"x", msg_id="ID1", store_timestamp=BEGIN + 1000)
    store.append(SCHEDULE, b"x", msg_id="ID2", properties=names, store_timestamp=BEGIN + 2000)
    store.close(clean=False)
    path = store.queue_directory(SCHEDULE, 0) / f"{0:020d}"
    data = path.read_bytes()
    path.write_bytes(data[:written] + bytes(20 - written) + data[20:])
    rows = Store(tmp_path).delayed().to_pylist()
    assert [row["state"] for row in rows] == ["delivered", "pending"]
    due = [row["deliverTimestamp"] and round(row["deliverTimestamp"].timestamp() * 1000) for row in rows]
    assert due == [BEGIN + 1000 if written == 20 else None, BEGIN + 3000]
