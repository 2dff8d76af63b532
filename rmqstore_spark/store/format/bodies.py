"""Compressed bodies (org.apache.rocketmq.common.compression): zlib streams, LZ4 frames and zstd frames.

The kernel decompresses what is sound and of a usual kind and size, for zstd by the system's library. decompress() does
the rest, and says what is wrong.
"""

import ctypes
import functools
import zlib

import pyarrow as pa

from native_io import ZSTD_FUNCTIONS
from rmqstore_spark.store.format.message import COMPRESSION_TYPES, compression_type

# A producer refuses to send more than 4 MiB before compression by default. A body that claims to be far larger is a
# decompression bomb, not a message.
LARGEST_BODY = 256 * 1024 * 1024
_CHUNK = 1024 * 1024
_LIBZSTD = "libzstd.so.1"
_OLDEST_LIBZSTD = 10308  # 1.3.8, of 2018: an older one is not known here


class BadBodyError(ValueError):
    """A body claims to be compressed, and is not."""


@functools.cache
def zstd_functions() -> tuple[int, ...]:
    """The addresses of ZSTD_FUNCTIONS in the system's libzstd, which stays loaded; zeros where there is none."""
    try:
        library = ctypes.CDLL(_LIBZSTD)
        if library.ZSTD_versionNumber() >= _OLDEST_LIBZSTD:
            found = [ctypes.cast(library[name], ctypes.c_void_p).value or 0 for name in ZSTD_FUNCTIONS]
            return tuple(found)
    except (OSError, AttributeError):
        pass  # decompress() does without
    return (0,) * len(ZSTD_FUNCTIONS)


def decompress(body: bytes, sys_flag: int) -> bytes:
    """A body as the producer sent it.

    Args:
        body: as stored; an empty one is not compressed, whatever its flag says.
        sys_flag: with its compressed bit set; bits 8-10 name the type.

    Raises:
        BadBodyError: the body is not what the flag says, is cut, or would decompress to more than LARGEST_BODY bytes.
    """
    if not body:
        return body
    number = compression_type(sys_flag)
    name = COMPRESSION_TYPES.get(number)
    if name is None:
        raise BadBodyError(f"sysFlag names compression type {number}: expected 0 to 3")
    try:
        return _zlib(body) if name == "zlib" else _framed(body, name)
    except (zlib.error, OSError) as why:
        raise BadBodyError(f"the body should be {name}-compressed, but is not: {' '.join(str(why).split())}") from None


def _zlib(body: bytes) -> bytes:
    stream = zlib.decompressobj()
    out = stream.decompress(body, LARGEST_BODY)
    if stream.unconsumed_tail:
        raise _too_large()
    if not stream.eof:
        raise zlib.error("the stream is truncated")
    return out  # like Java's inflater, ignores trailing bytes


def _framed(body: bytes, name: str) -> bytes:
    chunks, size = [], 0
    with pa.CompressedInputStream(pa.BufferReader(body), name) as stream:
        while chunk := stream.read(_CHUNK):
            chunks.append(chunk)
            size += len(chunk)
            if size > LARGEST_BODY:
                raise _too_large()
    return b"".join(chunks)


def _too_large() -> BadBodyError:
    return BadBodyError(f"the body decompresses to more than {LARGEST_BODY} bytes: read it with decompress=false")
