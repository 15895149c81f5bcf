import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.TimeWindows;

/**
 * The topologies of benchmarks/streams/ottla_app.py in Kafka Streams. Keys and values are text, as on the other side;
 * the table's values, which are JSON, are not parsed here.
 *
 * Arguments: topology, application.id, bootstrap, state directory, commit.interval.ms ("" for the default), input
 * topic, table topic, output topic. Runs until the process is terminated.
 */
public final class KafkaStreamsApp {
    public static void main(String[] arguments) {
        var settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[2]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[3]);
        if (!arguments[4].isEmpty()) {
            settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, arguments[4]);
        }
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, "2");
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, "1");
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        // Its consumers do not leave the group when they end, and a restart would wait 45 s for that instead of restoring.
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), "6000");

        var builder = new StreamsBuilder();
        KStream<String, String> results = describe(arguments[0], builder, arguments[5], arguments[6]);
        results.to(arguments[7]);

        var streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(20))));
        streams.start();
    }

    private static KStream<String, String> describe(String name, StreamsBuilder builder, String input, String table) {
        return switch (name) {
            case "stateless" -> builder.<String, String>stream(input)
                .filter((key, value) -> !value.endsWith("7"))
                .mapValues(value -> value.toUpperCase());
            case "count" -> builder.<String, String>stream(input)
                .groupByKey()
                .count(Materialized.as("counts"))
                .toStream()
                .mapValues(KafkaStreamsApp::write);
            case "window" -> builder.<String, String>stream(input)
                .groupByKey()
                .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofMinutes(1)))
                .count(Materialized.as("counts"))
                .toStream((window, count) -> window.key() + "@" + window.window().start())
                .mapValues(KafkaStreamsApp::write);
            case "join" -> builder.<String, String>stream(input)
                .join(builder.<String, String>table(table), KafkaStreamsApp::writeBoth);
            case "table-join" -> builder.<String, String>table(input)
                .join(builder.<String, String>table(table), KafkaStreamsApp::writeBoth)
                .toStream();
            case "table-rekey" -> builder.<String, String>table(input)
                .groupBy((key, value) -> KeyValue.pair(key.substring(key.length() - 2), value))
                .count(Materialized.as("counts"))
                .toStream()
                .mapValues(KafkaStreamsApp::write);
            default -> throw new IllegalArgumentException(name);
        };
    }

    private static String writeBoth(String value, String named) {
        return "{\"value\":\"" + value + "\",\"named\":" + named + "}";
    }

    private static String write(Long count) {
        return "{\"count\":" + count + "}";
    }
}
