"""Rows that are read again, and rows in order, with no more of them in memory than temporary.IN_MEMORY. The others wait
in temporary files (temporary.py).
"""

import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore_spark import temporary
from rmqstore_spark.temporary import close, no_room_named, spooled, temporary_file

Batches = Iterator[pa.RecordBatch]
Keys = Sequence[tuple[str, str]]  # columns, each `ascending` or `descending`

_LEAST_PIECE, _MOST_PIECE = 128 * 1024, 512 * 1024  # bytes of each run that are in memory while runs are merged
_ROWS = 2048  # enough for a piece, where they have these bytes
_RUNS = 16  # so many runs are merged into one: few files are open, however many rows there are


class WaitingRows:
    """Rows that are read again later, as they came. One reader at a time."""

    def __init__(self, schema: pa.Schema, batches: Batches) -> None:
        self._file = spooled(self)
        _write(self._file, schema, batches)

    def __iter__(self) -> Batches:
        return _read(self._file)


def in_order(schema: pa.Schema, batches: Batches, keys: Keys, most: int | None = None) -> Batches:
    """Rows in the order of some columns; nulls come last, and rows that are alike there stay as they came.

    Args:
        most: so many rows at most. Then no others are kept.

    Raises:
        StorageError: there is no room for temporary files.
    """
    runs = _Runs(schema, keys)
    kept, nbytes = [schema.empty_table()], 0
    for batch in batches:
        kept.append(pa.Table.from_batches([batch], schema))
        nbytes += batch.get_total_buffer_size()
        if nbytes > temporary.IN_MEMORY // 2:  # in order they are copied
            kept = [_first(kept, keys, most)]
            if most is None or kept[0].nbytes > temporary.IN_MEMORY // 4:
                runs.add(_pieces(kept[0]))
                kept = [schema.empty_table()]
                pa.default_memory_pool().release_unused()  # else the process grows with each sort that follows
            nbytes = kept[0].nbytes
    ordered = runs.then(_first(kept, keys, most))
    del kept
    yield from first(ordered, most)


def merged(schema: pa.Schema, runs: Iterable[Batches], keys: Keys) -> Batches:
    """The rows of some runs, each of which is in the order of some columns, in this order; rows that are alike there
    stay as they came. A run is taken to its end before the next one.

    Raises:
        StorageError: there is no room for temporary files.
    """
    of_all = _Runs(schema, keys)
    for run in runs:
        of_all.add(piece for batch in run for piece in _pieces(pa.Table.from_batches([batch], schema)))
    yield from of_all.then(schema.empty_table())


