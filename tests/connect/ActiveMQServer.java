import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Collections;
import javax.jms.BytesMessage;
import javax.jms.Connection;
import javax.jms.Destination;
import javax.jms.MapMessage;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TextMessage;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.security.AuthenticationUser;
import org.apache.activemq.security.SimpleAuthenticationPlugin;

/**
 * ActiveMQ with STOMP on a port, and a JMS client of it. Arguments: a directory and the port. Lines of the input:
 *
 * <pre>
 * send queue text|bytes|map COUNT    prints "sent"
 * take queue COUNT                   prints one line for each message, then "end"
 * </pre>
 */
public class ActiveMQServer {
    public static void main(String[] arguments) throws Exception {
        BrokerService broker = new BrokerService();
        broker.setBrokerName("tests");
        broker.setDataDirectoryFile(new File(arguments[0]));
        broker.setUseJmx(false);
        broker.setUseShutdownHook(false);
        AuthenticationUser user = new AuthenticationUser("ottla", "hush-hush", "users");
        broker.setPlugins(new SimpleAuthenticationPlugin[] {new SimpleAuthenticationPlugin(Collections.singletonList(user))});
        broker.addConnector("stomp://127.0.0.1:" + arguments[1]);
        broker.start();
        broker.waitUntilStarted();
        ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory("ottla", "hush-hush", "vm://tests?create=false");
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
        broker.stop();
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
