"""The logs that there are under a directory: a store's commitlog, and those of single queues."""

from collections import defaultdict
from collections.abc import Iterator

from rmqstore_spark.errors import NotAStoreError
from rmqstore_spark.store.compaction_log import compaction_logs_of
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.queue_log import QueueLog
from rmqstore_spark.store.snapshot import Snapshot, StoreRef
from rmqstore_spark.store.structures.layout import Layout
from rmqstore_spark.store.structures.tiered import tiered_logs
from rmqstore_spark.store.tiered_log import TieredLog


def find_logs(
    root: str, files: Files, commitlogs: list[str] | None = None, *, committed: bool = False
) -> list[Snapshot]:
    """The logs under a directory: of a store its one commitlog, of a tiered store the log of each queue. Arguments and
    errors as of Snapshot.find()."""
    try:
        return [Snapshot.find(root, files, commitlogs, committed=committed)]
    except NotAStoreError:
        layouts = [] if commitlogs is not None else list(tiered_logs(root, files))
        if not layouts:
            raise
        of_topic: defaultdict[str, list[Layout]] = defaultdict(list)
        for layout in layouts:
            if layout.queue is not None:
                of_topic[layout.queue[0]].append(layout)
        named = ((each, each.queue[0]) for each in layouts if each.queue is not None)
        return [TieredLog(each, files, of_topic=of_topic[topic], of_tier=layouts) for each, topic in named]


def find_log(
    root: str,
    files: Files,
    commitlogs: list[str] | None = None,
    *,
    committed: bool = False,
    queue: tuple[str, int] | None = None,
) -> Snapshot:
    """One of find_logs(): the log of this queue, or the commitlog.

    Raises:
        NotAStoreError: as of Snapshot.find(); or the tiered store has no such queue any more.
    """
    if queue is None:
        return Snapshot.find(root, files, commitlogs, committed=committed)
    for layout in tiered_logs(root, files, lambda *name: name == queue):
        return TieredLog(layout, files)
    raise NotAStoreError(f"{root}: the log of topic {queue[0]!r}, queue {queue[1]} is not there any more")


def queue_logs_of(store: StoreRef) -> Iterator[QueueLog]:
    """The logs of single queues of a store that `check` looks at for this one: itself if it is one, else those beside
    its commitlog."""
    return iter([store]) if isinstance(store, QueueLog) else compaction_logs_of(store)
