package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.store.OffsetStore;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The real client on a pipe: a command on each line of stdin, its words separated by tabs; JSON lines on stdout, the last
 * of each command with "kind" "done" or "error". Arguments: the address of the namesrv, the name of the broker and its
 * address.
 */
public final class Client {
    private static final PrintStream STDOUT = new PrintStream(System.out, true);

    private final String namesrv;
    private final String broker;
    private final String address;
    private final DefaultMQProducer producer;
    private final DefaultMQPullConsumer consumer;

    private Client(String namesrv, String broker, String address) throws MQClientException {
        this.namesrv = namesrv;
        this.broker = broker;
        this.address = address;
        producer = producer(namesrv, "bench-producer");
        consumer = new DefaultMQPullConsumer("bench-puller");
        consumer.setNamesrvAddr(namesrv);
        consumer.start();
    }

    static DefaultMQProducer producer(String namesrv, String group) throws MQClientException {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(20_000);
        producer.setRetryTimesWhenSendFailed(0); // a second try could store the message twice
        producer.start();
        return producer;
    }

    /** One at a time: some lines are written by threads of the client. */
    static synchronized void emit(String line) {
        STDOUT.println("@" + line);
    }

    static void acknowledged(String step, Message message, SendResult result) {
        acknowledged(step, message, result, message.getBody());
    }

    static void acknowledged(String step, Message message, SendResult result, byte[] body) {
        emit(Json.object("kind", "ack", "step", step, "status", result.getSendStatus(),
            "topic", result.getMessageQueue().getTopic(), "queueId", result.getMessageQueue().getQueueId(),
            "queueOffset", result.getQueueOffset(), "msgId", result.getMsgId(),
            "offsetMsgId", result.getOffsetMsgId(), "transactionId", result.getTransactionId(),
            "tags", message.getTags(), "keys", message.getKeys(), "flag", message.getFlag(),
            "body", Messages.sha256(body), "bodyLength", body.length));
    }

