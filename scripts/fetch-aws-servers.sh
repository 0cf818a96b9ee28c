#!/usr/bin/env bash
# Fetches the servers that stand for AWS in tests, into `servers` in the build folder: ElasticMQ (SQS) with its libraries, from Maven
# (42 MB), and moto (SQS, Kinesis, STS) in a Python environment of its own, by pip (316 MB). A version that is there is used again.
# Needs a JRE, Maven and python3-venv, which setup-servers.sh installs.
set -euo pipefail
cd "$(dirname "$0")/.."

elasticmq=1.6.9
moto=5.2.5

target=${CARGO_TARGET_DIR:-$(cargo metadata --no-deps --offline --format-version 1 | grep -o '"target_directory":"[^"]*"' | cut -d'"' -f4)}
mkdir -p "$target/servers"
# The Python environment has its own place written into it.
servers=$(readlink -f "$target/servers")

# `NAME` is a link to the version in use, made when that version is whole.
is_there() { # NAME VERSION
    [ "$(readlink "$servers/$1")" = "$1_$2" ] && [ -d "$servers/$1_$2" ]
}

fetch_elasticmq() {
    cat >"$work/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>belfry</groupId><artifactId>elasticmq</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.elasticmq</groupId><artifactId>elasticmq-server_3</artifactId><version>$elasticmq</version></dependency>
  </dependencies>
</project>
POM
    mvn -q -B -f "$work/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/lib"
    rm -rf "$servers/elasticmq_$elasticmq"
    mv "$work/lib" "$servers/elasticmq_$elasticmq"
    ln -sfn "elasticmq_$elasticmq" "$servers/elasticmq"
}

# Made where it stays, and linked when it is whole.
fetch_moto() {
    rm -rf "$servers/moto_$moto"
    /usr/bin/python3 -m venv "$servers/moto_$moto"
    "$servers/moto_$moto/bin/pip" install -q --disable-pip-version-check "moto[server]==$moto"
    ln -sfn "moto_$moto" "$servers/moto"
}

work=$(mktemp -d "$servers/fetching-XXXXXX")
trap 'rm -rf "$work"' EXIT
if ! is_there elasticmq "$elasticmq"; then
    echo "fetching ElasticMQ $elasticmq into $servers (nothing is installed)"
    fetch_elasticmq
fi
if ! is_there moto "$moto"; then
    echo "fetching moto $moto into $servers (nothing is installed)"
    fetch_moto
fi
