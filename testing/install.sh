#!/usr/bin/env bash
# Installs what the integration tests run beside Stentor: curl, swaks, smtp-source and postmap (Postfix, with its table types), strace, tmux, Python, systemd-analyze, file systems of three
# kinds (with xfs_io, which cuts their power) and eatmydata, which takes the syncs away; Chromium and node for the console,
# and from npm what drives them (playwright-core, axe-core), as testing/server/browser/package-lock.json says; perf, fio and pflogsumm,
# and programs that call sendmail, which the benchmarks need, so that their smoke run does too. With --peers also what `make test-peers` needs. Mounts tracefs, without which nothing can be traced.
# Does nothing when all is there. Needs root or sudo, on Debian.
set -euo pipefail

# smtp-source and mkfs live in /usr/sbin, which is not on everybody's path.
export PATH="$PATH:/usr/sbin"
packages=()
command -v curl >/dev/null || packages+=(curl)
command -v swaks >/dev/null || packages+=(swaks)
command -v msmtp >/dev/null || packages+=(msmtp)
command -v s-nail >/dev/null || packages+=(s-nail)
command -v smtp-source >/dev/null || packages+=(postfix)
# Table types of Postfix that are packages of their own: what ours are held against.
for type in cdb lmdb pcre; do
    grep -qs "^$type[[:space:]]" /etc/postfix/dynamicmaps.cf || packages+=("postfix-$type")
done
command -v python3 >/dev/null || packages+=(python3)
command -v tmux >/dev/null || packages+=(tmux)
command -v strace >/dev/null || packages+=(strace)
command -v systemd-analyze >/dev/null || packages+=(systemd)
command -v mkfs.ext4 >/dev/null || packages+=(e2fsprogs)
command -v mkfs.xfs >/dev/null && command -v xfs_io >/dev/null || packages+=(xfsprogs)
command -v mkfs.btrfs >/dev/null || packages+=(btrfs-progs)
command -v losetup >/dev/null && command -v prlimit >/dev/null || packages+=(mount util-linux)
command -v eatmydata >/dev/null || packages+=(eatmydata)
command -v chromium >/dev/null || packages+=(chromium)
command -v node >/dev/null || packages+=(nodejs)
command -v npm >/dev/null || packages+=(npm)
# Benchmarks without these say that they were skipped. perf counts system calls without slowing those who make them; the measuring
# kit is held against fio.
wished=()
command -v perf >/dev/null || wished+=(linux-perf)
command -v pflogsumm >/dev/null || wished+=(pflogsumm)
command -v fio >/dev/null || wished+=(fio)
# Filters of others, behind Postfix and behind ours.
[ -e /usr/lib/python3/dist-packages/Milter ] || wished+=(python3-milter)
command -v opendkim >/dev/null || wished+=(opendkim)
# Verifiers of what we sign.
[ -e /usr/lib/python3/dist-packages/dkim ] || wished+=(python3-dkim python3-nacl)
[ -e /usr/share/perl5/Mail/DKIM ] || wished+=(libmail-dkim-perl)
# Other people's clients that `tls.clients` needs beside those above.
command -v mutt >/dev/null || wished+=(mutt)
# A CA on loopback, which issues certificates to us.
command -v pebble >/dev/null || wished+=(pebble)
# What checks logins behind its auth socket; its service is not started.
[ -x /usr/sbin/dovecot ] || wished+=(dovecot-core)
# What `make test-peers` needs beside: filters that bring daemons along, which it starts itself.
if [ "${1:-}" = --peers ]; then
    command -v pyspf-milter >/dev/null || wished+=(pyspf-milter)
    command -v clamd >/dev/null || wished+=(clamav-daemon)
    command -v clamav-milter >/dev/null || wished+=(clamav-milter)
    command -v spamd >/dev/null || wished+=(spamd)
    command -v spamass-milter >/dev/null || wished+=(spamass-milter)
    command -v rspamd >/dev/null || wished+=(rspamd)
    # It builds a verifier of what we sign.
    command -v go >/dev/null || wished+=(golang-go)
fi
# An archive of lists; nothing of it is started.
command -v public-inbox-watch >/dev/null || wished+=(public-inbox libplack-perl liblinux-inotify2-perl)
# Policy services.
command -v postgrey >/dev/null || wished+=(postgrey)
command -v policyd-spf >/dev/null || wished+=(postfix-policyd-spf-python)
command -v socat >/dev/null || wished+=(socat)
# Zones that are signed, and a resolver that validates them (bench/validated.py), which have configurations of their own.
command -v knotd >/dev/null || wished+=(knot)
command -v kdig >/dev/null || wished+=(knot-dnsutils)
command -v unbound >/dev/null || wished+=(unbound)
# Programs that call sendmail.
command -v bsd-mailx >/dev/null || wished+=(bsd-mailx)
command -v php >/dev/null || wished+=(php-cli)
[ -e /usr/lib/git-core/git-send-email ] || wished+=(git-email libmailtools-perl)
# Real MTAs that write logs: these conflict with each other, so that they are unpacked and not installed.
foreign="${STENTOR_FOREIGN_ROOT:-/var/cache/stentor-tests/foreign}"
[ -e "$foreign/complete" ] && [ -e "$foreign/usr/share/sendmail/cf/m4/cf.m4" ] && has_foreign=yes || has_foreign=no

