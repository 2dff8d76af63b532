"""Objects of a bucket: listed, and read by position. Each error becomes one line of text.

The client for S3, GCS and Azure is obstore (the extra `remote`), a wrapper of Rust's object_store. Each process makes
one client for each bucket and its options.
"""

import asyncio
import atexit
import contextlib
import functools
import itertools
import os
import posixpath
import re
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, TypeVar

from rmqstore_spark.errors import OptionError, StorageError
from rmqstore_spark.store.io.files import Pin
from rmqstore_spark.store.io.remote.paged_list import PAGE, PagedList, Part, UnorderedError
from rmqstore_spark.store.io.remote.tries import LIMIT, ChangedError, FailedError, tried
from rmqstore_spark.store.io.storage import AZURE, GCS, S3, TIME, Location, Storage, refuse_control_in, seconds

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_CONNECT_TIMEOUT = "5s"
_REQUEST_TIMEOUT = "60s"  # enough for 8 MiB at 140 kB/s
_STALL_TIMEOUT = "15s"  # time without a byte
_ENDS_WITHIN = 1.0  # seconds that obstore's threads have at the end of the process
_CANCELLED_WITHIN = 0.1  # seconds until a thread of obstore's has noticed that its work was cancelled
_LISTS_AT_ONCE = 64
_MOST_LISTED = 4_000_000  # objects below a directory: more would take gigabytes of memory, and no store has so many
_TOPICS = {"consumequeue", "batchconsumequeue"}  # directories of topics, whose names may begin with any character

