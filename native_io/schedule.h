/* The topic in which delayed messages wait, and for how long (org.apache.rocketmq.broker.schedule.ScheduleMessageService). */
#ifndef RMQ_SCHEDULE_H
#define RMQ_SCHEDULE_H

#include <stdint.h>
#include <string.h>

#define RMQ_SCHEDULE_TOPIC "SCHEDULE_TOPIC_XXXX"

static inline int rmq_is_schedule_topic(const uint8_t *topic, int64_t size) {
    const size_t n = sizeof RMQ_SCHEDULE_TOPIC - 1;
    return size == (int64_t)n && memcmp(topic, RMQ_SCHEDULE_TOPIC, n) == 0;
}

/* Milliseconds of a DELAY level from 1 on, as MessageStoreConfig.messageDelayLevel has it; higher ones count as the highest. */
static inline int64_t rmq_delay_of(int32_t level) {
    static const int32_t seconds[] = {1,   5,   10,  30,  60,  120, 180,  240,  300,
                                      360, 420, 480, 540, 600, 1200, 1800, 3600, 7200};
    const int32_t levels = sizeof seconds / sizeof *seconds;
    return 1000 * (int64_t)seconds[level < levels ? level - 1 : levels - 1];
}

/* Integer.parseInt, except for digits that are not ASCII. Returns 0 when the text is no number. */
static inline int rmq_parse_int(const uint8_t *p, int64_t n, int32_t *number) {
    const int negative = n > 0 && *p == '-';
    const int64_t sign = n > 0 && (*p == '-' || *p == '+');
    int64_t value = 0;
    if (n == sign) return 0;
    for (int64_t i = sign; i < n; i++) {
        if (p[i] < '0' || p[i] > '9') return 0;
        value = 10 * value + (p[i] - '0');
        if (value > (int64_t)INT32_MAX + negative) return 0;
    }
    *number = (int32_t)(negative ? -value : value);
    return 1;
}

#endif
