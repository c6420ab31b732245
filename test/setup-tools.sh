#!/usr/bin/env bash
# Installs what some tests use beyond Node and npm. Changes nothing where it is there.
#
# usage: setup-tools.sh GROUP…      exit 0 when every program of the groups is there, else 1 with the reason
#
#     container   Debian's tools that build and run an image without an engine; as root on Debian
#     metrics     Prometheus and promtool, unpacked from Debian's package into build/tools: nothing is installed or started
#     sharing     Debian's Redis server; as root on Debian. Tests start servers of their own, the service is not needed
#     compose     Docker Compose of Debian, whose `config` wants no engine, and HAProxy; as root on Debian. Nothing is started
#     console     Chromium without its windows, for the tests of the console in a browser; as root on Debian
#     examples    nginx and Caddy of Debian, as root on Debian, whose services are not needed; Python with the
#                 packages of examples/python/requirements.txt, in build/tools/examples-python
#     judges      Python with LiteLLM and schemathesis (test/judges/requirements.txt), in build/tools/judges-python; 470 MB
#     clients     client libraries and coding agents of npm (test/clients/packages.json), in build/tools/clients; 913 MB
#     exports     Debian's Postgres, as root on Debian, whose service is not needed; Python with ClickHouse's engine, pyarrow,
#                 the AWS command line and an S3 (test/exports/requirements.txt), in build/tools/exports-python; 1 GB
#     deploy      Helm, built from source by the Go of this machine into build/tools; minutes
set -euo pipefail
cd "$(dirname "$0")/.."

# Per group: the programs that are looked for, the packages that bring them, whether root is wanted to use them.
declare -A PROGRAMS=([console]='chromium-headless-shell' [container]='buildah mmdebstrap unshare nsenter setpriv' [sharing]='redis-server'
  [compose]='docker-compose haproxy' [examples]='nginx caddy python3' [judges]='python3' [clients]='npm'
  [exports]='pg_ctlcluster psql python3')
declare -A PACKAGES=([console]='chromium-headless-shell' [container]='buildah mmdebstrap util-linux' [sharing]='redis-server'
  [compose]='docker-compose haproxy' [examples]='nginx caddy python3-venv'
  [judges]='python3-venv' [clients]='npm' [exports]='postgresql python3-venv')
# Python packages, each list in an environment of its own: build/tools/GROUP-python. One pip, in build/tools/pip, installs them all:
# to make one for each takes 3 s of CPU.
declare -A PYTHON_REQUIREMENTS=([examples]=examples/python/requirements.txt [judges]=test/judges/requirements.txt
  [exports]=test/exports/requirements.txt)
# The list names all that is wanted.
declare -A PIP_OPTIONS=([judges]=--no-deps [exports]=--no-deps)
PIP_SECONDS_MAX=600
# Packages of npm, each list in a folder of its own: build/tools/GROUP. None of their scripts is run.
declare -A NPM_LISTS=([clients]=test/clients/packages.json)
NPM_SECONDS_MAX=180
# Packages that are unpacked for their programs alone, which end up in build/tools.
declare -A UNPACKED=([metrics]='prometheus promtool')
declare -A AS_ROOT=([container]=yes)
# Go commands, with the version that the tests were written with.
declare -A GO_COMMANDS=([deploy]='helm.sh/helm/v3/cmd/helm@v3.22.0')
GO_BUILD_SECONDS_MAX=900

log=$(mktemp)
trap 'rm -f "$log"' EXIT
has() { PATH=$PATH:/usr/sbin:$PWD/build/tools command -v "$1" > /dev/null; }
refuse() { echo "$1"; exit 1; }
# Debian's package of the name of the first program, for the programs of its usr/bin.
unpack() {
  has apt-get && has dpkg-deb || refuse "no apt-get and dpkg-deb to unpack $1"
  local folder=$PWD/build/tools/unpacked
  mkdir -p "$folder"
  { [ "$(id -u)" -ne 0 ] || apt-get update; } > "$log" 2>&1 || refuse "$(tail -n 3 "$log")"
  (cd "$folder" && apt-get download "$1" && dpkg-deb -x "$1"_*.deb .) > "$log" 2>&1 || refuse "$(tail -n 3 "$log")"
  for program in "$@"; do cp "$folder/usr/bin/$program" build/tools/; done
  rm -rf "$folder"
}

missing=()
for group in "$@"; do
  [ -n "${PROGRAMS[$group]:-}${UNPACKED[$group]:-}${GO_COMMANDS[$group]:-}" ] || refuse "no group $group: want ${!PROGRAMS[*]} ${!UNPACKED[*]} ${!GO_COMMANDS[*]}"
  [ -z "${AS_ROOT[$group]:-}" ] || [ "$(id -u)" -eq 0 ] || refuse 'this is not root'
  for program in ${PROGRAMS[$group]:-}; do
    has "$program" && continue
    read -ra packages <<< "${PACKAGES[$group]}"
    missing+=("${packages[@]}")
    break
  done
  for program in ${UNPACKED[$group]:-}; do
    has "$program" && continue
    read -ra programs <<< "${UNPACKED[$group]}"
    unpack "${programs[@]}"
    break
  done
  for package in ${GO_COMMANDS[$group]:-}; do
    program=$(basename "${package%@*}")
    has "$program" && continue
    has go || refuse "no go to build $program"
    GOBIN=$PWD/build/tools timeout "$GO_BUILD_SECONDS_MAX" go install "$package" > "$log" 2>&1 || refuse "$(tail -n 3 "$log")"
  done
done

if [ ${#missing[@]} -gt 0 ]; then
  has apt-get || refuse "no apt-get to install ${missing[*]}"
  [ "$(id -u)" -eq 0 ] || refuse "not root, to install ${missing[*]}"
  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"; } \
    > "$log" 2>&1 || refuse "$(tail -n 3 "$log")"
fi

for group in "$@"; do
  list=${PYTHON_REQUIREMENTS[$group]:-}
  [ -n "$list" ] || continue
  folder=build/tools/$group-python
  # Made whole or not at all: the list is copied last. Python compiles what a test imports, a small part of all.
  ! cmp -s "$list" "$folder/installed.txt" || continue
  rm -rf "$folder"
  { mkdir -p build/tools && { [ -x build/tools/pip/bin/pip ] || python3 -m venv build/tools/pip; } \
    && python3 -m venv --without-pip "$folder" \
    && timeout "$PIP_SECONDS_MAX" build/tools/pip/bin/pip --python "$folder/bin/python" install --quiet --no-compile --disable-pip-version-check ${PIP_OPTIONS[$group]:-} -r "$list" && cp "$list" "$folder/installed.txt"; } \
    > "$log" 2>&1 || refuse "$(tail -n 3 "$log")"
done

for group in "$@"; do
  list=${NPM_LISTS[$group]:-}
  [ -n "$list" ] || continue
  folder=build/tools/$group
  ! cmp -s "$list" "$folder/installed.json" || continue
  rm -rf "$folder"
  { mkdir -p "$folder" && cp "$list" "$folder/package.json" \
    && timeout "$NPM_SECONDS_MAX" npm install --prefix "$folder" --ignore-scripts --no-audit --no-fund && cp "$list" "$folder/installed.json"; } \
    > "$log" 2>&1 || refuse "$(tail -n 3 "$log")"
done