root=()
if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null; then
        root=(sudo)
    elif [ "${#packages[@]}" -gt 0 ]; then
        echo "testing/install.sh: run as root, to install ${packages[*]}" >&2
        exit 1
    fi
fi
if [ "${#packages[@]}" -gt 0 ] || [ "${#wished[@]}" -gt 0 ]; then
    # Daemons that packages bring along are not started: the tests start their own.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap '"${root[@]}" rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' | "${root[@]}" tee "$policy" >/dev/null
        "${root[@]}" chmod 755 "$policy"
    fi
    # Postfix is not to be set up nor to be asked about; an MTA that is there already stays.
    install=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends)
    "${root[@]}" apt-get update -q
    [ "${#packages[@]}" -eq 0 ] || "${install[@]}" "${packages[@]}"
    for package in "${wished[@]}"; do
        "${install[@]}" "$package" || echo "testing/install.sh: $package cannot be installed" >&2
    done
elif [ "$has_foreign" = no ] && [ "$(id -u)" -eq 0 ]; then
    apt-get update -q
fi

# Most machines mount it when somebody first traces; tests that look for it beforehand would depend on their order.
if [ -d /sys/kernel/tracing ] && [ ! -d /sys/kernel/tracing/instances ]; then
    "${root[@]}" mount -t tracefs tracefs /sys/kernel/tracing ||
        echo "testing/install.sh: tracefs cannot be mounted: what traces is skipped" >&2
fi

# Without what follows its tests say that they were skipped; the others run.
if [ "$has_foreign" = no ] && [ "$(id -u)" -eq 0 ]; then
    bash "$(dirname "${BASH_SOURCE[0]}")/server/foreign/fetch.sh" "$foreign" ||
        echo "testing/install.sh: sendmail and Exim cannot be fetched" >&2
fi
# List managers of others: mlmmj is small, the other two are for `make test-peers`.
managers="${STENTOR_MANAGERS_ROOT:-/var/cache/stentor-tests/managers}"
wanted=(mlmmj)
[ "${1:-}" != --peers ] || wanted+=(sympa mailman)
for manager in "${wanted[@]}"; do
    if [ ! -e "$managers/$manager/complete" ] && [ "$(id -u)" -eq 0 ]; then
        bash "$(dirname "${BASH_SOURCE[0]}")/server/foreign/managers.sh" "$managers" "$manager" ||
            echo "testing/install.sh: $manager cannot be fetched" >&2
    fi
done
# Verifiers of what we sign that are not Debian packages.
if [ "${1:-}" = --peers ]; then
    bash "$(dirname "${BASH_SOURCE[0]}")/server/foreign/verifiers.sh" "${STENTOR_VERIFIERS_ROOT:-/var/cache/stentor-tests/verifiers}" ||
        echo "testing/install.sh: verifiers cannot be installed" >&2
fi
# cron is to send mail, not to run on this machine: unpacked as well.
cron=/var/cache/stentor-tests/cron
if [ ! -e "$cron/usr/sbin/cron" ] && [ "$(id -u)" -eq 0 ]; then
    mkdir -p "$cron"
    (cd "$cron" && apt-get download -q cron && dpkg -x cron_*.deb .) ||
        echo "testing/install.sh: cron cannot be fetched" >&2
fi
# promtool runs the tests of the alert rules; Prometheus itself is not to run.
prometheus=/var/cache/stentor-tests/prometheus
if [ ! -e "$prometheus/usr/bin/promtool" ] && [ "$(id -u)" -eq 0 ]; then
    mkdir -p "$prometheus"
    (cd "$prometheus" && apt-get download -q prometheus && dpkg -x prometheus_*.deb . && rm prometheus_*.deb) ||
        echo "testing/install.sh: promtool cannot be fetched" >&2
fi
cd "$(dirname "${BASH_SOURCE[0]}")/server/browser"
if ! cmp -s package-lock.json node_modules/.installed; then
    if npm ci --ignore-scripts --no-audit --no-fund; then
        cp package-lock.json node_modules/.installed
    else
        echo "testing/install.sh: npm ci failed" >&2
    fi
fi
