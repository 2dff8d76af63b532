"""From a path to its object: the objects of the path's bucket, and the path's key in it."""

from collections.abc import Callable

from rmqstore_spark.store.io.remote import hdfs, objects
from rmqstore_spark.store.io.remote.objects import Objects
from rmqstore_spark.store.io.storage import HDFS, Storage, location

FindBucket = Callable[[str, Storage], tuple[Objects, str]]


class Buckets:
    """The buckets that paths are in.

    Attributes:
        storage: how the buckets are reached. A task sets it after unpickling its files, which have no secrets.

    Args:
        find: gives the objects of a path's bucket, and the path's key in it.
    """

    def __init__(self, storage: Storage, find: FindBucket) -> None:
        self.storage = storage
        self.find = find

    def of(self, path: str) -> tuple[Objects, str]:
        """The objects of a path's bucket, and the path's key."""
        return self.find(path, self.storage)


def bucket_of(path: str, storage: Storage) -> tuple[Objects, str]:
    """The bucket that a URI names, or the HDFS."""
    where = location(path)
    scheme, _, rest = path.partition("://")
    connect = hdfs.connect if where.kind == HDFS else objects.connect
    return connect(where, f"{scheme}://{rest.partition('/')[0]}", storage), where.key
