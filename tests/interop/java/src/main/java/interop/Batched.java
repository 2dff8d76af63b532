package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Batches to a topic that keeps them whole (BatchCQ): those of a program, and those that a producer makes by itself. */
final class Batched {
    private Batched() {
    }

    /** Creates the topic; then so many batches, as many single messages, and as many messages of each of 4 threads. */
    static void run(String namesrv, DefaultMQProducer creator, String topic, int count) throws Exception {
        Object admin = creator.getDefaultMQProducerImpl().getmQClientFactory().getMQAdminImpl();
        admin.getClass().getMethod("createTopic", String.class, String.class, int.class, int.class, Map.class)
            .invoke(admin, "TBW102", topic, 1, 0, Map.of("+queue.type", "BatchCQ"));
        for (int i = 0;; i++) {
            try {
                if (creator.fetchPublishMessageQueues(topic).size() == 1) {
                    break;
                }
            } catch (Exception notYet) {
                if (i == 300) {
                    throw notYet;
                }
            }
            Thread.sleep(50);
        }
        for (int i = 0; i < count; i++) {
            List<Message> batch = new ArrayList<>();
            for (int j = 0; j <= i; j++) {
                batch.add(message(topic, "batch-" + i + "-" + j));
            }
            creator.send(batch);
            creator.send(message(topic, "single-" + i));
        }
        DefaultMQProducer automatic = new DefaultMQProducer("automatic");
        automatic.setNamesrvAddr(namesrv);
        automatic.setInstanceName("automatic");
        DefaultMQProducer.class.getMethod("setAutoBatch", boolean.class).invoke(automatic, true);
        automatic.start();
        List<Thread> threads = new ArrayList<>();
        for (int thread = 0; thread < 4; thread++) {
            final int number = thread;
            threads.add(new Thread(() -> {
                for (int i = 0; i < count; i++) {
                    try {
                        SendResult result = automatic.send(message(topic, "auto-" + number + "-" + i));
                        Client.emit(Json.object("kind", "sent", "status", result.getSendStatus()));
                    } catch (Exception why) {
                        Client.emit(Json.object("kind", "error", "command", "batched", "why", why.toString()));
                    }
                }
            }));
        }
        for (Thread thread : threads) {
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        automatic.shutdown();
    }

    private static Message message(String topic, String name) {
        return new Message(topic, "tag-" + name.length(), name, name.getBytes(StandardCharsets.UTF_8));
    }
}
