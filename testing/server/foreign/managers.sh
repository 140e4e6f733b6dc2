#!/usr/bin/env bash
# Unpacks list managers of others into a folder, for `field.managers`: `managers.sh DIR mlmmj|sympa|mailman...`. None is installed: their packages
# would want an MTA of their own and start services. Does nothing for those that are there.
set -euo pipefail

root="$1"
shift
mkdir -p "$root"
temporary="$(mktemp -d)"
trap 'rm -rf "$temporary"' EXIT
chmod 755 "$temporary"
cd "$temporary"

# A package with what it needs and this machine does not have.
unpack() {
    mkdir -p archives/partial
    apt-get install -y -q --no-install-recommends --download-only -o Dir::Cache::archives="$temporary/archives" "$1"
    [ -e archives/"$1"_*.deb ] || (cd archives && apt-get download -q "$1")
    mkdir -p "$root/$1.new"
    for package in archives/*.deb; do
        dpkg -x "$package" "$root/$1.new"
    done
    rm -rf archives "${root:?}/$1"
    mv "$root/$1.new" "$root/$1"
}

for name in "$@"; do
    [ -e "$root/$name/complete" ] && continue
    case "$name" in
        mlmmj)
            apt-get download -q mlmmj
            mkdir -p "$root/mlmmj"
            dpkg -x mlmmj_*.deb "$root/mlmmj"
            ;;
        sympa) unpack sympa ;;
        mailman)
            python3 -m venv "$root/mailman"
            "$root/mailman/bin/pip" install -q mailman==3.3.10
            ;;
    esac
    touch "$root/$name/complete"
done
