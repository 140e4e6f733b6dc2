#!/usr/bin/env bash
# Unpacks Debian's sendmail and Exim into a folder, with the libraries that are missing here: they conflict with each
# other and with Postfix, so that they cannot be installed. `fetch.sh DIR`; does nothing when all is there.
set -euo pipefail

root="$1"
packages=(sendmail-bin sendmail-cf m4 libsigsegv2 exim4-daemon-light libwrap0 libidn12)
if [ -x "$root/usr/libexec/sendmail/sendmail" ] && [ -x "$root/usr/sbin/exim4" ] && [ -e "$root/usr/share/sendmail/cf/m4/cf.m4" ] &&
    [ -x "$root/usr/bin/m4" ] && [ -e "$root/complete" ]; then
    exit 0
fi
temporary="$(mktemp -d)"
trap 'rm -rf "$temporary"' EXIT
chmod 755 "$temporary"
cd "$temporary"
apt-get download -q "${packages[@]}"
mkdir -p "$root"
for package in ./*.deb; do
    dpkg -x "$package" "$root"
done
# A program that changes its group does not look for libraries where it is told to.
chmod -s "$root/usr/libexec/sendmail/sendmail" "$root/usr/sbin/exim4"
touch "$root/complete"
