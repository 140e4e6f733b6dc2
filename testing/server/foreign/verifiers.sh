#!/usr/bin/env bash
# Puts DKIM verifiers that are not Debian packages into a folder, for `identity.verify`: `verifiers.sh DIR`. mailauth comes from npm, go-msgauth is
# built by Go, in the versions of the lock files in bench/verifiers. Does nothing for those that are there.
set -euo pipefail

root="$1"
sources="$(cd "$(dirname "${BASH_SOURCE[0]}")/../../../bench/verifiers" && pwd)"
mkdir -p "$root/mailauth" "$root/go-msgauth"

if command -v npm >/dev/null; then
    lock="$sources/mailauth/package-lock.json"
    if ! cmp -s "$lock" "$root/mailauth/node_modules/.installed"; then
        cp "$sources/mailauth/package.json" "$lock" "$root/mailauth/"
        if (cd "$root/mailauth" && npm ci --ignore-scripts --no-audit --no-fund); then
            cp "$lock" "$root/mailauth/node_modules/.installed"
        else
            echo "verifiers.sh: npm ci failed: no mailauth" >&2
        fi
    fi
else
    echo "verifiers.sh: npm is missing: no mailauth" >&2
fi

if command -v go >/dev/null; then
    (cd "$sources/go-msgauth" && go build -trimpath -o "$root/go-msgauth/go-msgauth" .) ||
        echo "verifiers.sh: go build failed: no go-msgauth" >&2
else
    echo "verifiers.sh: go is missing: no go-msgauth" >&2
fi
