import java.time.Duration;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.MirrorClient;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/**
 * What Kafka's own client of mirrors finds in a cluster: MirrorReader bootstrap source group policy.
 * One fact on each line: a word, and then its values.
 */
public class MirrorReader {
    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", args[0],
            "source.cluster.alias", args[1],
            "replication.policy.class", "org.apache.kafka.connect.mirror." + args[3]);
        try (MirrorClient client = new MirrorClient(settings)) {
            show("checkpoints", client.checkpointTopics());
            show("heartbeats", client.heartbeatTopics());
            show("upstream", client.upstreamClusters());
            show("remote", client.remoteTopics(args[1]));
        }
        System.out.println("hops " + RemoteClusterUtils.replicationHops(settings, args[1]));
        Map<String, OffsetAndMetadata> found = new TreeMap<>();
        Map<TopicPartition, OffsetAndMetadata> offsets =
            RemoteClusterUtils.translateOffsets(settings, args[1], args[2], Duration.ofMinutes(5));
        offsets.forEach((where, offset) -> found.put(where.toString(), offset));
        found.forEach((where, offset) ->
            System.out.println("offset " + where + " " + offset.offset() + " " + offset.metadata()));
    }

    private static void show(String word, Iterable<String> names) {
        TreeSet<String> sorted = new TreeSet<>();
        names.forEach(sorted::add);
        System.out.println(word + " " + String.join(" ", sorted));
    }
}
