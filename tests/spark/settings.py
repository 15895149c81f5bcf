"""Settings of Spark for tests. Drivers that tests start import this module, so it imports nothing itself."""

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options for a JVM that lives for seconds, and would spend half of them on optimising code that hardly runs."""

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.sql.shuffle.partitions": "2",
    "spark.task.maxFailures": "1",
}
