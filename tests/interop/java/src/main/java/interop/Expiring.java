package interop;

import java.io.File;
import java.lang.reflect.Method;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.BrokerStartup;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * A broker that deletes its ten oldest segments as expired ones when it is asked to, by a file "expire" in its home. A
 * broker does that by itself only a minute after its start, and every ten seconds from then on. When it is done, it
 * deletes the file that asked for it. Arguments: those of a broker.
 */
public final class Expiring {
    private Expiring() {
    }

    public static void main(String[] args) throws Exception {
        BrokerController broker = BrokerStartup.start(BrokerStartup.createBrokerController(args));
        DefaultMessageStore store = (DefaultMessageStore) broker.getMessageStore();
        MessageStoreConfig settings = store.getMessageStoreConfig();
        Method clean = DefaultMessageStore.class.getDeclaredMethod("cleanFilesPeriodically");
        clean.setAccessible(true);
        File asked = new File(System.getProperty("user.home"), "expire");
        while (true) {
            if (asked.exists()) {
                int hours = settings.getFileReservedTime();
                settings.setFileReservedTime(0);
                store.executeDeleteFilesManually(); // whatever hour it is
                clean.invoke(store);
                settings.setFileReservedTime(hours);
                asked.delete();
            }
            Thread.sleep(20);
        }
    }
}
