#!/usr/bin/env bash
# Runs commands of README.md exactly as they stand there: tests/readme.sh NAME...
# NAME is what the comment before the block says: <!-- run: NAME -->
# A daemon that they start has directories of its own, and is stopped afterwards.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

block() {
  awk -v begin="<!-- run: $1 -->" '
    $0 == begin { found = 1; next }
    found && /^```/ { if (inside) exit; inside = 1; next }
    inside { print }
  ' README.md
}

private=$(mktemp -d)
stop() {
  local lock=$private/runtime/agent-daemon/daemon.sock.lock pid
  if pid=$(cat "$lock" 2>/dev/null) && kill "$pid" 2>/dev/null; then
    # It may take ten seconds to end its runs.
    for _ in $(seq 150); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
  fi
  rm -rf "$private"
}
trap stop EXIT
mkdir -m 700 "$private"/{config,state,cache,runtime,home}

for name; do
  commands=$(block "$name")
  [ -n "$commands" ] || { echo "README.md has no block '$name'" >&2; exit 2; }
  echo "\$ $commands"
  if [ "$name" = tests ]; then
    # Each test makes surroundings of its own, and must not depend on these.
    bash -euo pipefail -c "$commands"
    continue
  fi
  env -u OPENAI_API_KEY -u ANTHROPIC_API_KEY \
    CARGO_HOME="${CARGO_HOME:-$HOME/.cargo}" RUSTUP_HOME="${RUSTUP_HOME:-$HOME/.rustup}" \
    HOME="$private/home" XDG_CONFIG_HOME="$private/config" XDG_STATE_HOME="$private/state" \
    XDG_CACHE_HOME="$private/cache" XDG_RUNTIME_DIR="$private/runtime" \
    bash -euo pipefail -c "$commands"
done
