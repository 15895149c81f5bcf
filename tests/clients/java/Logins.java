import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.concurrent.ExecutionException;

import org.apache.kafka.clients.admin.Admin;

/**
 * The Java client for the tests of logins. Each argument is a file of its settings. For each of them one line on
 * standard output: "in" if the client can connect, otherwise its exceptions, from the outermost to the cause.
 */
public class Logins {
    public static void main(String[] files) throws Exception {
        for (String file : files) {
            Properties settings = new Properties();
            try (Reader reader = Files.newBufferedReader(Path.of(file))) {
                settings.load(reader);
            }
            System.out.println(connect(settings).replaceAll("\\s+", " "));
        }
        System.exit(0);
    }

    private static String connect(Properties settings) throws InterruptedException {
        try (Admin admin = Admin.create(settings)) {
            admin.describeCluster().nodes().get();
            return "in";
        } catch (ExecutionException failure) {
            return describe(failure.getCause());
        } catch (RuntimeException failure) {
            return describe(failure);
        }
    }

    private static String describe(Throwable failure) {
        StringBuilder found = new StringBuilder();
        for (Throwable each = failure; each != null; each = each.getCause()) {
            found.append(each.getClass().getSimpleName()).append(": ").append(each.getMessage()).append(" | ");
        }
        return found.toString();
    }
}
