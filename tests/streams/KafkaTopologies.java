import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.function.Consumer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.test.TestRecord;

/**
 * Topologies of Kafka Streams by name, run by its TopologyTestDriver without caches. Standard input has lines of
 * scenario, topology, topic, key, timestamp and value, divided by tabs; an empty value is none. Standard output has one
 * JSON array for each record written: scenario, number of the input record, key, value, timestamp. The argument is a
 * directory for state.
 */
public final class KafkaTopologies {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Serde<String> KEYS = Serdes.String();
    private static final Serde<JsonNode> VALUES = Serdes.serdeFrom(
        (topic, value) -> value == null ? null : value.toString().getBytes(StandardCharsets.UTF_8),
        (topic, bytes) -> bytes == null ? null : parse(new String(bytes, StandardCharsets.UTF_8)));
    private static final String OUT = "out";
    private static final Duration GRACE = Duration.ofMillis(2000);
    private static final TimeWindows TUMBLING = TimeWindows.ofSizeAndGrace(Duration.ofMillis(3000), GRACE);
    private static final TimeWindows HOPPING = TUMBLING.advanceBy(Duration.ofMillis(1000));
    private static final SessionWindows SESSIONS =
        SessionWindows.ofInactivityGapAndGrace(Duration.ofMillis(1000), GRACE);
    private static final JoinWindows JOINED =
        JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(1500), Duration.ofMillis(1000));
    private static final Map<String, Consumer<StreamsBuilder>> TOPOLOGIES = new LinkedHashMap<>();

    static {
        addStreams();
        addWindows();
        addStreamJoins();
        addTables();
    }

    private static void addStreams() {
        TOPOLOGIES.put("functions", builder -> write(stream(builder, "events")
            .filter((key, row) -> row != null && amount(row) > 5)
            .mapValues(row -> (JsonNode) object("double", 2 * amount(row)))
            .flatMapValues(row -> List.of(row, object("double", row.get("double").asLong() + 1)))));
        TOPOLOGIES.put("merge", builder -> write(stream(builder, "left").merge(stream(builder, "right"))));
        TOPOLOGIES.put("count", builder -> writeCounts(stream(builder, "events").groupByKey(grouped()).count()));
        TOPOLOGIES.put("reduce", builder -> write(stream(builder, "events").groupByKey(grouped())
            .reduce(KafkaTopologies::add, Materialized.with(KEYS, VALUES)).toStream()));
        TOPOLOGIES.put("rekeyed_count", builder -> writeCounts(byShop(stream(builder, "events")).count()));
        TOPOLOGIES.put("counts_above_two", builder -> writeCounts(
            stream(builder, "events").groupByKey(grouped()).count().filter((key, count) -> count > 2)));
        TOPOLOGIES.put("to_table", builder -> write(
            stream(builder, "events").toTable(Materialized.with(KEYS, VALUES)).toStream()));
    }

    private static void addWindows() {
        Suppressed<Windowed<?>> closed = Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded());
        Map<String, TimeWindows> windows = Map.of("tumbling", TUMBLING, "hopping", HOPPING);
        windows.forEach((name, window) -> {
            TOPOLOGIES.put(name, builder -> writeWindows(
                stream(builder, "events").groupByKey(grouped()).windowedBy(window).count()));
            TOPOLOGIES.put(name + "_rekeyed", builder -> writeWindows(
                byShop(stream(builder, "events")).windowedBy(window).count()));
            TOPOLOGIES.put(name + "_suppressed", builder -> writeWindows(
                stream(builder, "events").groupByKey(grouped()).windowedBy(window).count().suppress(closed)));
            TOPOLOGIES.put(name + "_on_close", builder -> writeWindows(
                stream(builder, "events").groupByKey(grouped()).windowedBy(window)
                    .emitStrategy(EmitStrategy.onWindowClose()).count(kept())));
            TOPOLOGIES.put(name + "_on_close_not_kept", builder -> writeWindows(
                stream(builder, "events").groupByKey(grouped()).windowedBy(window)
                    .emitStrategy(EmitStrategy.onWindowClose()).count()));
        });
        TOPOLOGIES.put("session", builder -> writeWindows(
            stream(builder, "events").groupByKey(grouped()).windowedBy(SESSIONS).count()));
        TOPOLOGIES.put("session_suppressed", builder -> writeWindows(
            stream(builder, "events").groupByKey(grouped()).windowedBy(SESSIONS).count().suppress(closed)));
        TOPOLOGIES.put("session_on_close", builder -> writeWindows(
            stream(builder, "events").groupByKey(grouped()).windowedBy(SESSIONS)
                .emitStrategy(EmitStrategy.onWindowClose()).count(kept())));
    }

    private static void addStreamJoins() {
        Joined<String, JsonNode, JsonNode> withTable = Joined.with(KEYS, VALUES, VALUES);
        StreamJoined<String, JsonNode, JsonNode> withStream = StreamJoined.with(KEYS, VALUES, VALUES);
        TOPOLOGIES.put("stream_table_inner", builder -> write(
            stream(builder, "left").join(table(builder, "right"), KafkaTopologies::pair, withTable)));
        TOPOLOGIES.put("stream_table_left", builder -> write(
            stream(builder, "left").leftJoin(table(builder, "right"), KafkaTopologies::pair, withTable)));
        TOPOLOGIES.put("stream_stream_inner", builder -> write(
            stream(builder, "left").join(stream(builder, "right"), KafkaTopologies::pair, JOINED, withStream)));
        TOPOLOGIES.put("stream_stream_left", builder -> write(
            stream(builder, "left").leftJoin(stream(builder, "right"), KafkaTopologies::pair, JOINED, withStream)));
        JoinWindows uneven = JOINED.before(Duration.ofMillis(500)).after(Duration.ofMillis(2500));
        TOPOLOGIES.put("stream_stream_uneven", builder -> write(
            stream(builder, "left").leftJoin(stream(builder, "right"), KafkaTopologies::pair, uneven, withStream)));
    }

    private static void addTables() {
        TOPOLOGIES.put("table", builder -> write(table(builder, "left").toStream()));
        TOPOLOGIES.put("table_filter", builder -> write(
            table(builder, "left").filter((key, row) -> amount(row) > 8).toStream()));
        TOPOLOGIES.put("table_inner", builder -> write(
            table(builder, "left").join(table(builder, "right"), KafkaTopologies::pair).toStream()));
        TOPOLOGIES.put("table_left", builder -> write(
            table(builder, "left").leftJoin(table(builder, "right"), KafkaTopologies::pair).toStream()));
        TOPOLOGIES.put("table_outer", builder -> write(
            table(builder, "left").outerJoin(table(builder, "right"), KafkaTopologies::pair).toStream()));
        TOPOLOGIES.put("foreign_inner", builder -> write(table(builder, "left")
            .join(table(builder, "right"), KafkaTopologies::shop, KafkaTopologies::pair, stored()).toStream()));
        TOPOLOGIES.put("foreign_left", builder -> write(table(builder, "left")
            .leftJoin(table(builder, "right"), KafkaTopologies::shop, KafkaTopologies::pair, stored()).toStream()));
        TOPOLOGIES.put("table_count", builder -> writeCounts(
            table(builder, "left").groupBy((key, row) -> KeyValue.pair(shop(row), row), grouped()).count()));
        TOPOLOGIES.put("table_sum", builder -> write(
            table(builder, "left").groupBy((key, row) -> KeyValue.pair(shop(row), row), grouped()).aggregate(
                () -> (JsonNode) object("total", 0L),
                (key, row, sum) -> object("total", sum.get("total").asLong() + amount(row)),
                (key, row, sum) -> object("total", sum.get("total").asLong() - amount(row)),
                stored()).toStream()));
        TOPOLOGIES.put("filtered_table_count", builder -> writeCounts(
            table(builder, "left").filter((key, row) -> amount(row) > 8)
                .groupBy((key, row) -> KeyValue.pair(shop(row), row), grouped()).count()));
    }

    private static KStream<String, JsonNode> stream(StreamsBuilder builder, String topic) {
        return builder.stream(topic, Consumed.with(KEYS, VALUES));
    }

    private static KTable<String, JsonNode> table(StreamsBuilder builder, String topic) {
        return builder.table(topic, Consumed.with(KEYS, VALUES), stored());
    }

    private static <S extends StateStore>
        Materialized<String, JsonNode, S> stored() {
        return Materialized.with(KEYS, VALUES);
    }

    /** Long enough that a window is still there when it is written: the default is its size and the grace period. */
    private static <S extends StateStore> Materialized<String, Long, S> kept() {
        return Materialized.<String, Long, S>with(KEYS, Serdes.Long()).withRetention(Duration.ofHours(1));
    }

    private static Grouped<String, JsonNode> grouped() {
        return Grouped.with(KEYS, VALUES);
    }

    private static KGroupedStream<String, JsonNode> byShop(
        KStream<String, JsonNode> stream) {
        return stream.groupBy((key, row) -> row == null ? null : shop(row), grouped());
    }

    private static void write(KStream<String, JsonNode> rows) {
        rows.map((key, row) -> KeyValue.pair(key == null ? "null" : JSON.valueToTree(key).toString(), row))
            .to(OUT, Produced.with(KEYS, VALUES));
    }

    private static void writeCounts(KTable<String, Long> counts) {
        write(counts.toStream().mapValues(count -> count == null ? null : object("count", count)));
    }

    private static <W extends Windowed<String>> void writeWindows(KTable<W, Long> counts) {
        counts.toStream().map((key, count) -> KeyValue.pair(
            object("key", key.key()).put("window_start", key.window().start()).put("window_end", key.window().end())
                .toString(),
            (JsonNode) (count == null ? null : object("count", count)))).to(OUT, Produced.with(KEYS, VALUES));
    }

    private static String shop(JsonNode row) {
        return row.get("shop").asText();
    }

    private static long amount(JsonNode row) {
        return row.get("amount").asLong();
    }

    private static JsonNode add(JsonNode sum, JsonNode row) {
        return object("shop", shop(row)).put("amount", amount(sum) + amount(row));
    }

    private static JsonNode pair(JsonNode left, JsonNode right) {
        ObjectNode both = JSON.createObjectNode();
        both.set("shop_left", left == null ? null : left.get("shop"));
        both.set("amount_left", left == null ? null : left.get("amount"));
        both.set("shop_right", right == null ? null : right.get("shop"));
        both.set("amount_right", right == null ? null : right.get("amount"));
        return both;
    }

    private static ObjectNode object(String name, Object value) {
        return JSON.createObjectNode().set(name, JSON.valueToTree(value));
    }

    private static JsonNode parse(String text) {
        try {
            return JSON.readTree(text);
        } catch (IOException error) {
            throw new IllegalArgumentException(error);
        }
    }

    public static void main(String[] arguments) throws IOException {
        Map<String, String> names = new LinkedHashMap<>();
        Map<String, List<String[]>> records = new LinkedHashMap<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = line.split("\t", -1);
            names.put(fields[0], fields[1]);
            records.computeIfAbsent(fields[0], name -> new ArrayList<>()).add(fields);
        }
        for (Map.Entry<String, List<String[]>> scenario : records.entrySet()) {
            run(scenario.getKey(), names.get(scenario.getKey()), scenario.getValue(), arguments[0]);
        }
        System.out.flush();
    }

    private static void run(String scenario, String topology, List<String[]> records, String directory) {
        StreamsBuilder builder = new StreamsBuilder();
        TOPOLOGIES.get(topology).accept(builder);
        Properties settings = new Properties();
        settings.put("application.id", scenario);
        settings.put("bootstrap.servers", "none:1");
        settings.put("state.dir", directory);
        settings.put("statestore.cache.max.bytes", "0");
        // Kafka Streams looks for closed windows once in a second of its own clock; here, at every record.
        settings.put("__emit.interval.ms.kstreams.windowed.aggregation__", "0");
        settings.put("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", "0");
        try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(), settings, Instant.EPOCH)) {
            Map<String, TestInputTopic<String, String>> inputs = new LinkedHashMap<>();
            TestOutputTopic<String, String> output =
                driver.createOutputTopic(OUT, new StringDeserializer(), new StringDeserializer());
            for (int number = 0; number < records.size(); number++) {
                String[] fields = records.get(number);
                String value = fields[5].isEmpty() ? null : fields[5];
                inputs.computeIfAbsent(fields[2], topic ->
                    driver.createInputTopic(topic, new StringSerializer(), new StringSerializer()))
                    .pipeInput(fields[3], value, Long.parseLong(fields[4]));
                for (TestRecord<String, String> record : output.readRecordsToList()) {
                    System.out.println("[" + JSON.valueToTree(scenario) + "," + number + "," + record.key() + ","
                        + record.value() + "," + record.timestamp() + "]");
                }
            }
        }
    }
}
