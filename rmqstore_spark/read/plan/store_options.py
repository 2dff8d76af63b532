"""The options as they are for each store. Every read by options begins here: no other module checks the names in
options, or resolves a consumer group in `startingOffsets`.
"""

from dataclasses import replace

from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.read.plan.check_names import check_queues, check_topics
from rmqstore_spark.read.plan.groups import of_group
from rmqstore_spark.read.plan.prune import offsets_asked
from rmqstore_spark.store.snapshot import Snapshot


def options_by_store(options: ReadOptions, stores: list[Snapshot]) -> list[tuple[Snapshot, ReadOptions]]:
    """Each store with the options for it: a consumer group has become offsets of queues. Logs of queues that are not
    selected are left out.

    Raises:
        OptionError: no store has a queue that `assign` or the offsets name, a topic of `subscribe`, or the group of
            startingOffsets.
    """
    check_topics(options.subscribe, stores)
    check_queues(options.selection, stores)
    return with_offsets(options, stores)


def with_offsets(options: ReadOptions, stores: list[Snapshot]) -> list[tuple[Snapshot, ReadOptions]]:
    """options_by_store() where other names are not to be checked.

    Raises:
        OptionError: startingOffsets names a group that no store has.
    """
    if options.starting_group is None:
        return [(store, own) for store in stores if (own := _of_log(store, options)) is not None]
    return [
        (store, replace(options, selection=selection, starting_group=None))
        for store, selection in of_group(stores, options.starting_group, options.selection)
    ]


def _of_log(store: Snapshot, options: ReadOptions) -> ReadOptions | None:
    """The options for a log, where messages may have no offsets of a commitlog. None where the log is that of queues
    that are not selected."""
    if not store.may_have(offsets_asked(options.selection)):
        return None
    own = options.selection if store.has_physical_offsets else options.selection.without_offsets()
    return options if own == options.selection else replace(options, selection=own)
