package interop;

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Messages of the kinds that brokers of all versions know: compressed ones, delayed ones, transactions. */
final class Older {
    private Older() {
    }

    static void run(String namesrv, DefaultMQProducer producer, String broker, String topic, int count)
        throws Exception {
        for (int i = 0; i < count; i++) {
            byte[] body = ("old " + i + " ").repeat(i % 4 == 0 ? 1000 : 3).getBytes(StandardCharsets.UTF_8);
            Message message = new Message(topic, "tag-" + i % 3, "key-" + i, i, body, true);
            if (i % 7 == 6) {
                message.setDelayTimeLevel(18); // two hours: it stays where delayed messages wait
            }
            message.putUserProperty("number", "" + i);
            Client.acknowledged("older", message, producer.send(message, new MessageQueue(topic, broker, i % 2)));
        }
        TransactionMQProducer transactions = new TransactionMQProducer("older-transactions");
        transactions.setNamesrvAddr(namesrv);
        transactions.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object number) {
                return LocalTransactionState.values()[(Integer) number % 3];
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        transactions.start();
        for (int i = 0; i < 6; i++) {
            Message message = new Message(topic, "tx", "tx-" + i, ("tx " + i).getBytes(StandardCharsets.UTF_8));
            transactions.sendMessageInTransaction(message, i);
        }
        Thread.sleep(500); // until the broker has ended the last one, of which no answer tells
        transactions.shutdown();
    }
}
