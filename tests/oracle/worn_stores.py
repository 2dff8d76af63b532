"""Random stores that have been cut, damaged and robbed of queue files, with what is left of each queue.

Where their queues end is known from what was done to them.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from oracle import reference
from oracle.stores import StoreBuilder, Stored

Queue = tuple[str, int]
TOPICS = ("TopicA", "TopicB", "TopicC")
LIGHT = "%LMQ%light"


@dataclass
class Worn:
    """A closed store, and what happened to it.

    Attributes:
        damaged: live messages that cannot be read any more.
        robbed: queues that have lost units.
        was_cut: whether units may be left over.
    """

    store: StoreBuilder
    damaged: list[Stored] = field(default_factory=list)
    robbed: set[Queue] = field(default_factory=set)
    was_cut: bool = False

    @property
    def whole(self) -> list[Stored]:
        lost = {message.position for message in self.damaged}
        return [message for message in self.store.messages if message.queued and message.position not in lost]

    def units(self) -> dict[tuple[str, int, int], reference.QueueUnit]:
        return {(t, q, number): unit for t, q, number, unit in reference.read_queues(self.store.root)}

    def known(self, queue: Queue) -> list[Stored]:
        """The live messages of a queue, damaged or not, that it has units of."""
        units = self.units()

        def is_known(message: Stored) -> bool:
            unit = units.get((*queue, message.queue_offset))
            return unit is not None and (unit.physical_offset, unit.size) == (message.position, message.size)

        return [m for m in self.store.messages if m.queued and (m.topic, m.queue_id) == queue and is_known(m)]


def worn_store(root: Path, rng: random.Random, damage: bool = True, rob: bool = True) -> Worn:
    """A store of some segments. Its last message is whole, so that no damage could be the log's end."""
    store = StoreBuilder(
        root,
        rng.choice((2048, 4096, 8192)),
        rng.choice((40, 200, 400, 20_000)),
        rng.choice((0, 3)) * 8192,
    )
    worn = Worn(store)
    sizes = rng.choice(((0,), (50,), (0, 10, 60, 200, 900)))  # of one size, left-over units often meet new messages
    if rng.random() < 0.3:
        store.start_queue(TOPICS[0], 0, rng.randrange(40))
    clock = store.now
    for _ in range(rng.randrange(1, 5)):
        for _ in range(rng.choice((1, 5, 20, 80))):
            clock += 1
            properties: reference.Properties = {"INNER_MULTI_DISPATCH": LIGHT} if rng.random() < 0.1 else {}
            sys_flag = reference.PREPARED if rng.random() < 0.05 else 0
            topic, queue_id = rng.choice(TOPICS), rng.randrange(2)
            body = b"b" * rng.choice(sizes)
            store.append(topic, body, queue_id, properties=properties, store_timestamp=clock, sys_flag=sys_flag)
        if rng.random() < 0.5 and len(store.messages) > 3:
            store.forget_last(rng.randrange(1, min(len(store.messages), 30)))
            worn.was_cut = True
    clock += 1
    store.append("Last", b"b" * 133, store_timestamp=clock)  # of a size that no other has
    if rng.random() < 0.3:
        segments = len(reference.segment_files(root))
        if segments > 2:
            store.expire(rng.randrange(1, segments - 1))
    store.close()
    _make_light_queue(worn)
    if damage:
        _damage(worn, rng)
    if rob:
        _rob(worn, rng)
    return worn


def _make_light_queue(worn: Worn) -> None:
    store = worn.store
    chosen = []
    for _, data in reference.read_units(store.root):
        unit = reference.parse_unit(data, _)
        if b"INNER_MULTI_DISPATCH" in unit.properties:
            chosen.append((unit.physical_offset, unit.total_size))
    if chosen:
        directory, size = store.queue_directory(LIGHT, 0), store.queue_file_size
        directory.mkdir(parents=True)
        units = b"".join(reference.encode_queue_unit(position, nbytes, 0) for position, nbytes in chosen)
        for at in range(0, len(units), size):
            (directory / f"{at:020d}").write_bytes(units[at : at + size].ljust(size, b"\0"))


def _damage(worn: Worn, rng: random.Random) -> None:
    """The last segment, if nothing else is asked for, stays whole, as nothing is appended behind damage."""
    store = worn.store
    last_segment = store.messages[-1].position // store.segment_size
    some = [m for m in store.messages[:-1] if m.position // store.segment_size < last_segment]
    if rng.random() < 0.3:
        some = store.messages[:-1]
    if not some:
        return
    count = rng.choice((0, 1, 2, 5, len(some)))
    some = rng.sample(some, min(count, len(some)))
    if rng.random() < 0.5:  # the last ones of queues
        last = {(m.topic, m.queue_id): m for m in store.messages[:-1]}
        some += [m for m in last.values() if rng.random() < 0.5 and m.position // store.segment_size < last_segment]
    for message in {message.position: message for message in some}.values():
        path = store.segment(message.position)
        data = bytearray(path.read_bytes())
        at = message.position % store.segment_size
        match rng.randrange(3):
            case 0:
                data[at + 4] ^= 0x10  # magic
            case 1:
                data[at : at + message.size] = rng.randbytes(message.size)
            case 2:
                data[at : at + message.size] = b"\xff" * message.size
        path.write_bytes(data)
        worn.damaged.append(message)


def _rob(worn: Worn, rng: random.Random) -> None:
    """Take units away at the ends of queues, but not that of the log's last message."""
    directories = sorted(path for path in (worn.store.root / "consumequeue").glob("Topic*/*"))
    for directory in rng.sample(directories, min(len(directories), rng.choice((0, 0, 1, 2)))):
        files = sorted(directory.iterdir())
        if not files:
            continue
        worn.robbed.add((directory.parent.name, int(directory.name)))
        match rng.randrange(4):
            case 0:
                shutil.rmtree(directory)
            case 1:
                for path in files:
                    path.unlink()
            case 2:
                for path in files[rng.randrange(len(files)) :]:
                    path.unlink()
            case 3:
                data = files[-1].read_bytes()
                files[-1].write_bytes(data[: rng.randrange(0, len(data), 20)].ljust(len(data), b"\0"))
