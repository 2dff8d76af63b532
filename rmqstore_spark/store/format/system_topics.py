"""The topics in which a broker keeps messages for itself, or on their way to another topic.

Source: org.apache.rocketmq.common.topic.TopicValidator, MixAll, KeyBuilder, store.timer.TimerMessageStore,
common.PopAckConstants.
"""

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"  # delay levels; the tagsCode of its queues is a time
TIMER_TOPIC = "rmq_sys_wheel_timer"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_OP_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
TRANSACTION_TOPICS = (HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC)
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"  # half messages whose producer was asked too often
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
REVIVE_PREFIX = "rmq_sys_REVIVE_LOG_"  # records of popped and acknowledged messages; the cluster's name follows
RETRY_PREFIX = "%RETRY%"
DEAD_PREFIX = "%DLQ%"

# Topics in which messages wait; a message's own topic stands in its REAL_TOPIC.
WAITING_TOPICS = frozenset(
    {SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC, GIVEN_UP_TOPIC}
)


def is_moved(topic: str) -> bool:
    """May the messages of a topic belong to another topic, for the application that sent them?"""
    return topic in WAITING_TOPICS or topic.startswith((RETRY_PREFIX, DEAD_PREFIX))


# A broker makes these topics itself when it starts (TopicConfigManager), or serves them without an entry.
_BROKERS_OWN = (SCHEDULE_TOPIC, "RMQ_SYS_", "rmq_sys_", GIVEN_UP_TOPIC, "OFFSET_MOVED_EVENT")


def is_brokers_own(topic: str) -> bool:
    """Does a broker serve a topic that topics.json does not know?"""
    return topic.startswith(_BROKERS_OWN)
