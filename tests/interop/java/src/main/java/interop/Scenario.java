package interop;

import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Messages of every kind, and consumers that succeed, stop half-way and fail. Words of the command: seed, number of
 * plain messages, bytes of the largest body (0: none), name of the group that is served by pop (may be empty), and what
 * else the broker can: "empty" (bodies), "timer".
 */
final class Scenario {
    private static final String TEXT = "Grüße, Привет, 你好, שלום, ﷽, e\u0301, 🚀🇺🇳";
    private static final int WAIT_SECONDS = 90;

    private final String namesrv;
    private final String broker;
    private final Random random;
    private final int plain;
    private final int largest;
    private final String popGroup;
    private final Set<String> abilities;
    private DefaultMQProducer producer;

    Scenario(String namesrv, String broker, String[] words) {
        this.namesrv = namesrv;
        this.broker = broker;
        random = new Random(Long.parseLong(words[1]));
        plain = Integer.parseInt(words[2]);
        largest = Integer.parseInt(words[3]);
        popGroup = words[4];
        abilities = Set.of(Arrays.copyOfRange(words, 5, words.length));
    }

    void run() throws Exception {
        producer = Client.producer(namesrv, "scenario-producer");
        // Those first whose time comes while the others are sent.
        delays();
        transactions();
        retries();
        if (abilities.contains("timer")) {
            timers();
        }
        if (!popGroup.isEmpty()) {
            pops();
        }
        plainMessages();
        properties();
        ordered();
        batches();
        compressed();
        sizes();
        longTopic();
        partlyConsumed();
        awaitAll();
        producer.shutdown();
    }

    // ---- what is sent

    private void plainMessages() throws Exception {
        createTopic("Plain", 4);
        for (int i = 0; i < plain; i++) {
            byte[] body = new byte[1 + random.nextInt(i % 20 == 0 ? 3000 : 300)];
            random.nextBytes(body);
            Message message = new Message("Plain", "Tag" + (char) ('A' + i % 3), "plain-" + i, body);
            message.setFlag(random.nextInt());
            message.putUserProperty("number", Integer.toString(i));
            send("plain", message);
        }
    }

    private void properties() throws Exception {
        createTopic("Properties", 2);
        send("properties", new Message("Properties", text("neither tags nor keys")));
        send("properties", new Message("Properties", "tag only", text("no keys")));

        Message nonAscii = new Message("Properties", "标签🏷", "ключ-" + TEXT.replace(' ', '_'), text(TEXT));
        nonAscii.putUserProperty("größe", TEXT);
        nonAscii.putUserProperty("🔑", "ключ");
        send("properties", nonAscii);

        Message keys = new Message("Properties", "Keys", "", text("several keys"));
        keys.setKeys(Arrays.asList("order-1", "заказ-2", "注文-3", "order-1"));
        send("properties", keys);
        send("properties", new Message("Properties", "Keys", "  two   spaces ", text("keys with spaces around")));
        send("properties", new Message("Properties", "a||b", "order-1", text("a tag that looks like a filter")));

        Message odd = new Message("Properties", "Odd", "odd", text("values with quotes, control characters, U+0001"));
        odd.putUserProperty("json", "{\"a\": [1, 2]}\n\t\\");
        odd.putUserProperty("one", "a\u0001b\u0001");
        odd.putUserProperty("blank", " x ");
        odd.setWaitStoreMsgOK(false);
        odd.setBuyerId("buyer 42");
        send("properties", odd);

        Message many = new Message("Properties", "Many", "many", text("two hundred properties"));
        for (int i = 0; i < 200; i++) {
            many.putUserProperty("property-" + i, "value of " + i);
        }
        send("properties", many);

        Message large = new Message("Properties", "Large", "large", text("a property of 20000 bytes"));
        large.putUserProperty("large", "x".repeat(20_000));
        send("properties", large);
    }

    private void ordered() throws Exception {
        createTopic("Ordered", 3);
        String[] states = {"created", "paid", "shipped", "done"};
        for (int i = 0; i < 24; i++) {
            int order = i % 6;
            Message message = new Message("Ordered", states[i / 6], "order-" + order, text(states[i / 6] + " " + order));
            MessageAccessor.putProperty(message, "__SHARDINGKEY", "order-" + order);
            SendResult result = producer.send(message,
                (queues, sent, key) -> queues.get((Integer) key % queues.size()), order);
            Client.acknowledged("ordered", message, result);
        }
    }