def begins(rows: pa.Table, names: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Which rows are unlike those before them in some columns, none of which has a null?"""
    is_first = np.ones(len(rows), bool)
    if len(rows):
        is_first[1:] = False
        for name in names:
            values = rows[name].combine_chunks()
            is_first[1:] |= pc.not_equal(values[1:], values[:-1]).to_numpy(zero_copy_only=False)
    return is_first


def _first(tables: list[pa.Table], keys: Keys, most: int | None) -> pa.Table:
    """The first rows of all tables in their order, without the memory of the others."""
    whole = pa.concat_tables(tables)
    return whole.take(pc.sort_indices(whole, sort_keys=list(keys))[:most])


def _pieces(rows: pa.Table) -> Batches:
    """The rows in batches of some _ROWS rows, of bytes in these bounds; none is empty."""
    size = max(1, rows.nbytes) / max(1, len(rows))
    at_once = max(1, int(min(max(_ROWS, _LEAST_PIECE / size), _MOST_PIECE / size)))
    for batch in rows.to_batches():
        yield from (batch.slice(at, at_once) for at in range(0, len(batch), at_once))


def first(batches: Batches, most: int | None) -> Batches:
    """The first rows; all if `most` is None."""
    for batch in batches:
        yield batch if most is None else batch.slice(0, min(most, len(batch)))
        if most is not None:
            most -= min(most, len(batch))
            if not most:
                return


class _Runs:
    """Rows that came, in runs: each is in order, and in a file of its own."""

    def __init__(self, schema: pa.Schema, keys: Keys) -> None:
        self._schema = schema
        self._keys = keys
        self._files: list[list[IO[bytes]]] = []  # that were merged so often; each list in the order in which rows came

    def add(self, rows: Batches, level: int = 0) -> None:
        """Add rows that are in order, and came after all others."""
        if level == len(self._files):
            self._files.append([])
        files = self._files[level]
        file = temporary_file()
        weakref.finalize(self, close, file)
        _write(file, self._schema, rows)
        files.append(file)
        if len(files) == _RUNS:
            self.add(_merged([*map(_read, files)], self._keys), level + 1)
            for file in files:
                close(file)
            files.clear()

    def then(self, rows: pa.Table) -> Batches:
        """All rows in order, with these, which are in order and came after all others."""
        if not self._files:
            return iter(rows.to_batches())
        if len(rows):
            self.add(_pieces(rows))
        files = [file for level in reversed(self._files) for file in level]
        return _read(files[0]) if len(files) == 1 else _merged([*map(_read, files)], self._keys)


def _write(file: IO[bytes], schema: pa.Schema, rows: Batches) -> None:
    """Write rows to a file that has none.

    Raises:
        StorageError: there is no room.
    """
    sink = pa.ipc.new_stream(pa.PythonFile(file, "w"), schema)
    for batch in rows:
        with no_room_named():
            sink.write_batch(batch)
    with no_room_named():
        sink.close()
        file.flush()


def _read(file: IO[bytes]) -> Batches:
    file.seek(0)
    return iter(pa.ipc.open_stream(pa.PythonFile(file, "r")))


class _Head(NamedTuple):
    """A batch of a run that is being merged: what of it is not yet given, and its first and last row's keys."""

    rows: pa.RecordBatch
    ends: pa.Table
    run: Batches

    @classmethod
    def of(cls, rows: pa.RecordBatch | None, run: Batches, keys: Keys) -> "Iterator[_Head]":
        """The head of a run that goes on with these rows, else with those of its next batch, if there are any."""
        rows = rows if rows is not None and len(rows) else next(run, None)
        if rows is not None:
            columns = rows.select([name for name, _ in keys])
            yield cls(rows, pa.Table.from_batches([columns.slice(0, 1), columns.slice(len(rows) - 1)]), run)


def _merged(runs: list[Batches], keys: Keys) -> Batches:
    """The rows of all runs in order. Of each run, one batch is in memory: rows up to the first place where another
    batch of some run is needed are given, all at once."""
    heads = [head for run in runs for head in _Head.of(None, run, keys)]
    while heads:
        ends = _order([head.ends for head in heads], keys)
        first_last = int(np.flatnonzero(ends % 2)[0])  # the other runs begin after it
        used = np.sort(ends[:first_last] // 2).tolist()
        rows, counts = _of_heads([heads[number].rows for number in used], keys)
        yield from rows
        given = dict(zip(used, counts, strict=True))
        heads = [
            each
            for number, head in enumerate(heads)
            for each in (_Head.of(head.rows.slice(given[number]), head.run, keys) if number in given else [head])
        ]


def _of_heads(heads: list[pa.RecordBatch], keys: Keys) -> tuple[list[pa.RecordBatch], list[int]]:
    """The rows up to the first end of a batch, in order; and how many of each batch these are."""
    sizes = np.array([len(head) for head in heads])
    ends = np.cumsum(sizes)
    order = _order([pa.Table.from_batches([head.select([name for name, _ in keys])]) for head in heads], keys)
    order = order[: int(np.flatnonzero(np.isin(order, ends - 1))[0]) + 1]
    of_head = np.searchsorted(ends, order, "right")
    counts = np.bincount(of_head, minlength=len(heads))
    # What a batch gives are its first rows, so that these alone are put together.
    some = [pa.Table.from_batches([head.slice(0, count)]) for head, count in zip(heads, counts.tolist(), strict=True)]
    rows = order - (ends - sizes)[of_head] + (np.cumsum(counts) - counts)[of_head]
    return pa.concat_tables(some).combine_chunks().take(pa.array(rows)).to_batches(), counts.tolist()


def _order(tables: list[pa.Table], keys: Keys) -> npt.NDArray[np.int64]:
    order = pc.sort_indices(pa.concat_tables(tables), sort_keys=list(keys)).to_numpy()
    return order.astype(np.int64)  # type: ignore[no-any-return]
