"""Where memory ends, the kernel's Decoder says so and gives back what it had; the memory of a batch stays as long as
anyone uses it."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import queue
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from oracle import reference
from support.kernels import decode, encode_log, rows_of, run_python

from native_io import COLUMNS, Decoder
from rmqstore_spark.columns import arrow_schema
from rmqstore_spark.store.format.units import BatchBuilder

I32 = 1 << 31
SANITIZED = bool(os.environ.get("RMQ_SANITIZED"))


def test_a_column_beyond_2_gib() -> None:
    """The second body would take it there; it is refused before there is memory for it, or any of it is read."""
    size = I32 - 1
    small = reference.encode_unit(topic="", body=b"x" * 200)
    huge = reference.encode_unit(topic="", physical_offset=len(small), total_size=size, body_length=size - 91)
    window = mmap.mmap(-1, len(small) + size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    window[: len(small) + len(huge)] = small + huge
    positions = np.array([0, len(small)])
    decoder = Decoder(["body"])
    with pytest.raises(OverflowError, match="2 GiB"):
        decoder.append(window, positions, base=0)
    with pytest.raises(RuntimeError):
        decoder.finish()
    assert decode(window, positions, ["storeSize"]) == [{"storeSize": len(small)}, {"storeSize": size}]


def test_a_column_of_too_many_rows() -> None:
    positions = np.frombuffer(mmap.mmap(-1, 8 << 28), np.int64)
    with pytest.raises(OverflowError, match="2 GiB"):
        Decoder(["queueOffset"]).append(reference.encode_unit(), positions, base=0)


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer cannot live with a limit on memory")
def test_no_memory() -> None:
    code = """
import mmap, resource
import numpy as np
from oracle import reference
from native_io import Decoder
size = 1 << 30
window = mmap.mmap(-1, size)
window[:91] = reference.encode_unit(topic="", total_size=size, body_length=size - 91)
decoder = Decoder(["body"])
now = int(open("/proc/self/statm").read().split()[0]) * mmap.PAGESIZE
resource.setrlimit(resource.RLIMIT_AS, (now + (size >> 2),) * 2)
try:
    decoder.append(window, np.zeros(1, np.int64), base=0)
except MemoryError:
    try:
        decoder.finish()
    except RuntimeError:
        print("shut")
"""
    assert run_python(code) == ("shut\n", "")


def test_batches_outlive_their_decoder(rng: random.Random) -> None:
    log, positions = encode_log({"body": rng.randbytes(500), "properties": {"TAGS": "x"}} for _ in range(200))
    expected = [reference.decode_unit(log[at:], at) for at in positions.tolist()]
    builder = BatchBuilder(list(COLUMNS))
    batches = []
    for _ in range(5):
        builder.append(log, positions, base=0)
        batches.append(builder.finish())
    builder.append(log, positions, base=0)
    columns = [batches.pop().column("body") for _ in range(2)]
    capsule = builder.decoder.finish()
    del builder
    gc.collect()
    assert all(rows_of(batch) == expected for batch in batches)
    assert [column.to_pylist() for column in columns] == [[row["body"] for row in expected]] * 2
    del capsule  # that nobody imported


def test_buffers_are_used_again_but_never_while_they_are_in_use(rng: random.Random) -> None:
    """Batches of very different sizes, dropped in any order and on any thread, the last ones after their decoder."""
    sizes = (0, 1, 5, 50, 400)
    units = [
        {"body": rng.randbytes(rng.randrange(2000)), "born_timestamp": rng.choice((0, 1 << 62))} for _ in range(400)
    ]
    log, positions = encode_log({**unit, "properties": {f"name{i}": str(i)}} for i, unit in enumerate(units))
    expected = [reference.decode_unit(log[at:], at) for at in positions.tolist()]
    held: queue.SimpleQueue[tuple[int, pa.RecordBatch] | None] = queue.SimpleQueue()

    def drop() -> int:
        dropped = 0
        kept = []
        rng = random.Random(1)
        while (got := held.get()) is not None:
            kept.append(got)
            while len(kept) > rng.randrange(6):
                size, batch = kept.pop(rng.randrange(len(kept)))
                assert rows_of(batch) == expected[:size]
                dropped += 1
        return dropped + len(kept)

    with ThreadPoolExecutor(2) as pool:
        droppers = [pool.submit(drop) for _ in range(2)]
        builder = BatchBuilder(list(COLUMNS))
        for _ in range(120):
            size = rng.choice(sizes)
            builder.append(log, positions[:size], base=0)
            held.put((size, builder.finish()))
        del builder
        held.put(None)
        held.put(None)
        assert sum(dropper.result() for dropper in droppers) == 120


class _ArrowArray(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")),
        *((name, ctypes.c_void_p) for name in ("buffers", "children", "dictionary", "release", "private_data")),
    )


def test_children_may_be_moved_out_of_their_batch() -> None:
    """As the C data interface says: copied away and marked as released, they live on when the batch is released."""
    log, positions = encode_log([{"body": b"abc", "properties": {"TAGS": "x", "b": "c"}}] * 9)
    names = ["body", "properties", "queueId", "tags"]
    decoder = Decoder(names)
    decoder.append(log, positions, base=0)
    capsule = decoder.finish()
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    batch = _ArrowArray.from_address(get_pointer(capsule, b"arrow_array"))
    assert (batch.length, batch.n_children) == (9, 4)
    children = (ctypes.c_void_p * 4).from_address(batch.children)
    moved = []
    for at in (children[1], children[3]):
        assert at
        child = _ArrowArray.from_address(at)
        moved.append(_ArrowArray.from_buffer_copy(child))
        child.release = None
    del child, children, batch, capsule
    schema = arrow_schema(names)
    properties, tags = (
        pa.Array._import_from_c(ctypes.addressof(one), schema.field(name).type)
        for one, name in zip(moved, ("properties", "tags"), strict=True)
    )
    for array in (properties, tags):
        array.validate(full=True)
    assert properties.to_pylist() == [[("TAGS", "x"), ("b", "c")]] * 9
    assert tags.to_pylist() == ["x"] * 9


MOST_KEPT = (400 if SANITIZED else 100) << 20  # AddressSanitizer holds back 256 MiB of freed memory


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
@pytest.mark.parametrize("imported", [True, False])
@pytest.mark.parametrize(("body", "rounds"), [(8_000, 300), (100_000, 30)], ids=["small", "too large to be kept"])
def test_memory_is_given_back(body: int, rounds: int, imported: bool) -> None:
    log, positions = encode_log([{"body": bytes(body), "properties": {"a": "b" * 1000}}] * 250)
    builder = BatchBuilder(list(COLUMNS))
    before = _resident()
    for _ in range(rounds):
        builder.append(log, positions, base=0)
        if imported:
            builder.finish()
        else:
            builder.decoder.finish()
    assert _resident() - before < MOST_KEPT < rounds * len(log)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
def test_failed_decoders_give_their_memory_back() -> None:
    log, positions = encode_log([{"body": bytes(8000)}] * 250)
    before = _resident()
    for _ in range(300):
        decoder = Decoder(["body", "properties"])
        with pytest.raises(ValueError, match="no message unit"):
            decoder.append(log, np.append(positions, 1), base=0)
    assert _resident() - before < MOST_KEPT < 300 * len(log)
