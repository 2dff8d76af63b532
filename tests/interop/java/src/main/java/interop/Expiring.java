package interop;

import java.io.File;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.BrokerStartup;
import org.apache.rocketmq.store.CommitLog;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * A broker that deletes its ten oldest segments as expired ones when it is asked to, by a file "expire" in its home, and
 * none of those that a reader of its own has just then. When it is done, it deletes the file that asked for it. A broker
 * looks by itself for expired ones a minute after its start, and every ten seconds from then on; so nothing that it
 * looks at then may say, even for a moment, that there are some. Arguments: those of a broker.
 */
public final class Expiring {
    private Expiring() {
    }

    public static void main(String[] args) throws Exception {
        BrokerController broker = BrokerStartup.start(BrokerStartup.createBrokerController(args));
        DefaultMessageStore store = own(broker.getMessageStore());
        Method clean = DefaultMessageStore.class.getDeclaredMethod("cleanFilesPeriodically");
        clean.setAccessible(true);
        File asked = new File(System.getProperty("user.home"), "expire");
        while (true) {
            if (asked.exists()) {
                delete(store.getCommitLog(), store.getMessageStoreConfig());
                clean.invoke(store); // queues and index
                asked.delete();
            }
            Thread.sleep(20);
        }
    }

    /** The store that plug-ins are put around, each of which has the next one. */
    private static DefaultMessageStore own(Object store) throws Exception {
        Object found = store;
        while (!(found instanceof DefaultMessageStore)) {
            Field next = found.getClass().getSuperclass().getDeclaredField("next");
            next.setAccessible(true);
            found = next.get(found);
        }
        return (DefaultMessageStore) found;
    }

    private static void delete(CommitLog log, MessageStoreConfig settings) throws Exception {
        int pause = settings.getDeleteCommitLogFilesInterval();
        long patience = settings.getDestroyMapedFileIntervalForcibly();
        Method five;
        try {
            five = CommitLog.class.getMethod(
                "deleteExpiredFile", long.class, int.class, long.class, boolean.class, int.class);
        } catch (NoSuchMethodException four) {
            log.deleteExpiredFile(0, pause, patience, false); // at most ten
            return;
        }
        five.invoke(log, 0L, pause, patience, false, 10);
    }
}
