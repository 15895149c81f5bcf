import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;

import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools, one after the other, in one JVM: most of the time of a tool is the start of its JVM.
 *
 * A request on standard input: the number of words, the words (the class and its arguments), and the standard input of
 * the tool. An answer on standard output: the exit status, the standard output and the standard error of the tool.
 * Numbers have four bytes; everything else is a length and its bytes. Tools keep state in static fields, so each run
 * loads their classes again, from the jar that is the argument. The libraries that they use are on the class path and
 * stay loaded.
 */
public class ToolServer {
    private static final class Ended extends Error {
        Ended() {
            super("the tool has ended", null, false, false);
        }
    }

    private static final int NOT_ENDED = Integer.MIN_VALUE;

    private static volatile int status;

    public static void main(String[] arguments) throws Exception {
        DataInputStream requests = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        URL tools = Path.of(arguments[0]).toUri().toURL();
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        Exit.setShutdownHookAdder((name, hook) -> { });
        while (true) {
            String[] words;
            try {
                words = new String[requests.readInt()];
            } catch (EOFException closed) {
                System.exit(0);
                return;
            }
            for (int number = 0; number < words.length; number++) {
                words[number] = new String(read(requests), StandardCharsets.UTF_8);
            }
            System.setIn(new ByteArrayInputStream(read(requests)));
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            ByteArrayOutputStream complained = new ByteArrayOutputStream();
            System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(complained, true, StandardCharsets.UTF_8));
            run(tools, words);
            System.out.flush();
            System.err.flush();
            answers.writeInt(status);
            write(answers, printed.toByteArray());
            write(answers, complained.toByteArray());
            answers.flush();
        }
    }

    private static void run(URL tools, String[] words) throws IOException {
        status = NOT_ENDED;
        String[] arguments = java.util.Arrays.copyOfRange(words, 1, words.length);
        try (URLClassLoader loader = new URLClassLoader(new URL[] {tools}, ToolServer.class.getClassLoader())) {
            Thread.currentThread().setContextClassLoader(loader);
            loader.loadClass(words[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
            end(0);
        } catch (Ended ended) {
            return;
        } catch (InvocationTargetException failure) {
            if (!(failure.getCause() instanceof Ended)) {
                failure.getCause().printStackTrace();
                status = 1;
            }
        } catch (ReflectiveOperationException failure) {
            failure.printStackTrace();
            status = 1;
        }
    }

    /** The first status counts: a tool that catches every error also catches Ended, and then ends a second time. */
    private static void end(int code) {
        if (status == NOT_ENDED) {
            status = code;
        }
        throw new Ended();
    }

    private static byte[] read(DataInputStream requests) throws IOException {
        return requests.readNBytes(requests.readInt());
    }

    private static void write(DataOutputStream answers, byte[] bytes) throws IOException {
        answers.writeInt(bytes.length);
        answers.write(bytes);
    }
}
