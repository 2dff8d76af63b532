"""Where a store can be kept that is not on this disk, as a test fills it: a bucket, or a directory of HDFS."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Client(Protocol):
    """Who writes there."""

    def put(self, key: str, content: bytes) -> None: ...

    def delete(self, key: str) -> None: ...


@dataclass(frozen=True)
class Backend:
    """Such a place, and how it is reached.

    Attributes:
        uri: below which all keys are.
        options: of the package.
        client: of the same server.
    """

    uri: str
    options: dict[str, str]
    client: Client

    def upload(self, root: Path, key: str) -> str:
        """A directory's files, below a key. Answers its URI."""
        for path in sorted(path for path in root.rglob("*") if path.is_file()):
            self.client.put(f"{key}/{path.relative_to(root)}", path.read_bytes())
        return f"{self.uri}/{key}"


class Directory:
    """The client of what shows the files of a directory of this disk as objects."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, key: str, content: bytes) -> None:
        path = self._root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # another file, not the same one with another content
        path.write_bytes(content)

    def delete(self, key: str) -> None:
        (self._root / key).unlink()
