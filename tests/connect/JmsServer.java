import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Array;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Collections;
import java.util.List;
import javax.jms.BytesMessage;
import javax.jms.Connection;
import javax.jms.ConnectionFactory;
import javax.jms.Destination;
import javax.jms.MapMessage;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TextMessage;

/**
 * A JMS broker with STOMP, and a JMS client of it. Arguments: ActiveMQ's directory and the URL of its STOMP port, or the
 * configuration file of Artemis. Lines of the input:
 *
 * <pre>
 * send queue text|bytes|map COUNT [FIRST]    prints "sent"
 * take queue COUNT                           prints one line for each message, then "end"
 * </pre>
 *
 * The classes of the brokers are found by name, because only one of the two is in the class path.
 */
public class JmsServer {
    public static void main(String[] arguments) throws Exception {
        ConnectionFactory factory =
            arguments.length == 2 ? startClassic(new File(arguments[0]), arguments[1]) : startArtemis(new File(arguments[0]));
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.out.println("ready");
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            try (Connection connection = factory.createConnection()) {
                connection.start();
                Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
                boolean isTopic = words[1].startsWith("topic:");
                String name = words[1].substring(words[1].indexOf(':') + 1);
                Destination destination = isTopic ? session.createTopic(name) : session.createQueue(name);
                if (words[0].equals("send")) {
                    MessageProducer producer = session.createProducer(destination);
                    int first = words.length > 4 ? Integer.parseInt(words[4]) : 0;
                    for (int n = first; n < first + Integer.parseInt(words[3]); n++) {
                        producer.send(make(session, words[2], n));
                    }
                    System.out.println("sent");
                } else {
                    MessageConsumer consumer = session.createConsumer(destination);
                    for (int n = 0; n < Integer.parseInt(words[2]); n++) {
                        Message found = consumer.receive(60000);
                        System.out.println(found == null ? "missing" : show(found));
                    }
                    Message more = consumer.receive(200);
                    if (more != null) {
                        System.out.println("too many: " + show(more));
                    }
                    System.out.println("end");
                }
            }
            System.out.flush();
        }
        System.exit(0);
    }

    private static ConnectionFactory startClassic(File directory, String url) throws Exception {
        Class<?> kind = Class.forName("org.apache.activemq.broker.BrokerService");
        Object broker = kind.getConstructor().newInstance();
        kind.getMethod("setBrokerName", String.class).invoke(broker, "tests");
        kind.getMethod("setDataDirectoryFile", File.class).invoke(broker, directory);
        kind.getMethod("setUseJmx", boolean.class).invoke(broker, false);
        kind.getMethod("setUseShutdownHook", boolean.class).invoke(broker, false);
        Object user = make("org.apache.activemq.security.AuthenticationUser", "ottla", "hush-hush", "users");
        Object plugins = Array.newInstance(Class.forName("org.apache.activemq.broker.BrokerPlugin"), 1);
        Class<?> plugin = Class.forName("org.apache.activemq.security.SimpleAuthenticationPlugin");
        Array.set(plugins, 0, plugin.getConstructor(List.class).newInstance(Collections.singletonList(user)));
        kind.getMethod("setPlugins", plugins.getClass()).invoke(broker, plugins);
        kind.getMethod("addConnector", String.class).invoke(broker, url);
        kind.getMethod("start").invoke(broker);
        kind.getMethod("waitUntilStarted").invoke(broker);
        return (ConnectionFactory)
            make("org.apache.activemq.ActiveMQConnectionFactory", "ottla", "hush-hush", "vm://tests?create=false");
    }

    private static ConnectionFactory startArtemis(File configuration) throws Exception {
        Class<?> kind = Class.forName("org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ");
        Object broker = kind.getConstructor().newInstance();
        kind.getMethod("setConfigResourcePath", String.class).invoke(broker, configuration.toURI().toString());
        kind.getMethod("start").invoke(broker);
        return (ConnectionFactory)
            make("org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory", "vm://0", "ottla", "hush-hush");
    }

    private static Object make(String name, String first, String second, String third) throws Exception {
        return Class.forName(name).getConstructor(String.class, String.class, String.class).newInstance(first, second, third);
    }

    private static Message make(Session session, String kind, int n) throws Exception {
        Message made;
        if (kind.equals("text")) {
            made = session.createTextMessage("text " + n + " \u00fc \ud83d\ude00");
        } else if (kind.equals("bytes")) {
            BytesMessage bytes = session.createBytesMessage();
            bytes.writeBytes(new byte[] {0, 1, (byte) n, 0, -1, 10});
            made = bytes;
        } else {
            MapMessage map = session.createMapMessage();
            map.setString("name", "n" + n);
            map.setInt("number", n);
            map.setLong("long", 1L << 40);
            map.setBoolean("yes", true);
            map.setDouble("half", 0.5);
            made = map;
        }
        made.setStringProperty("colour", "blue:green");
        made.setIntProperty("n", n);
        made.setJMSCorrelationID("c" + n);
        made.setJMSType("kind");
        made.setJMSReplyTo(session.createQueue("answers"));
        return made;
    }

    private static String show(Message message) throws Exception {
        StringBuilder shown = new StringBuilder();
        if (message instanceof TextMessage) {
            String text = ((TextMessage) message).getText();
            shown.append("text ").append(Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8)));
        } else if (message instanceof BytesMessage) {
            byte[] data = new byte[(int) ((BytesMessage) message).getBodyLength()];
            ((BytesMessage) message).readBytes(data);
            shown.append("bytes ").append(Base64.getEncoder().encodeToString(data));
        } else if (message instanceof MapMessage) {
            shown.append("map ").append(Collections.list(((MapMessage) message).getMapNames()).stream().sorted().map(
                name -> {
                    try {
                        Object value = ((MapMessage) message).getObject((String) name);
                        return name + "=" + value.getClass().getSimpleName() + ":" + value;
                    } catch (Exception error) {
                        throw new RuntimeException(error);
                    }
                }).collect(java.util.stream.Collectors.joining(",")));
        }
        shown.append(" mode=").append(message.getJMSDeliveryMode()).append(" priority=").append(message.getJMSPriority());
        shown.append(" correlation=").append(message.getJMSCorrelationID()).append(" expires=").append(message.getJMSExpiration() > 0);
        for (Object name : new java.util.TreeSet<Object>(Collections.list(message.getPropertyNames()))) {
            shown.append(' ').append(name).append('=').append(message.getObjectProperty((String) name));
        }
        return shown.toString();
    }
}
