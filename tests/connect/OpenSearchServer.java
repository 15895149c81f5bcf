import org.codelibs.opensearch.runner.OpenSearchRunner;

/** One OpenSearch server: its directory and its port are the arguments. It ends when its standard input does. */
public class OpenSearchServer {
    public static void main(String[] args) throws Exception {
        OpenSearchRunner runner = new OpenSearchRunner();
        runner.onBuild((number, settings) -> {
            settings.put("network.host", "127.0.0.1");
            settings.put("http.port", args[1]);
            settings.put("transport.port", "0");
            settings.put("cluster.routing.allocation.disk.threshold_enabled", "false");
        });
        runner.build(OpenSearchRunner.newConfigs().basePath(args[0]).numOfNode(1).clusterName("tests"));
        System.out.println("ready");
        while (System.in.read() >= 0) {}
        System.exit(0);
    }
}
