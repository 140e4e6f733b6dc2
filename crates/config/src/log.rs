//! `[log]` and `[history]`: which events are logged, and where.

use std::net::SocketAddr;

use stentor_logs::settings::{LogConfig, LogFormat, LogLevel, LogTarget, Rotation, SyslogTo};

use super::configuration::HistoryConfig;
use super::diagnose::Spot;
use super::raw::Section;
use super::settings::{self, Origin};
use super::tables::Tables;

const MIB: u64 = 1024 * 1024;
const TIB: u64 = 1024 * 1024 * MIB;
const HOUR_MS: u64 = 3_600_000;
/// Usual socket of the syslog daemon.
const SYSLOG_SOCKET: &str = "/dev/log";
const JOURNALD_SOCKET: &str = "/run/systemd/journal/socket";
/// Maximum log destinations; each has a thread.
const DESTINATIONS_MAX: usize = 64;

pub(super) fn log(section: Section<'_>, tables: &Tables) -> LogConfig {
    let mut lists = Vec::new();
    let of_lists = section.section("lists");
    for entry in of_lists.entries() {
        of_lists.keep_entry(&entry, || settings::value(entry.value));
        let is_known = tables.lists.iter().any(|list| **list.value.list.name() == *entry.key);
        if !is_known {
            let message = format!("`{}` in [log] `lists` is not the name of a list", entry.key.escape_debug());
            section.context.error(entry.key_span.clone(), message);
        }
        for text in section.texts_of(&entry).into_iter().take(1) {
            lists.extend(target(&section, text).map(|target| (entry.key.clone(), target)));
        }
    }
    let place = |key| section.text(key).and_then(|text| target(&section, text));
    let attempts = place("attempts").unwrap_or(LogTarget::Stderr);
    if !section.has("attempts") {
        section.effective("attempts", Origin::Default, settings::quoted("stderr"), settings::quoted("stderr"));
    }
    let config = LogConfig {
        attempts,
        deliveries: place("deliveries"),
        acceptances: place("acceptances"),
        refusals: place("refusals"),
        policy: place("policy"),
        audit: place("audit"),
        ordinary: place("ordinary"),
        bulk: place("bulk"),
        lists,
        format: section.choice(
            "format",
            LogFormat::Sendmail,
            &[("sendmail", LogFormat::Sendmail), ("json", LogFormat::Json)],
        ),
        level: section.choice(
            "level",
            LogLevel::Info,
            &[
                ("error", LogLevel::Error),
                ("warn", LogLevel::Warn),
                ("info", LogLevel::Info),
                ("debug", LogLevel::Debug),
                ("trace", LogLevel::Trace),
            ],
        ),
        by_line: section.choice("flush", false, &[("buffer", false), ("line", true)]),
        rotation: Rotation {
            bytes_max: section.number("rotate_bytes", 0, 0..=TIB),
            age_ms_max: section.number("rotate_hours", 0, 0..=8_784) * HOUR_MS,
            keep: section.number("rotate_keep", 7, 0..=1_000) as u32,
        },
        rfc5424: section.choice("syslog_format", false, &[("rfc3164", false), ("rfc5424", true)]),
    };
    let mut all: Vec<&LogTarget> = config.lists.iter().map(|(_, target)| target).collect();
    all.dedup();
    if all.len() > DESTINATIONS_MAX {
        let message = format!("[log] `lists` has more than {DESTINATIONS_MAX} destinations; let lists share files");
        section.context.error(section.span_of("lists"), message);
    }
    section.finish();
    config
}

/// Parses a target. `None`: the same target as `attempts`, or an error that was reported.
fn target(section: &Section<'_>, text: Spot<&str>) -> Option<LogTarget> {
    let path = |path: &str| section.context.path(path);
    Some(match text.value {
        "attempts" => return None,
        "stderr" => LogTarget::Stderr,
        "stdout" => LogTarget::Stdout,
        "off" | "" => LogTarget::Off,
        "syslog" => LogTarget::Syslog(SyslogTo::Unix(SYSLOG_SOCKET.into())),
        "journald" => LogTarget::Journald(JOURNALD_SOCKET.into()),
        other => match (other.strip_prefix("syslog:"), other.strip_prefix("journald:")) {
            (Some(place), _) => LogTarget::Syslog(match place.parse::<SocketAddr>() {
                Ok(address) if address.ip().to_canonical().is_loopback() => SyslogTo::Udp(address),
                Ok(_) => {
                    let message = format!(
                        "{other:?} is not on this host; write \"syslog\", \"syslog:127.0.0.1:514\" or \
                         \"syslog:/PATH\", and let the local daemon forward"
                    );
                    section.context.error(text.span, message);
                    return None;
                }
                Err(_) => SyslogTo::Unix(path(place)),
            }),
            (None, Some(place)) => LogTarget::Journald(path(place)),
            (None, None) => LogTarget::File(path(other)),
        },
    })
}

pub(super) fn history(section: Section<'_>) -> HistoryConfig {
    let config = HistoryConfig {
        keep_days: section.number("keep_days", 30, 0..=3_650),
        size_bytes_max: section.number("size_bytes_max", 1024 * MIB, 4 * MIB..=1_024 * TIB),
    };
    section.finish();
    config
}
