"""What a broker keeps in config/, where it may be large."""

import enum

import numpy as np
import numpy.typing as npt

from native_io._common import Buffer

class EntriesStatus(enum.IntEnum):
    """How take_entries() has ended.

    Attributes:
        MORE: the text ends within an entry, or there is no room for the entry.
        END: the brace after the last entry has come.
        ODD: an entry is not as a broker writes it.
    """

    MORE = ...
    END = ...
    ODD = ...

def take_entries(
    text: Buffer,
    *,
    is_begun: bool,
    names: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    queues: npt.NDArray[np.int64],
) -> tuple[EntriesStatus, int, int, int]:
    """Take the whole entries of consumers' offsets from a text: `"topic@group": {queueId: offset, ...}`, with commas
    between them, and a brace after the last one.

    Args:
        text: some of the JSON, from the beginning of an entry on.
        is_begun: whether an entry has to follow, as a comma came before it.
        names: takes for each entry where its name begins in the text, and where it ends.
        counts: takes for each entry how many queues it has.
        queues: two rows: takes the queueIds of all entries, and the offsets; -1 for any that is below 0.

    Returns:
        (status, at, entries, queues): the bytes up to the first entry that was not taken, and how many were taken.

    Raises:
        ValueError: the arrays do not fit together, or have no room.
    """

class NameNumbers:
    """Numbers of the topics and of the groups in names `topic@group`, each in the order in which the texts come."""

    def number(
        self, text: Buffer, names: npt.NDArray[np.int64], numbers: npt.NDArray[np.int32]
    ) -> tuple[list[str], list[str]]:
        """Number the topics and groups of some names.

        Args:
            text: ASCII.
            names: for each name, in their order, where it begins in the text, and where it ends.
            numbers: three rows: takes the number of each name's topic; of its group, which is the empty text where the
                name has no `@`; and whether it has one.

        Returns:
            The topics and the groups that had no number before, in the order of their numbers.

        Raises:
            ValueError: the arrays do not fit together, or a name is not in the text.
            MemoryError: there is no memory for more texts; the numbers are of no use any more.
        """
