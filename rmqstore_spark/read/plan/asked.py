"""What options ask for of each store. Whoever reads what options select begins here: no other place looks at the names
in them, or knows what a consumer group in `startingOffsets` means.
"""

from dataclasses import replace

from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.read.plan.check_names import check_queues, check_topics
from rmqstore_spark.read.plan.groups import of_group
from rmqstore_spark.store.snapshot import Snapshot


def asked_of(options: ReadOptions, stores: list[Snapshot]) -> list[tuple[Snapshot, ReadOptions]]:
    """Each store, and the options as they are for it: a consumer group has become offsets of queues.

    Raises:
        OptionError: `assign` or the offsets name a queue, `subscribe` a topic, or startingOffsets a group, that no
            store has.
    """
    check_topics(options.subscribe, stores)
    check_queues(options.selection, stores)
    return with_offsets(options, stores)


def with_offsets(options: ReadOptions, stores: list[Snapshot]) -> list[tuple[Snapshot, ReadOptions]]:
    """The same, where other names are not to be checked.

    Raises:
        OptionError: startingOffsets names a group that no store has.
    """
    if options.starting_group is None:
        return [(store, options) for store in stores]
    return [
        (store, replace(options, selection=selection, starting_group=None))
        for store, selection in of_group(stores, options.starting_group, options.selection)
    ]
