#!/bin/sh
# Applies this bundle to this node. See README.md of the role node_bundle in the collection hpcai.gpu_cluster.
#   bootstrap.sh [--budget SECONDS] [--digest DIGEST] [--force]
# Ends with 0: applied; 1: a task failed; 2: refused, nothing was changed; 3: it took longer than the budget.
set -u
here=$(cd "$(dirname "$0")" && pwd -P) || exit 2

refuse() {
  echo "hpcai-node: refused, nothing was changed: $*" >&2
  for jetpack in /opt/cycle/jetpack/bin/jetpack jetpack; do
    command -v "$jetpack" >/dev/null 2>&1 || continue
    "$jetpack" log "hpcai-node: refused: $*" --level=error --priority=high >/dev/null 2>&1
    break
  done
  exit 2
}

[ "$(id -u)" -eq 0 ] || refuse "only root can configure the node"

# Every file, and no other: a bundle that was cut off or changed on the way does nothing.
[ -s "$here/SHA256SUMS" ] || refuse "$here/SHA256SUMS is missing; unpack the whole bundle"
wrong=$(cd "$here" && LC_ALL=C sha256sum --check --quiet --strict SHA256SUMS 2>&1) ||
  refuse "the bundle is damaged: $(echo "$wrong" | head -n 3 | tr '\n' ' ')"
there=$(find "$here" ! -type d ! -path "$here/SHA256SUMS" | wc -l)
[ "$there" -eq "$(wc -l <"$here/SHA256SUMS")" ] || refuse "the bundle is damaged: there are files in it that SHA256SUMS does not name"

python=
for candidate in "${HPCAI_PYTHON:-}" python3 python3.13 python3.12 python3.11; do
  [ -n "$candidate" ] || continue
  if "$candidate" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    python=$(command -v "$candidate")
    break
  fi
done
[ -n "$python" ] || refuse "this node has no Python 3.11 or newer; take an image with one (Debian 12, Ubuntu 24.04) or name one in HPCAI_PYTHON"

digest=$(sha256sum "$here/SHA256SUMS" | cut -d ' ' -f 1)
asked=
for word; do
  [ "$asked" != next ] || asked=$word
  [ "$word" != --digest ] || asked=next
done
case $digest in
  "$asked"*) ;;
  *) refuse "the bundle has digest $digest, wanted is $asked" ;;
esac

[ -d /run/systemd/system ] || refuse "this node does not run systemd, by which slurmd is held back"

# shellcheck source=roles/node_bundle/files/gate.sh
. "$here/gate.sh"
hpcai_close_gate || refuse "slurmd cannot be held back"

start='import sys
sys.path.insert(0, sys.argv[1] + "/collections")
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.apply import main
sys.exit(main(sys.argv[1:]))'
exec "$python" -I -S -B -c "$start" "$here" "$digest" "$@"
