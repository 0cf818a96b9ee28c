#!/usr/bin/env bash
# Fetches Apache Kafka for the tests into `servers` in the build folder, from Maven (46 jars, 44 MB), with what makes it start quickly:
# a formatted data directory, and an archive of its loaded classes (49 MB), which halves the 5 s that it needs. A version that is there
# is used again. Needs a JRE and Maven, which setup-servers.sh installs.
set -euo pipefail
cd "$(dirname "$0")/.."

kafka=4.3.0
slf4j=1.7.36

target=${CARGO_TARGET_DIR:-$(cargo metadata --no-deps --offline --format-version 1 | grep -o '"target_directory":"[^"]*"' | cut -d'"' -f4)}
mkdir -p "$target/servers"
# The archive of classes names the jars by their whole path.
servers=$(readlink -f "$target/servers")
place=$servers/kafka_$kafka

# `kafka` is a link to the version in use, made when that version is whole.
[ "$(readlink "$servers/kafka")" != "kafka_$kafka" ] || [ ! -d "$place/formatted" ] || exit 0

echo "fetching Kafka $kafka into $servers (nothing is installed)"
work=$(mktemp -d "$servers/fetching-XXXXXX")
trap 'rm -rf "$work"' EXIT
cat >"$work/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>belfry</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$kafka</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>$slf4j</version></dependency>
  </dependencies>
</project>
POM
mvn -q -B -f "$work/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/lib"
rm -rf "$place"
mkdir "$place"
mv "$work/lib" "$place/lib"

# As `testbed` runs it: the same jars in the same order, or the archive is not used.
classpath=$(printf '%s\n' "$place"/lib/*.jar | LC_ALL=C sort | paste -sd:)
cat >"$work/server.properties" <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:1
listeners=CLIENT://127.0.0.1:0,CONTROLLER://127.0.0.1:0
listener.security.protocol.map=CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=CLIENT
log.dirs=$work/data
PROPERTIES
# The user of the tests, for SCRAM; for PLAIN, `testbed` has it in its configuration. Passwords of SCRAM lie in the data.
java -cp "$classpath" kafka.tools.StorageTool format -t belfry-tests-cluster-w -c "$work/server.properties" \
    --add-scram 'SCRAM-SHA-256=[name=belfry,password=a-password]' \
    --add-scram 'SCRAM-SHA-512=[name=belfry,password=a-password]' >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
cp -r "$work/data" "$work/formatted"

# Runs it once, until it is up, and ends it: then the archive is written.
port=$(/usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
sed -i "s/^controller.quorum.voters=.*/controller.quorum.voters=1@127.0.0.1:$port/; s/CONTROLLER:\/\/127.0.0.1:0/CONTROLLER:\/\/127.0.0.1:$port/" \
    "$work/server.properties"
java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ArchiveClassesAtExit="$work/classes.jsa" -cp "$classpath" \
    kafka.Kafka "$work/server.properties" >"$work/log" 2>&1 &
server=$!
for _ in $(seq 600); do
    ! grep -q 'Kafka Server started' "$work/log" || break
    kill -0 "$server" 2>/dev/null || { cat "$work/log" >&2; exit 1; }
    sleep 0.1
done
kill "$server"
wait "$server" || true
mv "$work/classes.jsa" "$place/classes.jsa"
mv "$work/formatted" "$place/formatted"
ln -sfn "kafka_$kafka" "$servers/kafka"
