package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Messages of the kinds that brokers before 4.9 know, sent and consumed by the client of the broker's own version; what
 * the producer was told and what the consumer got as JSON lines. Compiled against each version, so nothing here is newer
 * than 4.0 but by reflection. Arguments: the addresses of the namesrv, the broker's name.
 */
public final class Older {
    private static final String TOPIC = "Orders";
    private static final int QUEUES = 2;
    private static final int COUNT = 40;

    private final String namesrv;
    private final String broker;
    private final DefaultMQProducer producer;

    private Older(String namesrv, String broker) throws MQClientException {
        this.namesrv = namesrv;
        this.broker = broker;
        producer = new DefaultMQProducer("older-producer");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(20_000);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
    }

    static void emit(String line) {
        synchronized (Older.class) {
            System.out.println("@" + line);
        }
    }

    public static void main(String[] args) {
        emit(Json.object("kind", "ready"));
        try {
            Older older = new Older(args[0], args[1]);
            older.create();
            older.send();
            older.sendBatch();
            older.sendInTransactions();
            older.consume();
            emit(Json.object("kind", "done"));
        } catch (Throwable why) {
            why.printStackTrace();
            emit(Json.object("kind", "error", "command", "older", "why", why.toString()));
        }
        Runtime.getRuntime().halt(0);
    }

    /** The namesrv may know the broker only after a while. */
    private void create() throws Exception {
        for (int i = 0;; i++) {
            try {
                producer.createTopic("TBW102", TOPIC, QUEUES);
                if (producer.fetchPublishMessageQueues(TOPIC).size() == QUEUES) {
                    return;
                }
            } catch (MQClientException notYet) {
                if (i == 300) {
                    throw notYet;
                }
            }
            Thread.sleep(100);
        }
    }

    private static void acknowledged(String step, Message message, byte[] body, SendResult result) {
        emit(Json.object("kind", "ack", "step", step, "status", result.getSendStatus(), "msgId", result.getMsgId(),
            "queueId", result.getMessageQueue().getQueueId(), "queueOffset", result.getQueueOffset(),
            "tags", message.getTags(), "keys", message.getKeys(), "flag", message.getFlag(),
            "body", Messages.sha256(body), "bodyLength", body.length));
    }

    private static byte[] text(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** Every seventh waits for two hours, two for a second; those with a long body are compressed. */
    private void send() throws Exception {
        for (int i = 0; i < COUNT; i++) {
            StringBuilder body = new StringBuilder("old ");
            for (int n = 0; n < (i % 4 == 0 ? 3000 : 3); n++) {
                body.append(i).append(' ');
            }
            Message message = new Message(TOPIC, "tag-" + i % 3, "key-" + i, i, text(body.toString()), true);
            message.putUserProperty("number", "" + i);
            if (i % 10 == 0) {
                message.putUserProperty("odd", "a\u0001b");
            }
            String step = "sent";
            if (i % 7 == 6) {
                message.setDelayTimeLevel(18);
                step = "waiting";
            } else if (i % 20 == 5) {
                message.setDelayTimeLevel(1);
                step = "delayed";
            }
            byte[] sent = message.getBody();
            acknowledged(step, message, sent, producer.send(message, new MessageQueue(TOPIC, broker, i % QUEUES)));
        }
    }

    /** Since 4.1. */
    private void sendBatch() throws Exception {
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            batch.add(new Message(TOPIC, "batch", "batch-" + i, text("of a batch: " + i)));
        }
        try {
            producer.getClass().getMethod("send", Collection.class, MessageQueue.class)
                .invoke(producer, batch, new MessageQueue(TOPIC, broker, 0));
        } catch (NoSuchMethodException older) {
            return;
        }
        for (Message message : batch) {
            emit(Json.object("kind", "batch", "keys", message.getKeys(), "body", Messages.sha256(message.getBody())));
        }
    }

    /** Two committed, two rolled back, two left open. */
    @SuppressWarnings("deprecation")
    private void sendInTransactions() throws Exception {
        TransactionMQProducer transactions = new TransactionMQProducer("older-transactions");
        transactions.setNamesrvAddr(namesrv);
        transactions.setTransactionCheckListener(message -> LocalTransactionState.UNKNOW);
        transactions.start();
        for (int i = 0; i < 6; i++) {
            LocalTransactionState state = LocalTransactionState.values()[i % 3];
            Message message = new Message(TOPIC, state.name(), "transaction-" + i, text("transaction " + i));
            acknowledged(state.name(), message, message.getBody(),
                transactions.sendMessageInTransaction(message, (given, number) -> state, null));
        }
        Thread.sleep(1000); // until the broker has ended the last one, of which no answer tells
        transactions.shutdown();
    }

    /** A group that gets all there is, asks for one again in two hours, and for another one never again. */
    private void consume() throws Exception {
        long there = 0;
        for (int i = 0; i < QUEUES; i++) {
            MessageQueue queue = new MessageQueue(TOPIC, broker, i);
            there += producer.maxOffset(queue) - producer.minOffset(queue);
        }
        CountDownLatch left = new CountDownLatch((int) there);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("billing");
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(TOPIC, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            emit(Messages.received(message));
            left.countDown();
            boolean late = "key-1".equals(message.getKeys());
            if (!late && !"key-2".equals(message.getKeys())) {
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }
            context.setDelayLevelWhenNextConsume(late ? 18 : -1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        if (!left.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException(left.getCount() + " of " + there + " messages did not arrive");
        }
        Thread.sleep(1000);
        consumer.shutdown();
    }
}
