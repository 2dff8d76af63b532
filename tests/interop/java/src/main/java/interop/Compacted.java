package interop;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageBatch;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageQueue;

/** Values and tombstones of keys, for a topic that the broker compacts. */
final class Compacted {
    private Compacted() {
    }

    /** Creates a topic with an attribute. */
    static void create(DefaultMQProducer producer, String topic, int queues, String attribute, String value)
        throws Exception {
        Object admin = producer.getDefaultMQProducerImpl().getmQClientFactory().getMQAdminImpl();
        admin.getClass().getMethod("createTopic", String.class, String.class, int.class, int.class, Map.class)
            .invoke(admin, "TBW102", topic, queues, 0, Map.of("+" + attribute, value));
        for (int i = 0;; i++) {
            try {
                if (producer.fetchPublishMessageQueues(topic).size() == queues) {
                    return;
                }
            } catch (Exception notYet) {
                if (i == 300) {
                    throw notYet;
                }
            }
            Thread.sleep(50);
        }
    }

    /** Sends so many messages of so many keys, one in ten of them without a body. */
    static void send(DefaultMQProducer producer, MessageQueue queue, int count, int keys, long seed) throws Exception {
        Random random = new Random(seed);
        for (int i = 0; i < count; i++) {
            String key = "key-" + random.nextInt(keys);
            byte[] body = ("value " + seed + " " + i).getBytes(StandardCharsets.UTF_8);
            if (random.nextInt(10) == 0) {
                body = new byte[0];
            }
            Message message = new Message(queue.getTopic(), "value", key, body);
            if (body.length > 0) {
                Client.acknowledged("send", message, producer.send(message, queue));
                continue;
            }
            // A producer refuses a message without a body, and a broker takes it in a batch.
            MessageClientIDSetter.setUniqID(message);
            MessageBatch batch = MessageBatch.generateFromList(List.of(message));
            MessageClientIDSetter.setUniqID(batch);
            batch.setBody(batch.encode());
            Client.acknowledged("delete", message, producer.getDefaultMQProducerImpl().send(batch, queue));
        }
    }
}
