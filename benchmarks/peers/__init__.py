"""The programs that are compared, as child processes of a benchmark or a test.

broker_process.py         a broker as a child process: start it until it answers, read its CPU and memory, stop it
cluster_processes.py      three brokers as child processes
ottla_broker.py           Ottla, started with `ottla up`
ottla_cluster.py          three Ottla brokers and the ZooKeeper they need
apache_kafka.py           Apache Kafka: its jars, a broker, and its command line tools
apache_kafka_cluster.py   three Apache Kafka brokers, each of them a controller too
tool_server.py            one JVM that runs many of those tools, and ToolServer.java, the program in it
"""
