/* Does a body begin as one of the compression that its sysFlag names? Its first bytes show a damaged sysFlag, which no
 * checksum covers; only decompressing shows more (expand.h). */
#ifndef RMQ_COMPRESSED_H
#define RMQ_COMPRESSED_H

#include <stdint.h>

#include "frame_magic.h"
#include "little_endian.h"
#include "unit.h"

/* As sysFlag has them. */
enum { RMQ_IS_ZLIB = 0, RMQ_IS_LZ4 = 1, RMQ_IS_ZSTD = 2, RMQ_IS_ZLIB_TOO = 3 };

/* 1 also for a body that is empty, or not compressed as its flag says. */
static inline int rmq_begins_as_said(const rmq_unit *u) {
    const uint8_t *const p = u->body;
    if (!(u->sys_flag & RMQ_SYSFLAG_COMPRESSED) || u->body_length == 0) return 1;
    const int32_t type = u->sys_flag >> 8 & 7;
    if (type == RMQ_IS_ZLIB || type == RMQ_IS_ZLIB_TOO) /* deflate, a window of at most 32 KiB, no dictionary */
        return u->body_length > 1 && (p[0] & 15) == 8 && p[0] >> 4 < 8 && !(p[1] & 32) && (p[0] * 256 + p[1]) % 31 == 0;
    if (type > RMQ_IS_ZLIB_TOO || u->body_length < 4) return 0;
    const uint32_t magic = rmq_le32(p);
    return magic == (type == RMQ_IS_LZ4 ? RMQ_LZ4_MAGIC : RMQ_ZSTD_MAGIC) || (magic & ~15u) == RMQ_SKIPPED_MAGIC;
}

#endif
