"""Section `bodies`: bodies that a producer has compressed, against the library that decompresses them and nothing else,
RocketMQ's MessageDecoder, and one core."""

from __future__ import annotations

import ctypes
import functools
import os
import tempfile
import time
from collections.abc import Callable, Iterator

import pyarrow.compute as pc
from all_cores import read_on
from generate import Store
from measure import Row, Stores, batches_of, in_turns, scan_store
from peers import WARM_UP_PASSES, DecodeLog, RocketMq, Unavailable, totals

BODY_BYTES = 7400  # clients compress what has more than 4 KB
STORE_PART = 8  # of the bytes of other stores: bodies come to several times as many
_LZ4F_VERSION = 100
_GOALS = {"zlib": ">= 0.8"}  # of the library's speed

# (a body as stored, where to put what it comes to) -> how many bytes that is
Decompress = Callable[[bytes, "ctypes.Array[ctypes.c_char]"], int]


def body_rows(stores: Stores, repeat: int) -> Iterator[Row]:
    """Each way to compress, with JSON as the other stores have it, in longer bodies."""
    for name, (file, make) in _LIBRARIES.items():
        store = stores.of(BODY_BYTES, total_bytes=stores.total_bytes // STORE_PART, compression=name)
        nbytes = totals(store)["bodyBytes"]
        what = f"bodies of 7.4 KB compressed with {name}, file to Arrow, one core"
        cases: dict[str, Callable[[], object]] = {"ours": functools.partial(scan_store, store, True)}
        try:
            library = _Library(store, nbytes, make(ctypes.CDLL(file)))
        except OSError:
            best = in_turns(repeat, cases, clock=time.process_time)
            yield Row(f"{what} ({file} is not there)", nbytes / best["ours"] / 1e6, "MB/s of bodies")
        else:
            cases["library"] = library.run
            best = in_turns(repeat, cases, clock=time.process_time)
            ratio = best["library"] / best["ours"]
            yield Row(
                f"{what} / {file} alone (CPU)",
                nbytes / best["ours"] / 1e6,
                "MB/s of bodies",
                ratio,
                _GOALS.get(name, ""),
            )
        yield _both_cores(store, name, nbytes, repeat)
        yield _decoder(store, name, nbytes, repeat)


def _both_cores(store: Store, name: str, nbytes: int, repeat: int) -> Row:
    cores = len(os.sched_getaffinity(0))
    cases: dict[str, Callable[[], object]] = {
        "all": functools.partial(read_on, store, cores),
        "one": functools.partial(read_on, store, 1),
    }
    best = in_turns(repeat, cases)
    goal = ">= 1.7" if cores == 2 else ""
    what = f"bodies compressed with {name}, Store.messages(): {cores} cores / one"
    return Row(what, nbytes / best["all"] / 1e6, "MB/s of bodies", best["one"] / best["all"], goal)


def _decoder(store: Store, name: str, nbytes: int, repeat: int) -> Row:
    """Against MessageDecoder, which decompresses as well and has to find the same."""
    what = f"bodies compressed with {name}, CRC on, one core / MessageDecoder that decompresses"
    try:
        rocketmq = RocketMq()
    except Unavailable as why:
        return Row(what, None, f"not measured: {' '.join(str(why).split())}")
    with tempfile.TemporaryDirectory(prefix="rmqstore-bench-") as home, DecodeLog(rocketmq, store, home) as theirs:
        ours = totals(store)
        for _ in range(WARM_UP_PASSES):
            found = theirs.decompress()
            assert found == ours, f"{store.root}: RocketMQ finds {found}, we find {ours}"
        cases: dict[str, Callable[[], object]] = {
            "theirs": theirs.decompress,
            "ours": functools.partial(scan_store, store, True),
        }
        best = in_turns(repeat, cases)
    return Row(what, nbytes / best["ours"] / 1e6, "MB/s of bodies", best["theirs"] / best["ours"], ">= 1.5")


class _Library:
    """A library alone, on all bodies of a store, which lie in memory: a call through ctypes for each.

    Args:
        nbytes: to how many bytes all bodies come.
    """

    def __init__(self, store: Store, nbytes: int, decompress: Decompress) -> None:
        self._bodies: list[bytes] = []
        for batch in batches_of(store, names=["body"], decompress="false"):
            self._bodies += batch.column("body").to_pylist()
        self._decompress = decompress
        most = max(
            pc.max(pc.binary_length(batch.column("body"))).as_py() for batch in batches_of(store, names=["body"])
        )
        self._out = ctypes.create_string_buffer(most)
        assert self.run() == nbytes

    def run(self) -> int:
        """How many bytes they come to."""
        decompress, out = self._decompress, self._out
        return sum(decompress(body, out) for body in self._bodies)


def _libdeflate(library: ctypes.CDLL) -> Decompress:
    library.libdeflate_alloc_decompressor.restype = ctypes.c_void_p
    decompressor = ctypes.c_void_p(library.libdeflate_alloc_decompressor())
    call, found = library.libdeflate_zlib_decompress, ctypes.c_size_t()
    call.argtypes = [
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_void_p,
    ]
    at = ctypes.byref(found)

    def decompress(body: bytes, out: ctypes.Array[ctypes.c_char]) -> int:
        assert call(decompressor, body, len(body), out, len(out), at) == 0
        return found.value

    return decompress


def _liblz4(library: ctypes.CDLL) -> Decompress:
    context = ctypes.c_void_p()
    library.LZ4F_createDecompressionContext(ctypes.byref(context), _LZ4F_VERSION)
    call, made, taken = library.LZ4F_decompress, ctypes.c_size_t(), ctypes.c_size_t()
    call.restype = ctypes.c_size_t
    call.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_char_p] + [ctypes.c_void_p] * 2
    at = ctypes.byref(made), ctypes.byref(taken)

    def decompress(body: bytes, out: ctypes.Array[ctypes.c_char]) -> int:
        made.value, taken.value = len(out), len(body)
        assert call(context, out, at[0], body, at[1], None) == 0
        return made.value

    return decompress


def _libzstd(library: ctypes.CDLL) -> Decompress:
    library.ZSTD_createDCtx.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.ZSTD_createDCtx())
    call = library.ZSTD_decompressDCtx
    call.restype = ctypes.c_size_t
    call.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]

    def decompress(body: bytes, out: ctypes.Array[ctypes.c_char]) -> int:
        found: int = call(context, out, len(out), body, len(body))  # an error is no size: run() notices
        return found

    return decompress


_LIBRARIES: dict[str, tuple[str, Callable[[ctypes.CDLL], Decompress]]] = {
    "zlib": ("libdeflate.so.0", _libdeflate),
    "lz4": ("liblz4.so.1", _liblz4),
    "zstd": ("libzstd.so.1", _libzstd),
}
