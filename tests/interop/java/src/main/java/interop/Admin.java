package interop;

import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/**
 * What the admin tools ask of a broker: all topics and consumer groups, topicStatus of each topic, queryCq of each of
 * its queues, consumerProgress of each group. The types of the answers are in other packages since 5.0, so they stay unnamed.
 */
final class Admin {
    private static final long TIMEOUT = 20_000;
    private static final int MOST_UNITS = 1000; // of a queue

    private final MQClientAPIImpl api;
    private final String address;

    Admin(DefaultMQProducer producer, String address) {
        api = producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl();
        this.address = address;
    }

    void run() throws Exception {
        for (var topic : api.getAllTopicConfig(address, TIMEOUT).getTopicConfigTable().values()) {
            Client.emit(Json.object("kind", "topic", "topic", topic.getTopicName(),
                "readQueueNums", topic.getReadQueueNums(), "writeQueueNums", topic.getWriteQueueNums(),
                "perm", topic.getPerm(), "order", topic.isOrder()));
            for (var queue : api.getTopicStatsInfo(address, topic.getTopicName(), TIMEOUT).getOffsetTable().entrySet()) {
                Client.emit(Json.object("kind", "queue", "topic", queue.getKey().getTopic(),
                    "queueId", queue.getKey().getQueueId(), "minOffset", queue.getValue().getMinOffset(),
                    "maxOffset", queue.getValue().getMaxOffset(),
                    "lastStoreTimestamp", queue.getValue().getLastUpdateTimestamp()));
                if (queue.getValue().getMinOffset() < queue.getValue().getMaxOffset()) {
                    units(queue.getKey().getTopic(), queue.getKey().getQueueId(), queue.getValue().getMinOffset());
                }
            }
        }
        for (var group : api.getAllSubscriptionGroup(address, TIMEOUT).getSubscriptionGroupTable().values()) {
            Client.emit(Json.object("kind", "group", "group", group.getGroupName(),
                "consumeEnable", group.isConsumeEnable(), "broadcastEnable", group.isConsumeBroadcastEnable(),
                "retryQueueNums", group.getRetryQueueNums(), "retryMaxTimes", group.getRetryMaxTimes()));
            progress(group.getGroupName());
        }
    }

    private void units(String topic, int queueId, long from) throws Exception {
        long queueOffset = from;
        for (var unit : api.queryConsumeQueue(address, topic, queueId, from, MOST_UNITS, null, TIMEOUT).getQueueData()) {
            Client.emit(Json.object("kind", "unit", "topic", topic, "queueId", queueId, "queueOffset", queueOffset++,
                "commitLogOffset", unit.getPhysicOffset(), "size", unit.getPhysicSize(),
                "tagsCode", unit.getTagsCode()));
        }
    }

    private void progress(String group) throws Exception {
        try {
            for (var queue : api.getConsumeStats(address, group, TIMEOUT).getOffsetTable().entrySet()) {
                Client.emit(Json.object("kind", "offset", "group", group, "topic", queue.getKey().getTopic(),
                    "queueId", queue.getKey().getQueueId(), "maxOffset", queue.getValue().getBrokerOffset(),
                    "consumerOffset", queue.getValue().getConsumerOffset(),
                    "lastConsumedTimestamp", queue.getValue().getLastTimestamp()));
            }
        } catch (MQBrokerException none) {
            Client.emit(Json.object("kind", "no progress", "group", group, "why", none.toString()));
        }
    }
}
