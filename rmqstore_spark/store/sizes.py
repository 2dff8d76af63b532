"""How large the files of a store are: each kind has one size, which the broker must have been told as well."""

from dataclasses import dataclass

from rmqstore_spark.store.consumequeue import UNIT_SIZE


@dataclass(frozen=True)
class Sizes:
    """Of the files of a store; None is what the user leaves to the store, or else to RocketMQ's default.

    Attributes:
        segment: bytes of a commitlog file (mappedFileSizeCommitLog).
        queue_file: bytes of a ConsumeQueue file (mappedFileSizeConsumeQueue), a multiple of 20.
        slots: hash slots of an index file (maxHashSlotNum).
        items: entries of an index file, the unused first one included (maxIndexNum).
    """

    segment: int | None = None
    queue_file: int | None = None
    slots: int | None = None
    items: int | None = None


@dataclass(frozen=True)
class FileSizes:
    """Sizes, all known."""

    segment: int
    queue_file: int
    slots: int
    items: int


DEFAULT_SIZES = FileSizes(1 << 30, 300_000 * UNIT_SIZE, 5_000_000, 20_000_000)
