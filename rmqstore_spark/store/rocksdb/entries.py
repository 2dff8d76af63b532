"""Keys and values, many in a block."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Entries:
    """Some entries of a column family, in the order of their keys, no key twice.

    Attributes:
        keys: the bytes of all keys, one after the other.
        key_starts: where each key begins, and where the last one ends.
        values, value_starts: likewise for the values.
    """

    keys: npt.NDArray[np.uint8]
    key_starts: npt.NDArray[np.int64]
    values: npt.NDArray[np.uint8]
    value_starts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, key: bytes, value: bytes) -> "Entries":
        """A single entry."""
        keys, values = np.frombuffer(key, np.uint8), np.frombuffer(value, np.uint8)
        return cls(keys, np.array([0, len(key)], np.int64), values, np.array([0, len(value)], np.int64))

    def __len__(self) -> int:
        return len(self.key_starts) - 1

    def pair(self, number: int) -> tuple[bytes, bytes]:
        """One of the keys, with its value."""
        key, value = self.key_starts[number : number + 2], self.value_starts[number : number + 2]
        return self.keys[key[0] : key[1]].tobytes(), self.values[value[0] : value[1]].tobytes()

    def pairs(self) -> Iterator[tuple[bytes, bytes]]:
        """The keys with their values, one by one."""
        keys, values = self.keys.tobytes(), self.values.tobytes()
        key_starts, value_starts = self.key_starts.tolist(), self.value_starts.tolist()
        for number in range(len(self)):
            yield (
                keys[key_starts[number] : key_starts[number + 1]],
                values[value_starts[number] : value_starts[number + 1]],
            )
