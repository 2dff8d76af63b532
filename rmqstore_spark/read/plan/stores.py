"""The stores that a read names, opened."""

import logging
from collections.abc import Iterable

from rmqstore_spark.errors import NotAStoreError, OptionError, one_line
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.io.storage import scheme_of
from rmqstore_spark.store.logs import find_logs
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.layout import announce, expand, strays_of

log = logging.getLogger(__name__)


def files_of(options: ReadOptions) -> Files:
    """Access to the files of the stores that the options name.

    Raises:
        OptionError: some stores are on disks and some are not.
    """
    schemes = [scheme_of(path) for path in options.paths]
    if not any(schemes):
        return Files(manners=options.manners)
    if not all(schemes):
        raise OptionError(
            "paths of local and of remote stores are given together; read them separately, and unite the rows"
        )
    # Imported here: a local store needs nothing of it, and asyncio comes with it.
    from rmqstore_spark.store.io.remote.files import RemoteFiles

    return RemoteFiles(manners=options.manners, storage=options.storage)


def open_stores(options: ReadOptions, files: Files, *, with_queue_logs: bool = False) -> list[Snapshot]:
    """The stores that the options name.

    Args:
        with_queue_logs: whether a tiered store is given as the logs of its queues; else it is refused.

    Raises:
        NotAStoreError: a path is no store, or a tiered store.
        OptionError: storePathCommitLog is given for more than one store.
    """
    roots = _roots(options, files)
    for root in roots:
        announce(root, files, options.selection.names or options.selection.ids)
    commitlogs, committed = options.store_path_commit_log, options.committed
    stores = [log for root in roots for log in find_logs(root, files, commitlogs, committed=committed)]
    part = next((store for store in stores if not store.is_whole), None)
    if part is not None and not with_queue_logs:
        raise NotAStoreError(
            f"{part.root}: {part.what} has messages and the tables topics, queues, usage, segments, consumequeue, "
            "traces and check, and history, and nothing else; give the broker's own store directory"
        )
    if len({store.what for store in stores}) > 1:
        raise OptionError(
            "a tiered store and another one are given together, which may have the same messages: read the store with "
            "option 'tiered', which names the tiered store, or read them separately"
        )
    for store in stores:
        _say_strays(store.layout.strays)
    return stores


def see_stores(options: ReadOptions, files: Files) -> None:
    """See that the options name stores, of any kind, without a look at each file. Errors are those of open_stores()."""
    try:
        for root in _roots(options, files):
            files.list_tree(root)
            _say_strays(strays_of(root, options.store_path_commit_log, files))
    except NotAStoreError:  # or a tiered store
        open_stores(options, files, with_queue_logs=True)


def _roots(options: ReadOptions, files: Files) -> list[str]:
    roots = expand(options.paths, files)
    if options.store_path_commit_log and len(roots) > 1:
        raise OptionError(f"option 'storePathCommitLog' belongs to one store, but the path gives {len(roots)}")
    return roots


def _say_strays(strays: Iterable[str]) -> None:
    for stray in strays:
        log.warning("%s: not a commitlog file, ignored; a broker would not start with it", one_line(stray))
