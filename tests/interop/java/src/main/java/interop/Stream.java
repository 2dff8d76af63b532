package interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** Sends from several threads, messages of all sizes; tells of each as soon as it is acknowledged. */
final class Stream {
    private static final int THREADS = 3;

    private final DefaultMQProducer producer;
    private final String topic;
    private final long millis;
    private final long seed;

    Stream(DefaultMQProducer producer, String topic, long millis, long seed) {
        this.producer = producer;
        this.topic = topic;
        this.millis = millis;
        this.seed = seed;
    }

    void run() throws Exception {
        long end = System.currentTimeMillis() + millis;
        AtomicReference<Exception> failure = new AtomicReference<>();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < THREADS; i++) {
            Random random = new Random(seed + i);
            String name = "stream-" + i;
            threads.add(new Thread(() -> {
                try {
                    for (int n = 0; System.currentTimeMillis() < end && failure.get() == null; n++) {
                        Message message = new Message(topic, "tag" + n % 3, name + "-" + n, body(random));
                        Client.acknowledged("stream", message, producer.send(message));
                        Thread.sleep(1); // as many as can be read again and again
                    }
                } catch (Exception why) {
                    failure.set(why);
                }
            }, name));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        if (failure.get() != null) {
            throw failure.get();
        }
    }

    private static byte[] body(Random random) {
        int size = random.nextInt(50) == 0 ? 60_000 + random.nextInt(60_000) : 1 + random.nextInt(3_000);
        byte[] body = new byte[size];
        random.nextBytes(body);
        return body;
    }
}
