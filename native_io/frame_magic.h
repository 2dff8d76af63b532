/* How frames begin: LZ4 Frame Format 1.6, RFC 8878 (zstd). */
#ifndef RMQ_FRAME_MAGIC_H
#define RMQ_FRAME_MAGIC_H

#define RMQ_LZ4_MAGIC 0x184D2204u
#define RMQ_ZSTD_MAGIC 0xFD2FB528u
/* Of a frame that both skip, but for its last 4 bits. */
#define RMQ_SKIPPED_MAGIC 0x184D2A50u

#endif
