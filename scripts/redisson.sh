#!/usr/bin/env bash
# Compiles the Java peer (integration/redisson/peer) against the given versions
# of Redisson and prints the folder with the results. Needs a JDK 17 or newer and
# Maven; installs them where apt-get is at hand. What is compiled already for the
# same source is used again.
#
#   scripts/redisson.sh [VERSION...]   default: 4.7.0 3.52.0
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

peer=$PWD/integration/redisson/peer
home=$PWD/.cache/redisson
[ $# -gt 0 ] || set -- 4.7.0 3.52.0

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

here() {
  command -v javac >/dev/null && command -v mvn >/dev/null
}

if ! here && command -v apt-get >/dev/null; then
  {
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive \
      apt-get install -qq -y --no-install-recommends default-jdk-headless maven
  } >&2
fi
if ! here; then
  echo "missing: javac or mvn (a JDK 17 or newer, and Maven)" >&2
  exit 1
fi

sum=$(cat "$peer/pom.xml" "$peer/src/main/java/holdfast/Peer.java" | sha256sum | cut -d' ' -f1)
for version; do
  dir=$home/$version
  [ "$(cat "$dir/built" 2>/dev/null)" != "$sum" ] || continue
  rm -rf "$dir"
  mkdir -p "$dir"
  mvn -q -B -f "$peer/pom.xml" -Dredisson.version="$version" \
    dependency:build-classpath -Dmdep.outputFile="$dir/classpath" >&2
  javac -d "$dir" -cp "$(cat "$dir/classpath")" "$peer"/src/main/java/holdfast/*.java
  echo "$sum" >"$dir/built"
done
echo "$home"
