#!/usr/bin/env bash
# `npm test` in the image's own system: Debian 13 and Node 24, over the base image that base-image.sh makes. As
# root; as long as `npm test`. What is tested is the last commit, with the packages that `npm ci` installed here: of
# those with native code each has its binaries for all releases of Node and this kind of system.
#
# usage: suite.sh FOLDER [COMMAND]      FOLDER as of base-image.sh; COMMAND runs in place of `npm test`
#
# NODE_VERSION=22.23.3 suite.sh …       with that Node in place of the image's own
set -euo pipefail
cd "$(dirname "$0")/../.."
NAME=localhost/tollgate-suite
folder=$(realpath -m "$1")
command=${2:-npm test}
mkdir -p "$folder"
export CONTAINERS_STORAGE_CONF=$folder/storage.conf BUILDAH_ISOLATION=chroot

work=$(mktemp -d "$folder/suite.XXXXXX")
# The store's folder is a mount of itself, which would be in the way of who removes it.
trap 'rm -rf "$work"; umount -q "$folder/storage/overlay" || true' EXIT

# Programs of the suite that the slim system does not have: ps, openssl, git. Runs side by side share that system.
(
  flock 9
  test/container/base-image.sh "$folder"
  if ! buildah images --quiet "$NAME" > /dev/null 2>&1; then
    container=$(buildah from --pull-never docker.io/library/node:24-trixie-slim)
    buildah run "$container" -- bash -c 'set -e
      apt-get -qq update > /dev/null
      DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends procps openssl git > /dev/null'
    buildah commit --quiet --rm "$container" "$NAME" > /dev/null
  fi
) 9> "$folder/suite.lock"

options=(--volume "$PWD/node_modules:/src/node_modules:ro")
for name in TOLLGATE_TEST_SEED TEST_AGAIN TEST_JOBS; do [ -z "${!name-}" ] || options+=(--env "$name=${!name}"); done
# A file that runs beside each other share (scripts/test.mjs).
[ -z "${TEST_TURNS-}" ] || options+=(--env "TEST_TURNS=/run/turns/$(basename "$TEST_TURNS")" --volume "$(dirname "$TEST_TURNS"):/run/turns")
if [ -n "${NODE_VERSION-}" ]; then
  packed=$(npm pack --silent --pack-destination "$work" "node-linux-$(node -p process.arch)@$NODE_VERSION")
  tar -xzf "$work/$packed" -C "$work" package/bin/node
  options+=(--volume "$work/package/bin/node:/usr/local/bin/node:ro")
fi

# What was built here already, so that the compiler writes only what it finds changed.
git archive --format=tar --output="$work/source.tar" HEAD
if [ -d dist ] && [ -d build/test ]; then tar -cf "$work/built.tar" dist build/test build/bench build/examples; fi
# As many sockets as this machine gives, and the right to mount, which the tests of full disks want.
limit=$(ulimit -H -n)
container=$(buildah from --pull-never --ulimit "nofile=$limit:$limit" --cap-add CAP_SYS_ADMIN "$NAME")
trap 'buildah rm "$container" > /dev/null; rm -rf "$work"; umount -q "$folder/storage/overlay" || true' EXIT
for archive in "$work"/*.tar; do buildah add --quiet "$container" "$archive" /src > /dev/null; done
buildah run "${options[@]}" --workingdir /src "$container" -- bash -c "set -e
  node --version
  $command"