_CODE = re.compile(r"<Code>([A-Za-z0-9_.]{1,80})</Code>")
_STATUS = re.compile(r"status code: ([0-9]{3})")
# Where a cloud's machines ask for their identity. object_store asks there when it was given no credentials.
_IDENTITY = re.compile(r"https?://(169\.254\.[0-9.]+|metadata\.google\.internal)/")
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"}
_DENIED = {
    *("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "AuthorizationHeaderMalformed"),
    *("AuthenticationFailed", "AuthorizationFailure", "XAdminUserNotFound"),
}

_Answer = TypeVar("_Answer")


class Entry(NamedTuple):
    """An entry of a directory.

    Attributes:
        key: its key.
        pin: the object's pin; None for a directory, where a storage has directories.
    """

    key: str
    pin: Pin | None


class Objects(Protocol):
    """A bucket. Keys have no slash at either end. All methods may be called from several threads.

    All methods raise a StorageError where the storage refuses or does not answer.
    """

    def below(self, key: str, most: int | None = None) -> Iterator[Entry]:
        """All objects in a directory and below it, and all directories where the storage has directories; '' is the
        whole bucket. Empty where there is no such directory.

        Args:
            most: stop after this many.
        """

    def inside(self, key: str) -> tuple[list[str], list[Entry]]:
        """The keys of the directories in a directory, and the objects in it."""

    def look(self, key: str) -> Pin | None:
        """The pin of the object with a key; None where there is none."""

    def get(self, key: str, start: int, stop: int, pin: Pin) -> memoryview:
        """The bytes [start, stop) of an object: at least one byte, all within the object. The object must be that of
        the pin."""


def connect(where: Location, name: str, storage: Storage) -> Objects:
    """The bucket of a location.

    Args:
        name: the bucket's URI, for messages.

    Raises:
        OptionError: obstore is not installed, or refuses an option.
    """
    return _connected(os.getpid(), where._replace(key=""), name, storage)


@functools.lru_cache(64)
def _connected(process: int, where: Location, name: str, storage: Storage) -> Objects:
    """connect(), cached for each process, as a client does not survive a fork."""
    try:
        from obstore import exceptions, store
    except ImportError:
        raise OptionError(f"{name}: reading it needs obstore, which is not installed: pip install obstore") from None
    refuse_control_in(os.environ)
    options = storage.of(where.kind)
    for option, (form, expected) in _FORMS.items():
        if not form.fullmatch(options.get(option, "")) and option in options:
            raise OptionError(f"option {option!r}: expected {expected}, found another text")
    client = {
        "connect_timeout": options.pop("connect_timeout", _CONNECT_TIMEOUT),
        "timeout": options.pop("timeout", _REQUEST_TIMEOUT),
        "read_timeout": _STALL_TIMEOUT,
    }
    if "proxy_url" in options:
        client["proxy_url"] = options.pop("proxy_url")
    if options.pop("allow_http", "").lower() == "true" or _says_http(where.kind, options):
        client["allow_http"] = "true"
    retry = {"max_retries": 0, "retry_timeout": timedelta(seconds=LIMIT)}  # tried again here, with what was read
    kinds: dict[str, Any] = {S3: store.S3Store, GCS: store.GCSStore, AZURE: store.AzureStore}
    own = {"azure_storage_account_name": where.account} if where.kind == AZURE else {}
    try:
        made = kinds[where.kind](where.bucket, config={**options, **own}, client_options=client, retry_config=retry)
    except (exceptions.BaseError, ValueError) as why:
        raise OptionError(f"{name}: options of storage: {storage.hidden(_first_line(why))}") from None
    # Other clients list all objects from the first one on, and leave out those before.
    return _Bucket(made, name, storage, client["timeout"], lists_from=where.kind == S3)


_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?"), "a URL that begins with http:// or https://"
_YES_OR_NO = re.compile("true|false", re.IGNORECASE), "true or false"
_TIME = TIME, "a time such as 60s"
# obstore fails badly on options of another form. None is shown, as a value may be a misplaced secret.
_FORMS = {
    "aws_endpoint_url": _URL,
    "google_base_url": _URL,
    "azure_endpoint": _URL,
    "proxy_url": (re.compile(r"\S+://\S+"), "a URL"),
    "allow_http": _YES_OR_NO,
    "aws_virtual_hosted_style_request": _YES_OR_NO,
    "aws_skip_signature": _YES_OR_NO,
    "google_skip_signature": _YES_OR_NO,
    "azure_skip_signature": _YES_OR_NO,
    "timeout": _TIME,
    "connect_timeout": _TIME,
}
_ENDPOINTS = {
    S3: ("aws_endpoint_url", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"),
    GCS: ("google_base_url",),
    AZURE: ("azure_endpoint", "AZURE_ENDPOINT"),
}


def _says_http(kind: str, options: dict[str, str]) -> bool:
    """Is the server named by a plain HTTP URL? Such a URL is taken as the user's intention."""
    first, *environment = _ENDPOINTS[kind]
    return any(
        value.startswith("http:")
        for value in (options.get(first, ""), *(os.environ.get(name, "") for name in environment))
    )


class _Bucket:
    """Objects by way of obstore.

    Args:
        lists_from: whether it costs one request to list from any key on.
    """

    def __init__(self, store: "ObjectStore", name: str, storage: Storage, timeout: str, lists_from: bool) -> None:
        self._store = store
        self._lists_from = lists_from
        self._name = name
        self._storage = storage
        self._patience = seconds("timeout", timeout, 0)  # seconds that a list, or a page of one, may take

    def below(self, key: str, most: int | None = None) -> Iterator[Entry]:
        from obstore.exceptions import InvalidPathError

        try:
            yield from self._below(key, most)
        except InvalidPathError:
            yield from itertools.islice(self._below_apart(key), most)

    def inside(self, key: str) -> tuple[list[str], list[Entry]]:
        from obstore.exceptions import InvalidPathError

        try:
            return self._inside(key)
        except InvalidPathError:
            start = len(key) + 1 if key else 0
            found = list(self._after_dots(key))
            above = {entry.key[: entry.key.index("/", start)] for entry in found if "/" in entry.key[start:]}
            return sorted(above), [entry for entry in found if "/" not in entry.key[start:]]

    def _below(self, key: str, most: int | None = None, after: str | None = None) -> list[Entry]:
        """below(), from the first key after one on.

        Raises:
            InvalidPathError: there is a key that obstore does not accept as a path, such as one with `..` in it.
        """
        if self._lists_from:
            with contextlib.suppress(UnorderedError):
                return self._list(key, lambda: self._side_by_side(key, most, after))
        return self._page_by_page(key, most, after)

    async def _side_by_side(self, key: str, most: int | None, after: str | None) -> list[Entry]:
        """below(), with many requests at a time.

        Raises:
            UnorderedError: the server does not list in the order of keys.
        """
        import obstore

        async def first_page(part: Part) -> Any:
            async with at_once:
                pages = obstore.list(self._store, key or None, offset=part.after, chunk_size=PAGE)
                return await asyncio.wait_for(anext(pages, None), self._patience) or ()

        found: list[Entry] = []
        listed, at_once = PagedList(key, after), asyncio.Semaphore(_LISTS_AT_ONCE)
        while listed.parts and (most is None or len(found) < most):
            pages: list[Any] = await asyncio.gather(*map(first_page, listed.parts), return_exceptions=True)
            for failed in (page for page in pages if isinstance(page, BaseException)):
                raise failed
            counts = listed.take([[meta["path"] for meta in page] for page in pages])
            for page, count in zip(pages, counts, strict=True):
                found += map(_entry, page[:count])
            if len(found) > _MOST_LISTED:
                self._refuse_many(key)
        return found[:most]

    def _page_by_page(self, key: str, most: int | None, after: str | None) -> list[Entry]:
        """below(), whatever the order of keys."""
        import obstore

        async def pages() -> list[Entry]:
            found: list[Entry] = []
            seen: set[str] = set()
            pages = obstore.list(self._store, key or None, offset=after, chunk_size=PAGE)
            # A page takes a request, or a few. One that takes longer has no end, as pages may be empty.
            while (page := await asyncio.wait_for(anext(pages, None), self._patience)) is not None:
                found += map(_entry, page[: None if most is None else most - len(found)])
                if len(found) == most:
                    break
                seen.update(meta["path"] for meta in page)
                if len(found) > len(seen) + PAGE:
                    self._refuse(key, "gives the same objects again and again")
                if len(found) > _MOST_LISTED:
                    self._refuse_many(key)
            return found

        return self._list(key, pages)

    def _inside(self, key: str) -> tuple[list[str], list[Entry]]:
        import obstore

        async def all_pages() -> Any:
            listed = obstore.list_with_delimiter_async(self._store, key or None)
            return await asyncio.wait_for(listed, self._patience)

        found = self._list(key, all_pages)
        return list(found["common_prefixes"]), [_entry(meta) for meta in found["objects"]]

    def _below_apart(self, key: str) -> Iterator[Entry]:
        """below() for a directory with a key that is no path. Such a key spoils the list that it is in, so each
        directory is listed on its own."""
        from obstore.exceptions import InvalidPathError

        try:
            directories, entries = self._inside(key)
        except InvalidPathError:
            yield from self._after_dots(key)
            return
        yield from entries
        for directory in directories:
            yield from self.below(directory)

    def _after_dots(self, key: str) -> list[Entry]:
        """The entries in and below a directory that has a directory `..` in it. In the order of keys, `..` comes before
        all names of a store's files, and after some names of topics."""
        from obstore.exceptions import InvalidPathError

        with contextlib.suppress(InvalidPathError):
            if posixpath.basename(key) not in _TOPICS:
                return self._below(key, after=f"{key}/..0" if key else "..0")
        raise StorageError(
            f"{self._name}/{key}: an object has a key that is not a path, such as one with '..': delete it"
        )

    def _list(self, key: str, work: Callable[[], Coroutine[Any, Any, _Answer]]) -> _Answer:
        """The answer of a list. The work is a coroutine, which can be cancelled where a server never ends its list."""

        def once() -> _Answer:
            loop = _loop(os.getpid())
            future = asyncio.run_coroutine_threadsafe(work(), loop)
            try:
                return future.result()
            except BaseException as why:
                future.cancel()
                loop.last_cancelled = time.monotonic()
                if isinstance(why, TimeoutError):
                    self._refuse(
                        key, f"does not come to an end in {self._patience:.0f} s; option 'timeout' says how long"
                    )
                raise

        return self._tried(key, once)

    def _refuse_many(self, key: str) -> NoReturn:
        self._refuse(key, f"has more than {_MOST_LISTED:,} objects, which no store has")

    def _refuse(self, key: str, what: str) -> NoReturn:
        raise StorageError(f"{self._name}/{key}: the list of this directory {what}; check the path and the endpoint")

    def look(self, key: str) -> Pin | None:
        import obstore

        try:
            return _pin(self._tried(key, lambda: obstore.head(self._store, key)))
        except FileNotFoundError:
            return None

    def get(self, key: str, start: int, stop: int, pin: Pin) -> memoryview:
        import obstore

        def once() -> memoryview:
            options: Any = {"range": (start, stop)}
            if pin.tag is not None:
                options["if_match"] = pin.tag
            found = obstore.get(self._store, key, options=options)
            there = _pin(found.meta)
            # Not every server heeds If-Match.
            if there.size != pin.size or (None not in (there.tag, pin.tag) and _bare(there.tag) != _bare(pin.tag)):
                raise ChangedError
            return _body(found, stop - start)

        try:
            return self._tried(key, once, is_pinned=True)
        except FileNotFoundError:
            is_there = False
        except ChangedError:
            is_there = self.look(key) is not None  # azurite answers the same for an object that is gone
        if is_there:
            raise StorageError(
                f"{self._name}/{key}: the object was replaced since the read was planned; load the store again, and do "
                "not overwrite a copy that is being read"
            )
        raise StorageError(f"{self._name}/{key}: the object is gone since the read was planned; load the store again")

    def _tried(self, key: str, work: Callable[[], _Answer], is_pinned: bool = False) -> _Answer:
        """The answer of some work, at the first try or a later one.

        Args:
            is_pinned: whether the work asks for one object and no other.

        Raises:
            FileNotFoundError: there is no such object.
            ChangedError: the object is another one than the work is for.
            StorageError: any other error.
        """
        from obstore import exceptions

        changed = (exceptions.PreconditionError, ChangedError) if is_pinned else ()

        def may_pass(why: Exception) -> bool:
            return not isinstance(why, (FileNotFoundError, exceptions.InvalidPathError, *changed)) and _may_pass(why)

        try:
            return tried(work, (exceptions.BaseError, OSError, ChangedError), may_pass)
        except FailedError as failed:
            if isinstance(failed.why, changed):
                raise ChangedError from None
            if isinstance(failed.why, FileNotFoundError) and "NoSuchBucket" not in str(failed.why):
                raise failed.why from None
            if isinstance(failed.why, exceptions.InvalidPathError):
                raise failed.why from None
            self._fail(key, failed.why, failed.again)

    def _fail(self, key: str, why: Exception, again: str) -> NoReturn:
        text, code, status = str(why), _code(why), _status(why)
        where = f"{self._name}/{key}" if key else self._name
        identity = _IDENTITY.search(text)
        if identity:
            raise StorageError(
                f"{where}: no credentials are given, and the machine has no identity of its own ({identity[1]} does "
                f"not answer{again}); give credentials as options or in the environment"
            ) from None
        if code in _EXPIRED:
            raise StorageError(f"{where}: the credentials have expired ({code}); give new ones") from None
        if code in _DENIED or status in (401, 403) or "credential" in text.lower():
            said = code or (f"status {status}" if status else self._storage.hidden(_first_line(why)))
            raise StorageError(
                f"{where}: access denied ({said}); give credentials that may list and read it, as options or in the "
                "environment"
            ) from None
        if code == "NoSuchBucket" or code == "ContainerNotFound":
            raise StorageError(f"{where}: there is no such bucket ({code}); check its name and the endpoint") from None
        what = f"{code} (status {status})" if code else self._storage.hidden(_first_line(why))
        raise StorageError(f"{where}: unexpected answer of the storage{again}: {what}; try later") from None


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that knows which threads of obstore's are telling it something.

    Python must not end before they have: such a thread waits for Python's lock once more, and is then ended in the
    midst of Rust's code, which crashes the process (up to Python 3.13).
    """

    last_cancelled = -_CANCELLED_WITHIN

    def __init__(self) -> None:
        super().__init__()
        self._telling: dict[int, bool] = {}

    def call_soon_threadsafe(self, *arguments: Any, **named: Any) -> asyncio.Handle:  # type: ignore[override]
        thread = threading.get_ident()
        self._telling[thread] = True
        try:
            return super().call_soon_threadsafe(*arguments, **named)
        finally:
            del self._telling[thread]  # no call: after one, Python might let another thread run

    def settle(self, process: int) -> None:
        """Wait for those threads. A process that was forked does not have them."""
        end = time.monotonic() + _ENDS_WITHIN
        while os.getpid() == process and time.monotonic() < end and self._is_used():
            time.sleep(0.001)

    def _is_used(self) -> bool:
        return bool(self._telling) or time.monotonic() < self.last_cancelled + _CANCELLED_WITHIN


@functools.lru_cache(1)
def _loop(process: int) -> _Loop:
    """The event loop for lists, in a thread of its own, as the caller's thread may have a running loop (in a
    notebook)."""
    loop = _Loop()
    threading.Thread(target=loop.run_forever, name="rmqstore-list", daemon=True).start()
    atexit.register(loop.settle, process)
    return loop


def _body(found: Any, size: int) -> memoryview:
    """The bytes of an answer, which must be `size` bytes. No more are read, as a server may send any number.

    Raises:
        ConnectionError: the answer has another number of bytes.
    """
    chunks, count = [], 0
    for chunk in found.stream(min_chunk_size=size):
        chunks.append(chunk)
        count += len(chunk)
        if count > size:
            raise ConnectionError(f"expected {size} bytes, got more")
    if count != size:
        raise ConnectionError(f"expected {size} bytes, got {count}")
    return memoryview(chunks[0] if len(chunks) == 1 else b"".join(chunks))


def _entry(meta: Any) -> Entry:
    return Entry(meta["path"], _pin(meta))


def _pin(meta: Any) -> Pin:
    return Pin(meta["size"], meta["e_tag"] or None)


def _bare(tag: str | None) -> str:
    """A tag without `W/` and without quotes, which some servers put around tags only sometimes."""
    return (tag or "").removeprefix("W/").strip('"')


def _first_line(why: BaseException) -> str:
    """The first line of an obstore error. URLs lose everything after the `?`, which may be a signature."""
    return re.sub(r"\?\S*", "", str(why).split("\n\nDebug source", 1)[0].split("\n", 1)[0])[:300]


def _code(why: BaseException) -> str | None:
    found = _CODE.search(str(why))
    return found[1] if found else None


def _status(why: BaseException) -> int | None:
    found = _STATUS.search(str(why))
    return int(found[1]) if found else None


def _may_pass(why: BaseException) -> bool:
    """Whether the next try may succeed: the server is overloaded, or the connection broke."""
    status = _status(why)
    if status is None:
        return "credential" not in str(why).lower()
    return status in (408, 425, 429) or status >= 500
