package interop;

import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** A producer that a broker asks what became of its transactions, and that still does not know. */
final class Checked {
    private Checked() {
    }

    /**
     * Until so many were asked for, each of which is told once.
     *
     * @param topic one of the broker's, so that the producer has a reason to know it
     */
    static void run(String namesrv, String topic, String group, int count, long millis) throws Exception {
        CountDownLatch missing = new CountDownLatch(count);
        Set<String> known = ConcurrentHashMap.newKeySet();
        TransactionMQProducer producer = new TransactionMQProducer(group);
        producer.setNamesrvAddr(namesrv);
        producer.setHeartbeatBrokerInterval(500); // tells the broker of the group
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return LocalTransactionState.UNKNOW;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                if (known.add(body)) {
                    Client.emit(Json.object("kind", "checked", "body", body, "topic", message.getTopic()));
                    missing.countDown();
                }
                return LocalTransactionState.UNKNOW;
            }
        });
        producer.start();
        producer.send(new Message(topic, "hello".getBytes(StandardCharsets.UTF_8)));
        missing.await(millis, TimeUnit.MILLISECONDS);
        producer.shutdown();
    }
}