    private void batches() throws Exception {
        createTopic("Batches", 2);
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 17; i++) {
            Message message = new Message("Batches", "Batch" + i % 2, "batch-" + i, text("in a batch: " + i + " " + TEXT));
            message.putUserProperty("index", Integer.toString(i));
            message.setFlag(i);
            batch.add(message);
        }
        batchAcknowledged(batch, producer.send(batch));
        batchAcknowledged(batch.subList(0, 1), producer.send(List.of(new Message("Batches", "Single", "single",
            text("alone in its batch")))));
    }

    /** The ids and queue offset of a batch stand for all of its messages. */
    private static void batchAcknowledged(List<Message> batch, SendResult result) {
        Client.emit(Json.object("kind", "batch", "step", "batches", "status", result.getSendStatus(),
            "topic", result.getMessageQueue().getTopic(), "queueId", result.getMessageQueue().getQueueId(),
            "queueOffset", result.getQueueOffset(), "messages", batch.size(),
            "msgIds", Arrays.asList(result.getMsgId().split(",")),
            "offsetMsgIds", Arrays.asList(result.getOffsetMsgId().split(","))));
    }

    private void compressed() throws Exception {
        createTopic("Compressed", 2);
        String before = System.getProperty("rocketmq.message.compressType");
        for (String type : List.of("ZLIB", "LZ4", "ZSTD")) {
            System.setProperty("rocketmq.message.compressType", type); // read by each new producer
            DefaultMQProducer compressing = Client.producer(namesrv, "producer-" + type);
            for (int length : new int[] {4096, 9_000, 70_000}) {
                byte[] body = Arrays.copyOf((type + " " + (TEXT + "\n").repeat(length / 20)).getBytes(
                    StandardCharsets.UTF_8), length);
                Message message = new Message("Compressed", type, type + "-" + length, body);
                SendResult result = compressing.send(message);
                Client.acknowledged("compressed", message, result, body);
            }
            compressing.shutdown();
        }
        if (before == null) {
            System.clearProperty("rocketmq.message.compressType");
        } else {
            System.setProperty("rocketmq.message.compressType", before);
        }
    }

    private void sizes() throws Exception {
        createTopic("Sizes", 1);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        for (int length : new int[] {1, 127, 4095, 4096, 20_000, largest}) {
            byte[] body = new byte[length];
            for (int i = 0; i < length; i++) {
                body[i] = (byte) (i % 251);
            }
            if (length > 0) {
                send("sizes", new Message("Sizes", "Sized", "size-" + length, body));
            }
        }
        if (abilities.contains("empty")) {
            send("empty", new EmptyMessage("Sizes", "Empty", "empty"));
        }
        List<Message> batch = List.of(new EmptyMessage("Sizes", "Empty", "empty-0"),
            new Message("Sizes", "Empty", "empty-1", text("not empty")), new EmptyMessage("Sizes", "Empty", "empty-2"));
        batchAcknowledged(batch, producer.send(batch));
    }

    /**
     * The client refuses an empty body, so this message shows one to its check only. 4.x brokers store it; those of 5.x
     * fail on it (a NullPointerException) unless it is in a batch.
     */
    private static final class EmptyMessage extends Message {
        EmptyMessage(String topic, String tags, String keys) {
            super(topic, tags, keys, new byte[1]);
        }

        @Override
        public byte[] getBody() {
            boolean checked = StackWalker.getInstance().walk(frames -> frames.limit(3)
                .anyMatch(frame -> frame.getClassName().endsWith(".Validators")));
            return checked ? super.getBody() : new byte[0];
        }
    }

    private void longTopic() throws Exception {
        String topic = "Long-" + "t".repeat(122);
        createTopic(topic, 1);
        for (int i = 0; i < 3; i++) {
            send("long topic", new Message(topic, "Long", "long-" + i, text("a topic of 127 characters")));
        }
    }

    // ---- what is sent now and arrives later

    private final List<Awaited> awaited = new ArrayList<>();

    private interface Condition {
        boolean holds() throws Exception;
    }

    private static final class Awaited {
        final String what;
        final Condition condition;
        final Runnable after;

        Awaited(String what, Condition condition, Runnable after) {
            this.what = what;
            this.condition = condition;
            this.after = after;
        }
    }

    private void await(String what, Condition condition, Runnable after) {
        awaited.add(new Awaited(what, condition, after));
    }

    private void awaitAll() throws Exception {
        long began = System.currentTimeMillis();
        long end = began + WAIT_SECONDS * 1000L;
        for (Awaited one : awaited) {
            while (!one.condition.holds()) {
                if (System.currentTimeMillis() > end) {
                    throw new IllegalStateException("waited in vain: " + one.what);
                }
                Thread.sleep(100);
            }
            long arrived = System.currentTimeMillis();
            one.after.run();
            Client.emit(Json.object("kind", "awaited", "what", one.what, "millis", arrived - began,
                "after", System.currentTimeMillis() - arrived));
        }
    }

    private long stored(String topic, int queues) throws Exception {
        long sum = 0;
        for (int i = 0; i < queues; i++) {
            sum += producer.maxOffset(new MessageQueue(topic, broker, i));
        }
        return sum;
    }

    private void delays() throws Exception {
        createTopic("Delayed", 2);
        for (int level : new int[] {1, 1, 2, 18}) {
            Message message = new Message("Delayed", "Level" + level, "level-" + level, text("delayed by level " + level));
            message.setDelayTimeLevel(level);
            send("delayed", message);
        }
        await("delayed messages", () -> stored("Delayed", 2) == 3, () -> { });
    }

    private void timers() throws Exception {
        createTopic("Timers", 1);
        for (int seconds : new int[] {2, 3, 24 * 3600}) {
            Message message = new Message("Timers", "Timer", "timer-" + seconds, text("in " + seconds + " s"));
            MessageAccessor.putProperty(message, "TIMER_DELIVER_MS",
                Long.toString(System.currentTimeMillis() + seconds * 1000L));
            send("timer", message);
        }
        await("timer messages", () -> stored("Timers", 1) == 2, () -> { });
    }

    private void transactions() throws Exception {
        createTopic("Transactions", 2);
        TransactionMQProducer transactional = new TransactionMQProducer("transaction-producer");
        transactional.setNamesrvAddr(namesrv);
        transactional.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return (LocalTransactionState) state;
            }

            /** The left open ones: the broker asks for them after a while. */
            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        transactional.start();
        for (LocalTransactionState state : LocalTransactionState.values()) {
            for (int i = 0; i < 3; i++) {
                Message message = new Message("Transactions", state.name(), state.name() + "-" + i,
                    text("transaction " + i + " " + TEXT));
                message.putUserProperty("state", state.name());
                Client.acknowledged("transaction " + state, message,
                    transactional.sendMessageInTransaction(message, state));
            }
        }
        await("committed transactions", () -> stored("Transactions", 2) == 3, transactional::shutdown);
    }

    // ---- consumers

    private DefaultMQPushConsumer consumer(String group, String topic) throws MQClientException {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.setPollNameServerInterval(500);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        return consumer;
    }

    /** A group that takes half of the messages and then no more. */
    private void partlyConsumed() throws Exception {
        int wanted = plain / 2;
        CountDownLatch left = new CountDownLatch(wanted);
        DefaultMQPushConsumer consumer = consumer("partial-group", "Plain");
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            if (left.getCount() == 0) {
                context.setSuspendCurrentQueueTimeMillis(10_000);
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            }
            left.countDown();
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        await("the group that takes half", () -> left.await(1, TimeUnit.MILLISECONDS), consumer::shutdown);
    }

    /** A group that fails with some messages until these are given up. */
    private void retries() throws Exception {
        createTopic("Retried", 1);
        for (int i = 0; i < 6; i++) {
            Message message = new Message("Retried", i % 3 == 0 ? "Bad" : "Good", "retried-" + i, text("retried " + i));
            message.putUserProperty("number", Integer.toString(i));
            send("retried", message);
        }
        String group = "failing-group";
        DefaultMQPushConsumer consumer = consumer(group, "Retried");
        consumer.setMaxReconsumeTimes(2);
        AtomicInteger done = new AtomicInteger();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            context.setDelayLevelWhenNextConsume(1);
            if (messages.get(0).getTags().equals("Bad")) {
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            done.incrementAndGet();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        await("given up by " + group, () -> done.get() == 4 && stored("%DLQ%" + group, 1) == 2, consumer::shutdown);
    }

    /** The broker was told to serve this group by pop. */
    private void pops() throws Exception {
        createTopic("Popped", 2);
        for (int i = 0; i < 12; i++) {
            send("popped", new Message("Popped", i % 4 == 0 ? "Bad" : "Good", "popped-" + i, text("popped " + i)));
        }
        DefaultMQPushConsumer consumer = consumer(popGroup, "Popped");
        Method setClientRebalance = DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class);
        setClientRebalance.invoke(consumer, false);
        List<String> good = Collections.synchronizedList(new ArrayList<>());
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            boolean fails = message.getTags().equals("Bad");
            if (!fails) {
                good.add(message.getKeys());
            }
            if (message.getProperty("POP_CK") == null) {
                Client.emit(Json.object("kind", "not popped", "keys", message.getKeys()));
            }
            return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        // What failed stays invisible for 10 s, and then goes to the topic for retries.
        await("popped messages", () -> good.size() >= 9 && stored("%RETRY%" + popGroup + "_Popped", 1) >= 3,
            consumer::shutdown);
    }

    // ----

    private void createTopic(String topic, int queues) throws Exception {
        Client.createTopic(producer, topic, queues);
    }

    private void send(String step, Message message) throws Exception {
        Client.acknowledged(step, message, producer.send(message));
    }

    private static byte[] text(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
