package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageQueue;

/** Messages of an ordinary topic that are in light queues (LMQ) as well: number n in those of a, b and c that divide it. */
final class Light {
    private Light() {
    }

    /** Messages from a number on, by turns to the topic's queues. */
    static void run(DefaultMQProducer producer, String broker, String topic, int queues, int first, int count)
        throws Exception {
        for (int i = first; i < first + count; i++) {
            Message message = new Message(topic, "tag" + i % 2, "key-" + i, ("light " + i).getBytes(StandardCharsets.UTF_8));
            List<String> names = new ArrayList<>();
            if (i % 2 == 0) {
                names.add("%LMQ%a");
            }
            if (i % 3 == 0) {
                names.add("%LMQ%b");
            }
            if (i % 5 == 0) {
                names.add("%LMQ%$" + topic + "$c");
            }
            if (!names.isEmpty()) {
                MessageAccessor.putProperty(message, "INNER_MULTI_DISPATCH", String.join(",", names));
            }
            Client.acknowledged("light", message, producer.send(message, new MessageQueue(topic, broker, i % queues)));
        }
    }
}
