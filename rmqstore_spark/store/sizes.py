"""How large the files of a store are: each kind has one size, which the broker must have been told as well."""

from dataclasses import dataclass

from rmqstore_spark.store.consumequeue import UNIT_SIZE


@dataclass(frozen=True)
class Sizes:
    """Of the files of a store. None is one that is not known, or that the user leaves to the store.

    Attributes:
        segment: bytes of a commitlog file (mappedFileSizeCommitLog).
        queue_file: bytes of a ConsumeQueue file (mappedFileSizeConsumeQueue), a multiple of UNIT_SIZE.
        slots: hash slots of an index file (maxHashSlotNum).
        items: entries of an index file, the unused first one included (maxIndexNum).
    """

    segment: int | None = None
    queue_file: int | None = None
    slots: int | None = None
    items: int | None = None

    def or_defaults(self) -> "FileSizes":
        """These, and RocketMQ's own where there is none."""
        return FileSizes(
            self.segment or DEFAULT_SIZES.segment,
            self.queue_file or DEFAULT_SIZES.queue_file,
            self.slots or DEFAULT_SIZES.slots,
            self.items or DEFAULT_SIZES.items,
        )


@dataclass(frozen=True)
class FileSizes:
    """Sizes, all known."""

    segment: int
    queue_file: int
    slots: int
    items: int


# RocketMQ's own (MessageStoreConfig).
DEFAULT_SIZES = FileSizes(segment=1 << 30, queue_file=300_000 * UNIT_SIZE, slots=5_000_000, items=20_000_000)
