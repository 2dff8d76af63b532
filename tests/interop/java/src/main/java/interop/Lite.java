package interop;

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageQueue;

/** Lite topics, which brokers of 5.5 have below a topic: rooms of a building. */
final class Lite {
    private static final int ROOMS = 3;

    private Lite() {
    }

    /** Creates a topic for lite ones, and sends so many messages, by turns to its lite topics, the last one in none. */
    static void run(DefaultMQProducer producer, String broker, String topic, int queues, int count) throws Exception {
        Compacted.create(producer, topic, queues, "message.type", "LITE");
        for (int i = 0; i < count; i++) {
            Message message = new Message(topic, "lite", "key-" + i, ("lite " + i).getBytes(StandardCharsets.UTF_8));
            if (i < count - 1) {
                MessageAccessor.putProperty(message, "__LITE_TOPIC", "room-" + i % ROOMS);
            }
            Client.acknowledged("lite", message, producer.send(message, new MessageQueue(topic, broker, i % queues)));
        }
    }

    /** What the broker says of each lite topic; an admin's request, which clients before 5.5 do not know. */
    static void tell(DefaultMQProducer producer, String address, String topic) throws Exception {
        Object api = producer.getDefaultMQProducerImpl().getmQClientFactory().getMQClientAPIImpl();
        for (int room = 0; room < ROOMS; room++) {
            Object told = api.getClass().getMethod("getLiteTopicInfo", String.class, String.class, String.class, long.class)
                .invoke(api, address, topic, "room-" + room, 5000L);
            Object offsets = told.getClass().getMethod("getTopicOffset").invoke(told);
            Client.emit(Json.object("kind", "lite",
                "parent", told.getClass().getMethod("getParentTopic").invoke(told),
                "lite", told.getClass().getMethod("getLiteTopic").invoke(told),
                "min", offsets.getClass().getMethod("getMinOffset").invoke(offsets),
                "max", offsets.getClass().getMethod("getMaxOffset").invoke(offsets)));
        }
    }
}
