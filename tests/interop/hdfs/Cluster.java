import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.client.HdfsDataOutputStream;
import org.apache.hadoop.hdfs.client.HdfsDataOutputStream.SyncFlag;

/**
 * An HDFS cluster on loopback: a NameNode and a DataNode. Its argument is an empty directory for them.
 *
 * Says `@ready PORT`, and then answers each line of its input with `@done` or `@failed WHY`; words have tabs between
 * them. It ends with its input.
 */
public class Cluster {
    private final MiniDFSCluster cluster;
    private final DistributedFileSystem files;
    private final Map<String, FSDataOutputStream> open = new HashMap<>();

    private Cluster(String directory) throws IOException {
        Configuration configuration = new Configuration();
        configuration.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, directory);
        configuration.setInt("dfs.blocksize", 1 << 20);  // so that a segment has several
        // A DataNode's word that it has a file's last block comes soon, and not only after 400 ms.
        configuration.setInt("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", 5);
        configuration.setInt("dfs.client.block.write.locateFollowingBlock.retries", 12);
        cluster = new MiniDFSCluster.Builder(configuration).numDataNodes(1).build();
        cluster.waitActive();
        files = cluster.getFileSystem();
    }

    public static void main(String[] arguments) throws IOException {
        Cluster running = new Cluster(arguments[0]);
        System.out.println("@ready " + running.cluster.getNameNodePort());
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                running.run(line.split("\t"));
                System.out.println("@done");
            } catch (Exception why) {
                System.out.println("@failed " + why);
            }
        }
        System.exit(0);
    }

    private void run(String[] words) throws IOException {
        org.apache.hadoop.fs.Path path = new org.apache.hadoop.fs.Path(words[1]);
        switch (words[0]) {
            case "put":  // a file or a directory of this machine, in place of what is there
                files.copyFromLocalFile(false, true, new org.apache.hadoop.fs.Path(words[2]), path);
                break;
            case "mkdir":
                files.mkdirs(path);
                break;
            case "delete":
                files.delete(path, true);
                break;
            case "permit":
                files.setPermission(path, new FsPermission(words[2]));
                break;
            case "write": {  // a file's bytes [from, to), so that all can see them; it stays open
                byte[] bytes = Files.readAllBytes(Path.of(words[2]));
                FSDataOutputStream out = open.containsKey(words[1]) ? open.get(words[1]) : files.create(path);
                open.put(words[1], out);
                out.write(Arrays.copyOfRange(bytes, Integer.parseInt(words[3]), Integer.parseInt(words[4])));
                ((HdfsDataOutputStream) out).hsync(EnumSet.of(SyncFlag.UPDATE_LENGTH));
                break;
            }
            case "close":
                open.remove(words[1]).close();
                break;
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }
}
