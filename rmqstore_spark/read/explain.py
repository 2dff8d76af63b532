"""How a read with given options would find its messages, and its cost, in a few lines."""

from collections.abc import Iterator, Mapping, Sequence

from rmqstore_spark.amounts import size_text
from rmqstore_spark.columns import DEFAULT_COLUMNS
from rmqstore_spark.errors import counted, one_line
from rmqstore_spark.query.option_texts import Paths, path_options
from rmqstore_spark.query.options import EXPLAIN_OPTIONS, ReadOptions, option_texts, parse_options
from rmqstore_spark.read.follow.stream_offset import StreamOffset
from rmqstore_spark.read.pieces.task import Covered, Indexed, Queued, Range, Task
from rmqstore_spark.read.plan.access_path import Access
from rmqstore_spark.read.plan.planner import Plan, plan
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.segments import Extent

_MOST_STORES = 3


def explanation(path: Paths, options: Mapping[str, object], files: Files | None = None) -> str:
    """How the read would go. Arguments and errors are those of rmqstore_spark.explain(); `files` is as of plan()."""
    return explained(parse_options({**path_options(path), **option_texts(options, EXPLAIN_OPTIONS)}), files)


def explained(options: ReadOptions, files: Files | None = None) -> str:
    """The explanation for options that are parsed already."""
    return "\n".join(map(one_line, _lines(plan(options, files, options.columns or DEFAULT_COLUMNS))))


def summary(planned: Plan) -> Iterator[str]:
    """A plan for the log file: the way to each store's messages, and the share of its messages that is read; only the
    first of many stores."""
    yield counted(len(planned.tasks), "task")
    for store, access in planned.accesses[:_MOST_STORES]:
        size = size_text(sum(size for _, size in access.pieces))
        yield f"{store.root} by {access.name}: about {size} of {size_text(store.log.size)}"
    if len(planned.accesses) > _MOST_STORES:
        yield f"and {counted(len(planned.accesses) - _MOST_STORES, 'more store')}"


def batch_summary(start: StreamOffset, end: StreamOffset, tasks: Sequence[Task]) -> Iterator[str]:
    """A stream's batch for the log file: the end of the batch in each store, and how much of the log is before that."""
    yield counted(len(tasks), "task")
    since = {root: place.position for root, place in start.stores.items()}
    moved = [
        (root, to.position, to.position - since[root])
        for root, to in sorted(end.stores.items())
        if root in since and to.position > since[root]
    ]
    for root, position, size in moved[:_MOST_STORES]:
        yield f"{root} to commitLogOffset {position}: {size_text(size)} of the log"
    if len(moved) > _MOST_STORES:
        yield f"and {counted(len(moved) - _MOST_STORES, 'more store')}"


def _lines(planned: Plan) -> Iterator[str]:
    for store, access in planned.accesses:
        yield from _of_store(store, access)
    size = size_text(planned.files.bytes)
    pieces = [piece for task in planned.tasks for piece in task.ranges]
    target = f"; each is to have at most about {size_text(planned.target)} of the log"
    yield f"partitions: {len(planned.tasks):,}{'' if pieces and all(map(_is_covered, pieces)) else target}"
    yield f"planning has read {size} in {planned.files.requests:,} requests"


def _of_store(store: Snapshot, access: Access) -> Iterator[str]:
    pieces = [piece for piece, _ in access.pieces]
    yield f"store {store.root}: {_files(store.log.extents)}, {size_text(store.log.size)} of messages"
    if store.uncommitted is not None:
        yield f"  may be taken back: {store.uncommitted}"
    yield f"  access: {access.name}: {access.why}"
    size = size_text(sum(size for _, size in access.pieces))
    yield f"  reads:  {', '.join(_parts(pieces)) or 'nothing'}; about {size} in all"
    for reason in access.unused:
        yield f"  not used: {reason}"


def _parts(pieces: Sequence[Range]) -> Iterator[str]:
    indexed = [piece for piece in pieces if isinstance(piece, Indexed)]
    queued = [piece for piece in pieces if isinstance(piece, Queued)]
    covered = [piece for piece in pieces if isinstance(piece, Covered)]
    scanned = [piece for piece in pieces if not isinstance(piece, Indexed | Queued | Covered)]
    if indexed:
        yield f"{sum(len(piece.positions) for piece in indexed):,} offsets in {_files(indexed)}"
    if queued:
        yield f"what the ConsumeQueues name in {_stretch(queued)}"
    if covered:
        size = size_text(sum(piece.stop - piece.start for piece in covered))
        yield f"only the ConsumeQueues, and nothing of the {size} of messages"
    if scanned:
        yield f"all of {_stretch(scanned)}"


def _is_covered(piece: Range) -> bool:
    return isinstance(piece, Covered)


def _stretch(pieces: Sequence[Range]) -> str:
    return f"{size_text(sum(piece.stop - piece.start for piece in pieces))} of {_files(pieces)}"


def _files(pieces: Sequence[Extent]) -> str:
    return counted(len({piece.segment.path for piece in pieces}), "commitlog file")
