#!/usr/bin/env bash
# `npm test` in the image's own system: Debian 13 and Node 24, over the base image that base-image.sh makes. As
# root; as long as `npm test`. What is tested is the last commit.
#
# usage: suite.sh FOLDER [COMMAND]      FOLDER as of base-image.sh; COMMAND runs in place of `npm test`
#        suite.sh FOLDER prepare        installs what a later suite.sh wants, which then takes that container: half a minute of
#                                       waiting for registries, which .ci/run has beside other tests
#
# NODE_VERSION=22.23.3 suite.sh …       with that Node in place of the image's own
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(realpath -m "$1")
command=${2:-npm test}
arch=$(node -p process.arch)
other=${NODE_VERSION:+node-linux-$arch@$NODE_VERSION}
# Holds the name of the container that is prepared for this commit.
prepared=$folder/suite-${NODE_VERSION:-own}-$(git rev-parse HEAD)
test/container/base-image.sh "$folder"
export CONTAINERS_STORAGE_CONF=$folder/storage.conf BUILDAH_ISOLATION=chroot

options=()
for name in TOLLGATE_TEST_SEED TEST_AGAIN TEST_JOBS; do [ -z "${!name-}" ] || options+=(--env "$name=${!name}"); done
# A file that runs beside each other share (scripts/test.mjs).
[ -z "${TEST_TURNS-}" ] || options+=(--env "TEST_TURNS=/run/turns/$(basename "$TEST_TURNS")" --volume "$(dirname "$TEST_TURNS"):/run/turns")
in_container() {
  buildah run "${options[@]}" --volume "$folder/npm:/run/npm:ro" --volume "$folder/npm/npmrc:/root/.npmrc:ro" --workingdir /src "$container" -- bash -c "set -e
    $1"
}

work=$(mktemp -d "$folder/suite.XXXXXX")
# The store's folder is a mount of itself, which would be in the way of who removes it.
trap 'rm -rf "$work"; umount -q "$folder/storage/overlay" || true' EXIT
if [ ! -e "$prepared" ]; then
  # As many sockets as this machine gives, and the right to mount, which the tests of full disks want.
  limit=$(ulimit -H -n)
  container=$(buildah from --pull-never --ulimit "nofile=$limit:$limit" --cap-add CAP_SYS_ADMIN \
    docker.io/library/node:24-trixie-slim)
  git archive --format=tar --output="$work/source.tar" HEAD
  buildah add --quiet "$container" "$work/source.tar" /src > /dev/null
  # Programs of the suite that the slim system does not have: ps, openssl, git.
  in_container "
    apt-get -qq update > /dev/null
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends procps openssl git > /dev/null
    if [ -n '$other' ]; then
      (cd /tmp && npm pack --silent '$other' > packed.txt && tar -xzf \"\$(cat packed.txt)\" && rm *.tgz && mv package/bin/node /usr/local/bin/node)
    fi
    npm ci --ignore-scripts --no-audit --no-fund"
  echo "$container" > "$prepared"
fi
[ "$command" != prepare ] || exit 0

container=$(cat "$prepared")
rm "$prepared"
trap 'buildah rm "$container" > /dev/null; rm -rf "$work"; umount -q "$folder/storage/overlay" || true' EXIT
# What was built here already, so that the compiler writes only what it finds changed.
if [ -d dist ] && [ -d build/test ]; then
  tar -cf "$work/built.tar" dist build/test build/bench build/examples
  buildah add --quiet "$container" "$work/built.tar" /src > /dev/null
fi
in_container "node --version
  $command"
