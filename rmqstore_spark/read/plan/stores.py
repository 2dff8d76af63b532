"""The stores that a read names, opened."""

import logging

from rmqstore_spark.errors import OptionError, one_line
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.io.remote.files import RemoteFiles
from rmqstore_spark.store.io.storage import scheme_of
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.layout import expand, read_first

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
    return RemoteFiles(manners=options.manners, storage=options.storage)


def open_stores(options: ReadOptions, files: Files) -> list[Snapshot]:
    """The stores that the options name.

    Raises:
        NotAStoreError: a path is no store.
        OptionError: storePathCommitLog is given for more than one store.
    """
    roots = expand(options.paths, files)
    if files.is_slow:
        for root in roots:
            files.list_tree(root)
            files.prefetch(
                (path, 0) for path in read_first(root, files, options.selection.names or options.selection.ids)
            )
    if options.store_path_commit_log and len(roots) > 1:
        raise OptionError(f"option 'storePathCommitLog' belongs to one store, but the path gives {len(roots)}")
    stores = [Snapshot.find(root, files, options.store_path_commit_log, committed=options.committed) for root in roots]
    for store in stores:
        for stray in store.layout.strays:
            log.warning("%s: not a commitlog file, ignored; a broker would not start with it", one_line(stray))
    return stores
