"""Values that an object finds out once and keeps: functools.cached_property without the lock that all objects of a
class share before Python 3.12. With that lock, values that take a request each would be found one after the other."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

_Value = TypeVar("_Value")


class kept(Generic[_Value]):
    """A property that is computed when first asked for, and kept. Threads that ask at once each compute the value."""

    def __init__(self, find: Callable[[Any], _Value]) -> None:
        self._find = find
        self.__doc__ = find.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, owned: None, owner: type) -> "kept[_Value]": ...

    @overload
    def __get__(self, owned: object, owner: type) -> _Value: ...

    def __get__(self, owned: object, owner: type) -> "kept[_Value] | _Value":
        if owned is None:
            return self
        value = self._find(owned)
        # From now on the object's own attribute of that name comes before this property. Its __dict__ is not asked for:
        # that would make one, of 100 bytes and more, and of queues there are many. A frozen object takes it as well.
        object.__setattr__(owned, self._name, value)
        return value