    public static void main(String[] args) throws Exception {
        Client client = new Client(args[0], args[1], args[2]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        client.waitForRoute();
        emit(Json.object("kind", "ready"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            try {
                client.run(words);
                emit(Json.object("kind", "done"));
            } catch (Throwable why) {
                why.printStackTrace();
                emit(Json.object("kind", "error", "command", words[0], "why", why.toString()));
            }
        }
        // End of stdin: the bench is through with this client, or dead.
        Runtime.getRuntime().halt(0);
    }

    private void run(String[] words) throws Exception {
        switch (words[0]) {
            case "scenario":
                new Scenario(namesrv, broker, words).run();
                break;
            case "traced":
                Traced.run(namesrv, consumer, words[1], Integer.parseInt(words[2]));
                break;
            case "create":
                createTopic(producer, words[1], Integer.parseInt(words[2]));
                break;
            case "batched":
                Batched.run(namesrv, producer, words[1], Integer.parseInt(words[2]));
                break;
            case "light":
                Light.run(producer, broker, words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]),
                    Integer.parseInt(words[4]));
                break;
            case "lite":
                Lite.run(producer, broker, words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]));
                Lite.tell(producer, address, words[1]);
                break;
            case "compacted":
                Compacted.create(producer, words[1], Integer.parseInt(words[2]), "cleanup.policy", "COMPACTION");
                break;
            case "values":
                Compacted.send(
                    producer, queue(words), Integer.parseInt(words[3]), Integer.parseInt(words[4]), Long.parseLong(words[5]));
                break;
            case "admin":
                new Admin(producer, address).run();
                break;
            case "bounds":
                bounds(queue(words));
                break;
            case "pull":
                pull(queue(words), Long.parseLong(words[3]), Long.parseLong(words[4]));
                break;
            case "query":
                query(words[1], words[2]);
                break;
            case "unique":
                unique(words[1], words[2]);
                break;
            case "view":
                view(words[1], words[2]);
                break;
            case "search":
                emit(Json.object("kind", "searched",
                    "queueOffset", producer.searchOffset(queue(words), Long.parseLong(words[3]))));
                break;
            case "send":
                send(queue(words), Integer.parseInt(words[3]), words[4]);
                break;
            case "consume":
                consume(words[1], words[2], Integer.parseInt(words[3]), Long.parseLong(words[4]));
                break;
            case "goOn":
                goOn(queue(words), words[3], Integer.parseInt(words[4]));
                break;
            case "checked":
                Checked.run(namesrv, broker, words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]));
                break;
            case "stream":
                new Stream(producer, words).run();
                break;
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private MessageQueue queue(String[] words) {
        return new MessageQueue(words[1], broker, Integer.parseInt(words[2]));
    }

    /**
     * Until the namesrv knows the broker, which has a topic of its own name. Some versions announce themselves too soon,
     * before they have a connection, and then only after 10 s; who changes the permissions makes them do it now.
     */
    private void waitForRoute() throws Exception {
        Properties permission = new Properties();
        permission.setProperty("brokerPermission", "6");
        for (int i = 0;; i++) {
            try {
                producer.fetchPublishMessageQueues(broker);
                consumer.fetchSubscribeMessageQueues(broker);
                return;
            } catch (MQClientException why) {
                if (i == 300) {
                    throw why;
                }
                producer.getDefaultMQProducerImpl().getmQClientFactory().getMQClientAPIImpl()
                    .updateBrokerConfig(address, permission, 5000);
                Thread.sleep(100);
            }
        }
    }

    static void createTopic(DefaultMQProducer producer, String topic, int queues) throws Exception {
        try {
            DefaultMQProducer.class.getMethod("createTopic", String.class, String.class, int.class)
                .invoke(producer, "TBW102", topic, queues);
        } catch (NoSuchMethodException newer) {
            DefaultMQProducer.class.getMethod("createTopic", String.class, String.class, int.class, Map.class)
                .invoke(producer, "TBW102", topic, queues, Map.of());
        }
        for (int i = 0;; i++) {
            try {
                if (producer.fetchPublishMessageQueues(topic).size() == queues) {
                    return;
                }
            } catch (MQClientException notYet) {
                if (i == 300) {
                    throw notYet;
                }
            }
            Thread.sleep(50);
        }
    }

    private void bounds(MessageQueue queue) throws Exception {
        emit(Json.object("kind", "bounds", "min", producer.minOffset(queue), "max", producer.maxOffset(queue)));
    }

    private void pull(MessageQueue queue, long from, long to) throws Exception {
        for (long at = from; at < to;) {
            PullResult result = consumer.pull(queue, "*", at, 32, 20_000);
            if (result.getPullStatus() == PullStatus.FOUND) {
                for (MessageExt message : result.getMsgFoundList()) {
                    if (message.getQueueOffset() < to) {
                        emit(Messages.received(message));
                    }
                }
            } else {
                emit(Json.object("kind", "missed", "queueOffset", at, "status", result.getPullStatus()));
            }
            if (result.getNextBeginOffset() <= at) {
                return;
            }
            at = result.getNextBeginOffset();
        }
    }

    /** What a push consumer of a group receives: so many messages, and what comes within some milliseconds after them. */
    private void consume(String topic, String group, int count, long quiet) throws Exception {
        CountDownLatch left = new CountDownLatch(count);
        DefaultMQPushConsumer pushed = new DefaultMQPushConsumer(group);
        pushed.setNamesrvAddr(namesrv);
        pushed.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        pushed.subscribe(topic, "*");
        pushed.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                emit(Messages.received(message));
                left.countDown();
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        pushed.start();
        try {
            left.await(60, TimeUnit.SECONDS);
            Thread.sleep(quiet);
            OffsetStore reached = pushed.getDefaultMQPushConsumerImpl().getOffsetStore();
            for (MessageQueue queue : pushed.fetchSubscribeMessageQueues(topic)) {
                long offset = reached.readOffset(queue, ReadOffsetType.READ_FROM_MEMORY);
                if (offset >= 0) {  // a shutdown sends it without waiting for an answer, and then it may get lost
                    reached.updateConsumeOffsetToBroker(queue, offset, false);
                }
            }
        } finally {
            pushed.shutdown();
        }
    }

    /**
     * What a group gets next of a queue, at most so many messages, from the offset that the broker knows of it; commits
     * where it stands then. Where the broker knows of none it tells 0, or -1 where messages have expired.
     */
    private void goOn(MessageQueue queue, String group, int most) throws Exception {
        DefaultMQPullConsumer of = new DefaultMQPullConsumer(group);
        of.setNamesrvAddr(namesrv);
        of.setInstanceName(group);
        of.start();
        try {
            OffsetStore reached = of.getDefaultMQPullConsumerImpl().getOffsetStore();
            // So that it knows the broker, of which light queues do not tell.
            reached.readOffset(new MessageQueue(broker, broker, 0), ReadOffsetType.READ_FROM_STORE);
            long known = reached.readOffset(queue, ReadOffsetType.READ_FROM_STORE);
            emit(Json.object("kind", "known", "queueOffset", known));
            long at = known >= 0 ? known : producer.minOffset(queue);
            PullResult result = of.pull(queue, "*", at, most, 20_000);
            if (result.getPullStatus() == PullStatus.FOUND) {
                for (MessageExt message : result.getMsgFoundList()) {
                    emit(Messages.received(message));
                }
                at = result.getNextBeginOffset();
            }
            reached.updateConsumeOffsetToBroker(queue, at, false);
        } finally {
            of.shutdown();
        }
    }

    private void query(String topic, String key) throws Exception {
        TreeSet<Long> offsets = new TreeSet<>();
        try {
            List<MessageExt> found = producer.queryMessage(topic, key, 1000, 0, Long.MAX_VALUE).getMessageList();
            found.forEach(message -> offsets.add(message.getCommitLogOffset()));
        } catch (MQClientException nothing) {
            if (!nothing.toString().contains("no message")) {
                throw nothing;
            }
        }
        emit(Json.object("kind", "found", "commitLogOffsets", offsets));
    }

    /** With times of its own: without them clients look three days back, or to this day of the month. */
    private void unique(String topic, String id) throws Exception {
        List<MessageExt> found = producer.getDefaultMQProducerImpl().getmQClientFactory().getMQAdminImpl()
            .queryMessageByUniqKey(topic, id, 32, 0, Long.MAX_VALUE).getMessageList();
        emit(Json.object("kind", "found", "commitLogOffset", found.get(0).getCommitLogOffset()));
    }

    /** By an offsetMsgId: asks the broker whose address is in it. */
    private void view(String topic, String id) throws Exception {
        MessageExt found = producer.viewMessage(topic, id);
        emit(Json.object("kind", "found", "topic", found.getTopic(), "queueId", found.getQueueId(),
            "queueOffset", found.getQueueOffset(), "keys", found.getKeys()));
    }

    private void send(MessageQueue queue, int count, String marker) throws Exception {
        for (int i = 0; i < count; i++) {
            Message message = new Message(queue.getTopic(), "sent", marker + "-" + i,
                ("sent " + marker + " " + i).getBytes(StandardCharsets.UTF_8));
            acknowledged("send", message, producer.send(message, queue));
        }
    }
}
