package interop;

import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Messages that are sent and consumed with tracing, until all traces are stored: three records for each. */
final class Traced {
    private static final String TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC";
    private static final int WAIT_SECONDS = 60;

    private Traced() {
    }

    static void run(String namesrv, DefaultMQPullConsumer puller, String topic, int count) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("traced-producer", true, null);
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(20_000);
        producer.start();
        for (int i = 0; i < count; i++) {
            Message message = new Message(topic, "Traced", "traced-" + i, ("traced " + i).getBytes(StandardCharsets.UTF_8));
            Client.acknowledged("traced", message, producer.send(message));
        }
        AtomicInteger consumed = new AtomicInteger();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("traced-group", true, null);
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            consumed.addAndGet(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        long end = System.currentTimeMillis() + WAIT_SECONDS * 1000L;
        while (consumed.get() < count || records(puller) < 3 * count) {
            if (System.currentTimeMillis() > end) {
                throw new IllegalStateException("waited in vain for traces: " + records(puller));
            }
            Thread.sleep(200);
        }
        consumer.shutdown();
        producer.shutdown();
    }

    private static int records(DefaultMQPullConsumer puller) throws Exception {
        int records = 0;
        for (MessageQueue queue : puller.fetchSubscribeMessageQueues(TRACE_TOPIC)) {
            PullResult result = puller.pull(queue, "*", 0, 32);
            while (result.getPullStatus() == PullStatus.FOUND) {
                for (MessageExt message : result.getMsgFoundList()) {
                    for (byte each : message.getBody()) {
                        records += each == 2 ? 1 : 0;
                    }
                }
                result = puller.pull(queue, "*", result.getNextBeginOffset(), 32);
            }
        }
        return records;
    }
}
