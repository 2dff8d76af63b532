"""Files of a new store that are taken over as they are, from wherever they come."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from rmqstore_spark.write.fs.disk import Tree


@dataclass(frozen=True)
class OtherFile:
    """A file that is taken over.

    Attributes:
        path: its place, below the store.
        size: its length in bytes.
        blocks: gives its bytes, each part with its position; what is left out is zeros.
    """

    path: str
    size: int
    blocks: Callable[[], Iterator[tuple[int, bytes]]]


def put_others(tree: Tree, others: Iterable[OtherFile]) -> None:
    """Make these files, on disk."""
    for other in others:
        path = os.path.join(tree.path, other.path)
        tree.make_directory(os.path.dirname(path))
        with tree.new_file(path, other.size) as file:
            for position, data in other.blocks():
                file.write(data, position)
            file.sync()
