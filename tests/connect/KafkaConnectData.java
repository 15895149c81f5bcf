import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;
import org.apache.kafka.connect.storage.StringConverter;
import org.apache.kafka.connect.transforms.Transformation;

/**
 * Kafka's transformations and converters. Standard input has one JSON object a line, standard output the answer to each:
 * a JSON value, or an object with the field "error". Keys, values and headers travel as JsonConverter writes them.
 */
public final class KafkaConnectData {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String TOPIC = "t";

    public static void main(String[] arguments) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder answers = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode answer;
            try {
                answer = answer(JSON.readTree(line));
            } catch (Exception | StackOverflowError error) {
                answer = JSON.createObjectNode().put("error", error.toString());
            }
            answers.append(answer).append('\n');
        }
        System.out.write(answers.toString().getBytes(StandardCharsets.UTF_8));
        System.out.flush();
    }

    private static JsonNode answer(JsonNode request) throws Exception {
        switch (request.get("kind").asText()) {
            case "transform":
                return transform(request);
            case "json":
                return convertJson(request);
            case "parse":
                return parse(request.get("text").asText());
            default:
                return show(request.get("value"));
        }
    }

    @SuppressWarnings("unchecked")
    private static JsonNode transform(JsonNode request) throws Exception {
        JsonConverter converter = converter(Map.of("schemas.enable", "true"));
        SchemaAndValue key = read(converter, request.get("key"));
        SchemaAndValue value = read(converter, request.get("value"));
        ConnectHeaders headers = new ConnectHeaders();
        for (JsonNode header : request.get("headers")) {
            headers.add(header.get(0).asText(), read(converter, header.get(1)));
        }
        Long timestamp = request.get("timestamp").isNull() ? null : request.get("timestamp").asLong();
        SinkRecord record = new SinkRecord(TOPIC, 3, key.schema(), key.value(), value.schema(), value.value(), 5,
            timestamp, TimestampType.CREATE_TIME, headers);
        String name = "org.apache.kafka.connect.transforms." + request.get("transformation").asText();
        Transformation<SinkRecord> transformation =
            (Transformation<SinkRecord>) Class.forName(name).getDeclaredConstructor().newInstance();
        transformation.configure(settings(request.get("config")));
        SinkRecord changed = transformation.apply(record);
        if (changed == null) {
            return JSON.nullNode();
        }
        ObjectNode answer = JSON.createObjectNode().put("topic", changed.topic());
        answer.set("key", write(converter, new SchemaAndValue(changed.keySchema(), changed.key())));
        answer.set("value", write(converter, new SchemaAndValue(changed.valueSchema(), changed.value())));
        ArrayNode written = answer.putArray("headers");
        for (Header header : changed.headers()) {
            written.addArray().add(header.key())
                .add(write(converter, new SchemaAndValue(header.schema(), header.value())));
        }
        return answer;
    }

    /** Reads a message with the given settings and writes it again. */
    private static JsonNode convertJson(JsonNode request) throws Exception {
        SchemaAndValue found = read(converter(settings(request.get("from"))), request.get("message"));
        return write(converter(settings(request.get("to"))), found);
    }

    private static JsonNode parse(String text) throws Exception {
        try (SimpleHeaderConverter headers = new SimpleHeaderConverter()) {
            SchemaAndValue found = headers.toConnectHeader(TOPIC, "h", text.getBytes(StandardCharsets.UTF_8));
            return found == null ? JSON.nullNode() : write(converter(Map.of("schemas.enable", "true")), found);
        }
    }

    /** The text of a value: as the header converter writes it, and as the string converter does. */
    private static JsonNode show(JsonNode value) throws Exception {
        SchemaAndValue found = read(converter(Map.of("schemas.enable", "true")), value);
        ArrayNode texts = JSON.createArrayNode();
        try (SimpleHeaderConverter headers = new SimpleHeaderConverter()) {
            texts.add(text(headers.fromConnectHeader(TOPIC, "h", found.schema(), found.value())));
        }
        StringConverter strings = new StringConverter();
        strings.configure(Map.of("converter.type", "value"));
        return texts.add(text(strings.fromConnectData(TOPIC, found.schema(), found.value())));
    }

    private static String text(byte[] data) {
        return data == null ? null : new String(data, StandardCharsets.UTF_8);
    }

    private static JsonConverter converter(Map<String, String> settings) {
        JsonConverter converter = new JsonConverter();
        converter.configure(settings, false);
        return converter;
    }

    private static Map<String, String> settings(JsonNode config) {
        Map<String, String> settings = new HashMap<>();
        config.fields().forEachRemaining(each -> settings.put(each.getKey(), each.getValue().asText()));
        return settings;
    }

    private static SchemaAndValue read(JsonConverter converter, JsonNode text) {
        return converter.toConnectData(TOPIC, text.isNull() ? null : text.asText().getBytes(StandardCharsets.UTF_8));
    }

    private static JsonNode write(JsonConverter converter, SchemaAndValue found) {
        byte[] data = converter.fromConnectData(TOPIC, found.schema(), found.value());
        return data == null ? JSON.nullNode() : JSON.getNodeFactory().textNode(text(data));
    }
}
