"""A database of a broker that may be running: opened when it is first asked, and anew where a file went away.

A broker's compactions remove tables after the database was opened. Then the question is asked again of the database as
it is now, so an answer is always of one state.
"""

from collections.abc import Callable
from typing import TypeVar

from rmqstore_spark.errors import DeletedMeanwhileError
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.rocksdb.database import Database

_MOST_TRIES = 5  # to have one answer

_Answer = TypeVar("_Answer")


class ChangingDatabase:
    """A database whose files may come and go.

    Args:
        directory: the database's directory.
        files: how to reach files, and where requests and bytes are counted.
    """

    def __init__(self, directory: str, files: Files) -> None:
        self._directory = directory
        self._files = files
        self._database: Database | None = None

    def ask(self, look: Callable[[Database], _Answer]) -> _Answer:
        """The answer to a question.

        Args:
            look: asks an open database; it begins anew where a file of the database went away meanwhile.

        Raises:
            DeletedMeanwhileError: files come and go all the time.
            RmqStoreError: the database cannot be read, or is damaged.
        """
        for _ in range(_MOST_TRIES):
            try:
                if self._database is None:
                    self._database = Database.open(self._directory, self._files)
                return look(self._database)
            except DeletedMeanwhileError:
                self._database, self._files = None, self._files.fresh()
        raise DeletedMeanwhileError(f"{self._directory}: its files come and go while they are read")
