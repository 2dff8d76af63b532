"""What brokers, proxies and consumers add to the properties of a message, and what its producer did not mean as such.

Source: org.apache.rocketmq.common.message.MessageConst, and who sets each: broker.processor.SendMessageProcessor,
AbstractSendMessageProcessor, PopReviveService, ChangeInvisibleTimeProcessor; broker.util.HookUtils;
broker.transaction.queue.TransactionalMessageBridge; store.timer.TimerMessageStore; store.MultiDispatchUtils;
proxy.grpc.v2.producer.SendMessageActivity; client.impl.consumer.
"""

# By whom or what for they are added, the properties that no producer sends.
ADDED_PROPERTIES: dict[str, tuple[str, ...]] = {
    "the broker that stored the message": ("CLUSTER", "MSG_REGION", "TRACE_ON", "__CRC32#"),
    "a topic in which it waited": ("REAL_TOPIC", "REAL_QID"),
    "a timer": (
        "TIMER_OUT_MS",
        "TIMER_ENQUEUE_MS",
        "TIMER_DEQUEUE_MS",
        "TIMER_ROLL_TIMES",
        "TIMER_DELAY_LEVEL",
    ),
    "a retry or a DLQ": (
        "RETRY_TOPIC",
        "ORIGIN_MESSAGE_ID",
        "ORIGIN_GROUP",
        "DLQ_ORIGIN_TOPIC",
        "DLQ_ORIGIN_MESSAGE_ID",
        "RECONSUME_TIME",
        "MAX_RECONSUME_TIMES",
        "CONSUME_START_TIME",
    ),
    "pop": ("1ST_POP_TIME", "POP_CK", "POP_CK_OFFSET"),
    # The transaction is over, or begun anew with what a producer sends for it.
    "a transaction": (
        "TRAN_MSG",
        "PGROUP",
        "__transactionId__",
        "TRANSACTION_CHECK_TIMES",
        "TRAN_PREPARED_QUEUE_OFFSET",
    ),
    "light queues": ("INNER_MULTI_QUEUE_OFFSET",),
    "a proxy": ("__BORNHOST", "BORN_TIMESTAMP"),
    "a consumer's read, or a reply": ("MIN_OFFSET", "MAX_OFFSET", "ARRIVE_TIME", "PUSH_REPLY_TIME"),
}

# Properties of the producer that a retry sets anew: the delay until the next delivery, and that nobody waits for it. In
# other messages they are the producer's.
SET_BY_RETRIES = ("DELAY", "WAIT")
