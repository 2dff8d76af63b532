"""What is asked of a store while a RocksDB of it is damaged: every path to messages, every table, and what is made of
both. What is answered while the store is sound is the oracle, and for messages the plain reference."""

from __future__ import annotations

import faulthandler
import functools
import json
import logging
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from oracle import reference
from support import memory, reading

from rmqstore_spark import OptionError, RmqStoreError, Store
from rmqstore_spark.jobs.summary import summarize
from rmqstore_spark.read.explain import explained
from rmqstore_spark.store.format.light_queues import is_light
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables.registry import TABLES

COLUMNS = ["topic", "queueId", "queueOffset", "commitLogOffset"]
_PLACES = ["file", "filePosition", "files", "sizeOnDisk", "queueType", "source"]  # columns that tell where queues are
_HINTS = {"consumequeue", "check"}  # tables of what is in a database, right or wrong
_MOST_SECONDS = 5.0  # of the processor, for all that is asked after one mutation
_MOST_WAITING = 120.0  # seconds
_MOST_BYTES = 1 << 30  # of memory in all
_QUEUES = ("consumequeue", "consumequeue_rocksdb")

_Row = dict[str, Any]


class Judge:
    """What a sound store answers.

    Args:
        root: the store directory.
        few: how many paths, and how many tables, are tried each time.
    """

    def __init__(self, root: Path, few: int = 4) -> None:
        self._root = root
        self._few = few
        self._rows = reference.read_store(root)
        self._tables = {name: _rows_of(root, name) for name in TABLES}
        _ = self._copied_rows
        self._offsets = {(row["group"], row["topic"], row["queueId"]): row for row in self._tables["offsets"]}

    @functools.cached_property
    def _copied_rows(self) -> int:
        """Messages of a copy of the store, which was sound when this was asked first."""
        target = self._root.with_name("copied")
        try:
            Store(self._root).copy(target)
            return len(reference.read_store(target))
        finally:
            shutil.rmtree(target, ignore_errors=True)

    def hold(self, rng: random.Random, file: str, is_lie: bool) -> None:
        """Compare the answers of the store with those when it was sound.

        Args:
            file: the one that was damaged, below the store.
            is_lie: whether checksums fit the damage: then tables are of what is there.
        """
        directory, _, name = file.rpartition("/")
        is_of_queues = directory in _QUEUES
        # What the end of a log lacks was never written, as far as anybody can tell.
        may_lack = is_lie or not name.endswith(".sst")
        for ask in rng.sample([*self._paths(rng)], self._few):
            self._hold_messages(*ask)
        for table in rng.sample([*TABLES], self._few):
            with told(directory) as texts:
                found = _rows_of(self._root, table)
            wrong, lost = _differing(found, self._tables[table]), _differing(self._tables[table], found)
            if is_of_queues and not may_lack and table not in _HINTS:  # the log has all others
                assert not _of_known(wrong + lost), f"table {table}: {wrong}, not {lost}"
            assert table in _HINTS or may_lack or texts or not (wrong or lost), f"table {table}: {wrong}, not {lost}"
        if rng.random() < 0.5:
            with told(directory) as texts:
                found = self._of_group(rng, may_lack and not is_of_queues, texts)
        act = rng.choice((self._looked_up, self._shown, self._explained, *[self._copied] * (rng.random() < 0.1)))
        act(rng)

    def _paths(self, rng: random.Random) -> Iterator[tuple[dict[str, Any], Callable[[_Row], bool]]]:
        """Options, and which rows they select."""
        row = rng.choice(self._rows)
        topic, queue, number = row["topic"], row["queueId"], row["queueOffset"]
        bounds = json.dumps({topic: {str(queue): number}})
        time = row["storeTimestamp"]

        def in_topic(each: _Row) -> bool:
            return bool(each["topic"] == topic)

        def in_queue(each: _Row) -> bool:
            return in_topic(each) and bool(each["queueId"] == queue)

        yield {}, lambda each: True
        yield {"subscribe": topic}, in_topic
        yield {"subscribePattern": f"{topic[:2]}.*"}, lambda each: each["topic"].startswith(topic[:2])
        yield {"assign": json.dumps({topic: [queue]})}, in_queue
        yield (
            {"subscribe": topic, "startingOffsets": bounds},
            lambda each: in_topic(each) and (not in_queue(each) or each["queueOffset"] >= number),
        )
        yield (
            {"assign": json.dumps({topic: [queue]}), "endingOffsets": bounds},
            lambda each: in_queue(each) and each["queueOffset"] < number,
        )
        if row["msgId"]:
            yield {"msgId": row["msgId"]}, lambda each: row["msgId"] in (each["msgId"], each["offsetMsgId"])
        yield {"offsetMsgId": row["offsetMsgId"]}, lambda each: each["offsetMsgId"] == row["offsetMsgId"]
        if row["keys"]:
            word = row["keys"].split()[0]
            yield {"key": word}, lambda each: word in (each["keys"] or "").split() or each["msgId"] == word
            yield (
                {"key": word, "subscribe": topic},
                lambda each: in_topic(each) and word in (each["keys"] or "").split(),
            )
        if row["tags"]:
            yield {"subscribe": topic, "tags": row["tags"]}, lambda each: in_topic(each) and each["tags"] == row["tags"]
        yield {"startingTimestamp": time // 1000 + 1}, lambda each: each["storeTimestamp"] >= time // 1000 * 1000 + 1000
        yield {"subscribe": topic, "endingTimestamp": time // 1000}, lambda each: in_topic(each) and each[
            "storeTimestamp"
        ] < time // 1000 * 1000  # fmt: skip

    def _hold_messages(self, options: dict[str, Any], is_selected: Callable[[_Row], bool]) -> None:
        wanted = [{name: row[name] for name in COLUMNS} for row in self._rows if is_selected(row)]
        try:
            found = self._read(options)
        except OptionError:  # nothing knows the topic, or the queue
            found = []
            assert not wanted or options.keys() & {"assign", "startingOffsets", "endingOffsets"}, options
            return
        assert found == wanted, f"{options}: {found}, not {wanted}"

    def _read(self, options: dict[str, Any]) -> list[_Row]:
        read = reading.options_of(self._root, **options)
        plan = reading.forced_plan(read, reading.new_files(reading.FREE))
        found = [each for task in plan.tasks for each in reading.read_one(task, read, COLUMNS)]
        return sorted(found, key=lambda each: int(each["commitLogOffset"]))

    def _of_group(self, rng: random.Random, may_lack: bool, texts: list[str]) -> list[_Row]:
        """Rows that a group has not consumed are as before, or somebody is told."""
        groups = sorted({group for group, _, _ in self._offsets}) or ["nobody"]
        group = rng.choice(groups)
        topics = {topic for name, topic, _ in self._offsets if name == group}

        def is_left(row: _Row) -> bool:
            place = self._offsets.get((group, row["topic"], row["queueId"]))
            return row["topic"] in topics and (place is None or row["queueOffset"] >= place["consumerOffset"])

        wanted = [{name: row[name] for name in COLUMNS} for row in self._rows if is_left(row)]
        try:
            found = self._read({"startingOffsets": f"group:{group}"})
        except OptionError as why:
            if group == "nobody" or may_lack or "is not known" in str(why):
                return []
            raise
        assert found == wanted or may_lack or texts, f"{group}: {found}, not {wanted}"
        return found

    def _looked_up(self, rng: random.Random) -> None:
        row = rng.choice(self._rows)
        assert Store(self._root).get(row["offsetMsgId"]).num_rows == 1
        Store(self._root).history(row["msgId"] or row["offsetMsgId"])

    def _shown(self, rng: random.Random) -> None:
        summarize(Snapshot.find(str(self._root), Files()))

    def _explained(self, rng: random.Random) -> None:
        topic = rng.choice(self._rows)["topic"]
        try:
            explained(reading.options_of(self._root, subscribe=topic))
        except OptionError:
            return

    def _copied(self, rng: random.Random) -> None:
        """A copy has all messages, or is refused in one line."""
        target = self._root.with_name("copied")
        try:
            Store(self._root).copy(target)
        except RmqStoreError:
            return
        else:
            assert len(reference.read_store(target)) == self._copied_rows
        finally:
            shutil.rmtree(target, ignore_errors=True)


def timed(call: Callable[[], None]) -> None:
    """Call it within bounds of time and memory.

    Raises:
        AssertionError: it took more.
    """
    begun, before = time.process_time(), memory.peak()
    faulthandler.dump_traceback_later(_MOST_WAITING, exit=True)  # a hang that takes no time of the processor
    try:
        call()
    finally:
        faulthandler.cancel_dump_traceback_later()
    spent, peak = time.process_time() - begun, memory.peak()
    assert spent < _MOST_SECONDS, f"{spent} s"
    assert peak <= max(before, _MOST_BYTES), f"{peak} bytes"


class told(logging.Handler):
    """Messages of at least warnings that name a directory, while the block runs."""

    def __init__(self, directory: str) -> None:
        super().__init__(logging.WARNING)
        self._directory = directory
        self._logger = logging.getLogger("rmqstore_spark")
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if self._directory in text:
            self.texts.append(text)

    def __enter__(self) -> list[str]:
        self._logger.addHandler(self)
        self._logger.setLevel(logging.WARNING)
        return self.texts

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(logging.NOTSET)


def _of_known(rows: list[_Row]) -> list[_Row]:
    """Rows without those of topics that no configuration names: if no queue has their messages, either, they count as
    those of a deleted topic."""
    return [row for row in rows if row.get("topic") != "rmq_sys_wheel_timer" and not is_light(row.get("topic") or "")]


def _differing(some: list[_Row], others: list[_Row]) -> list[_Row]:
    return [row for row in some if row not in others]


def _rows_of(root: Path, table: str) -> list[_Row]:
    found = Store(root).table(table)
    found = found.drop_columns([name for name in _PLACES if name in found.column_names])
    rows = [row for batch in found.to_batches() for row in reading.rows_of(batch)]
    return sorted(rows, key=lambda row: json.dumps(row, default=str, sort_keys=True))
