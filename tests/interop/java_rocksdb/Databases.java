import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;

import org.apache.rocketmq.common.config.ConfigHelper;
import org.apache.rocketmq.store.rocksdb.RocksDBOptionsFactory;
import org.rocksdb.BlockBasedTableConfig;
import org.rocksdb.ChecksumType;
import org.rocksdb.ColumnFamilyDescriptor;
import org.rocksdb.ColumnFamilyHandle;
import org.rocksdb.ColumnFamilyOptions;
import org.rocksdb.CompressionType;
import org.rocksdb.DBOptions;
import org.rocksdb.FlushOptions;
import org.rocksdb.IndexType;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksIterator;
import org.rocksdb.WriteOptions;

/** Makes databases with the RocksDB of a broker, its options and others, and writes down what is in each. */
public class Databases {
    private static final CompressionType[] COMPRESSIONS = {
        CompressionType.NO_COMPRESSION, CompressionType.SNAPPY_COMPRESSION, CompressionType.ZLIB_COMPRESSION,
        CompressionType.BZLIB2_COMPRESSION, CompressionType.LZ4_COMPRESSION, CompressionType.LZ4HC_COMPRESSION,
        CompressionType.ZSTD_COMPRESSION,
    };
    private static final String[] FAMILIES = {"default", "offset", "popState"};
    private static Random random;

    /** Arguments: a directory, the first seed, the one after the last. */
    public static void main(String[] args) throws Exception {
        RocksDB.loadLibrary();
        for (int seed = Integer.parseInt(args[1]); seed < Integer.parseInt(args[2]); seed++) {
            random = new Random(seed);
            Path path = new File(args[0], String.valueOf(seed)).toPath();
            Files.createDirectories(path);
            int sittings = 1 + random.nextInt(3);
            for (int i = 0; i < sittings; i++) {
                sit(path);
            }
            judge(path);
        }
        System.out.println("done");
    }

    private static void sit(Path path) throws Exception {
        List<ColumnFamilyDescriptor> descriptors = new ArrayList<>();
        for (String name : FAMILIES) {
            descriptors.add(new ColumnFamilyDescriptor(name.getBytes(), columnFamily()));
        }
        List<ColumnFamilyHandle> handles = new ArrayList<>();
        DBOptions options = random.nextBoolean() ? ConfigHelper.createConfigDBOptions() : RocksDBOptionsFactory.createDBOptions();
        options.setDbLogDir("").setUseDirectReads(false).setUseDirectIoForFlushAndCompaction(false);
        options.setAvoidFlushDuringShutdown(random.nextBoolean());
        try (RocksDB db = RocksDB.open(options, path.toString(), descriptors, handles)) {
            for (int deeds = random.nextInt(40); deeds >= 0; deeds--) {
                work(db, handles.get(random.nextInt(handles.size())));
            }
            db.flushWal(false);
            handles.forEach(ColumnFamilyHandle::close);
        }
    }

    /** Writes down what is in the database as it lies, without a change to it. */
    private static void judge(Path path) throws Exception {
        List<ColumnFamilyDescriptor> descriptors = new ArrayList<>();
        for (String name : FAMILIES) {
            // An update in place has the sequence number of what it replaces, and is lost in an older deleted range.
            ColumnFamilyOptions options = ConfigHelper.createConfigColumnFamilyOptions().setInplaceUpdateSupport(false);
            descriptors.add(new ColumnFamilyDescriptor(name.getBytes(), options));
        }
        List<ColumnFamilyHandle> handles = new ArrayList<>();
        try (RocksDB db = RocksDB.openReadOnly(new DBOptions(), path.toString(), descriptors, handles)) {
            write(path, db, handles);
            handles.forEach(ColumnFamilyHandle::close);
        }
    }

    private static ColumnFamilyOptions columnFamily() {
        ColumnFamilyOptions options = brokers(random.nextInt(6));
        options.setCompressionType(COMPRESSIONS[random.nextInt(COMPRESSIONS.length)]);
        options.setBottommostCompressionType(COMPRESSIONS[random.nextInt(COMPRESSIONS.length)]);
        options.setWriteBufferSize(random.nextBoolean() ? 64 << 10 : 8 << 20);
        BlockBasedTableConfig table = (BlockBasedTableConfig) options.tableFormatConfig();
        if (random.nextBoolean()) {
            ChecksumType[] checksums = {ChecksumType.kCRC32c, ChecksumType.kXXH3, ChecksumType.kXXH3, ChecksumType.kNoChecksum};
            table.setChecksumType(checksums[random.nextInt(checksums.length)]).setFormatVersion(2 + random.nextInt(4));
            table.setBlockSize(256 << random.nextInt(8));
            table.setIndexType(random.nextInt(4) == 0 ? IndexType.kTwoLevelIndexSearch : IndexType.kBinarySearch);
        }
        return options.setTableFormatConfig(table);
    }

    private static ColumnFamilyOptions brokers(int which) {
        switch (which) {
            case 0: return ConfigHelper.createConfigColumnFamilyOptions();
            case 1: return RocksDBOptionsFactory.createOffsetCFOptions();
            case 2: return RocksDBOptionsFactory.createTimerCFOptions();
            case 3: return RocksDBOptionsFactory.createTransCFOptions();
            case 4: return RocksDBOptionsFactory.createIndexCFOptions();
            default: return RocksDBOptionsFactory.createPopCFOptions();
        }
    }

    private static void work(RocksDB db, ColumnFamilyHandle family) throws Exception {
        WriteOptions how = new WriteOptions().setDisableWAL(random.nextInt(6) == 0);
        int deed = random.nextInt(20);
        int many = random.nextInt(3) == 0 ? 60 : 4;
        if (deed < 7) {
            for (int i = 0; i < many; i++) {
                db.put(family, how, key(), value());
            }
        } else if (deed < 13) {
            for (int i = 0; i < many; i++) {
                db.merge(family, how, key(), value());
            }
        } else if (deed < 15) {
            for (int i = 0; i < many; i++) {
                db.delete(family, how, key());
            }
        } else if (deed < 17) {
            byte[] a = key();
            byte[] b = key();
            boolean isFirst = new String(a).compareTo(new String(b)) < 0;
            db.deleteRange(family, how, isFirst ? a : b, isFirst ? b : a);
        } else if (deed < 19) {
            db.flush(new FlushOptions().setWaitForFlush(true), family);
        } else {
            db.compactRange(family);
        }
    }

    private static byte[] key() {
        return String.format("Topic%02d@Group%d", random.nextInt(20), random.nextInt(3)).getBytes();
    }

    private static byte[] value() {
        byte[] found = new byte[random.nextInt(8) == 0 ? 0 : random.nextInt(60)];
        random.nextBytes(found);
        return found;
    }

    /** What is in the database, by column family, key and value in hexadecimal digits. */
    private static void write(Path path, RocksDB db, List<ColumnFamilyHandle> handles) throws Exception {
        StringBuilder text = new StringBuilder("{");
        for (ColumnFamilyHandle handle : handles) {
            text.append(text.length() > 1 ? ", " : "").append('"').append(new String(handle.getName())).append("\": {");
            String between = "";
            try (RocksIterator each = db.newIterator(handle)) {
                for (each.seekToFirst(); each.isValid(); each.next()) {
                    text.append(between).append('"').append(hex(each.key())).append("\": \"").append(hex(each.value())).append('"');
                    between = ", ";
                }
            }
            text.append('}');
        }
        Files.writeString(path.resolve("content.json"), text.append("}\n"));
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte each : bytes) {
            text.append(String.format("%02x", each));
        }
        return text.toString();
    }
}
