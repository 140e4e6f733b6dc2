//! The server's own log: its actions and problems, one line per event.
//!
//! There are no spans, so a subscriber is just a filter and a format; tracing-subscriber's registry would add five
//! crates. Text from outside is escaped: it never breaks a line or sends control sequences to a terminal ([`is_trap`]).

use std::fmt::{self, Write as _};
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use stentor_logs::settings::LogLevel;
use stentor_records::escape::is_trap;
use stentor_records::time::push_rfc3339;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::paint;

/// Starts logging to standard error. A second call (tests) has no effect.
pub fn start(level: LogLevel) {
    let level = match level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Trace => Level::TRACE,
    };
    let has_colours = std::io::stderr().is_terminal() && paint::is_wanted(&|name| std::env::var(name).ok());
    let write = |line: &str| {
        // Without standard error there is nowhere to report.
        let _ = std::io::stderr().write_all(line.as_bytes());
    };
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let _ = tracing::subscriber::set_global_default(Log { level, has_colours, write, now });
}

struct Log<W, N> {
    level: Level,
    has_colours: bool,
    write: W,
    /// Returns the time since the epoch.
    now: N,
}

impl<W: Fn(&str) + 'static, N: Fn() -> Duration + 'static> Subscriber for Log<W, N> {
    /// Libraries log only warnings and errors; the level applies to Stentor's own crates.
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let is_ours = metadata.target().starts_with("stentor");
        *metadata.level() <= if is_ours { self.level } else { Level::WARN.min(self.level) }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level.into())
    }

    fn event(&self, event: &Event<'_>) {
        (self.write)(&line((self.now)(), self.has_colours, event));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Formats `2026-11-23T00:56:00.123456Z  INFO message key=value`, with or without colours.
fn line(now: Duration, has_colours: bool, event: &Event<'_>) -> String {
    let mut millis = Vec::new();
    push_rfc3339(&mut millis, now.as_millis() as u64);
    let millis = String::from_utf8_lossy(&millis);
    let time = format!("{}{:03}Z", millis.trim_end_matches('Z'), now.subsec_micros() % 1000);
    let level = *event.metadata().level();
    let mut out = if has_colours {
        format!("\x1b[2m{time}\x1b[0m \x1b[{}m{level:>5}\x1b[0m", colour(level))
    } else {
        format!("{time} {level:>5}")
    };
    event.record(&mut Fields(&mut out));
    out.push('\n');
    out
}

fn colour(level: Level) -> u8 {
    match level {
        Level::ERROR => 31,
        Level::WARN => 33,
        Level::INFO => 32,
        Level::DEBUG => 34,
        Level::TRACE => 35,
    }
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push(' ');
        // The text comes first. A later field of that name is an id.
        if field.index() > 0 || field.name() != "message" {
            self.0.push_str(field.name());
            self.0.push('=');
        }
        // Writing to a String cannot fail.
        let _ = write!(EscapeWriter(self.0), "{value:?}");
    }
}

struct EscapeWriter<'a>(&'a mut String);

impl fmt::Write for EscapeWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            if is_trap(character) {
                self.0.extend(character.escape_default());
            } else {
                self.0.push(character);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// The log output at this level, half a microsecond past a fixed time.
    fn logged(level: Level, has_colours: bool, log: impl FnOnce()) -> String {
        let text = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&text);
        let write = move |line: &str| kept.lock().unwrap().push_str(line);
        let now = || Duration::from_nanos(1_795_395_360_123_456_500);
        tracing::subscriber::with_default(Log { level, has_colours, write, now }, log);
        text.lock().unwrap().clone()
    }

    #[test]
    fn a_line_has_time_level_message_and_fields() {
        let text = logged(Level::INFO, false, || {
            tracing::info!(count = 3, host = "a b", level = %Level::WARN, "started in {} ms", 7);
        });
        assert_eq!(text, "2026-11-23T00:56:00.123456Z  INFO started in 7 ms count=3 host=\"a b\" level=WARN\n");
        let text =
            logged(Level::INFO, false, || tracing::info!(message = %"0CX8", list = "news", "held: {}", "no SPF"));
        assert!(text.ends_with(" INFO held: no SPF message=0CX8 list=\"news\"\n"), "{text:?}");
        let text = logged(Level::INFO, true, || tracing::error!("bad"));
        assert_eq!(text, "\x1b[2m2026-11-23T00:56:00.123456Z\x1b[0m \x1b[31mERROR\x1b[0m bad\n");
    }

    #[test]
    fn libraries_report_only_what_is_wrong() {
        let log = || {
            tracing::debug!("ours");
            tracing::info!(target: "stentor_queue", "ours too");
            tracing::info!(target: "hickory_net", "theirs");
            tracing::warn!(target: "hickory_net", "wrong");
        };
        let lines = |level| logged(level, false, log).lines().map(|line| line[28..].to_owned()).collect::<Vec<_>>();
        assert_eq!(lines(Level::DEBUG), ["DEBUG ours", " INFO ours too", " WARN wrong"]);
        assert_eq!(lines(Level::INFO), [" INFO ours too", " WARN wrong"]);
        assert!(lines(Level::ERROR).is_empty());
    }

    #[test]
    fn control_characters_are_escaped() {
        let text = logged(Level::INFO, false, || tracing::info!("a\x1b[2Jb\u{9b}c\r"));
        assert!(text.ends_with("a\\u{1b}[2Jb\\u{9b}c\\r\n"), "{text:?}");
    }

    #[test]
    fn no_text_begins_a_line_of_its_own() {
        let forged =
            "x\r\n2026-11-23T00:56:00.123456Z  INFO logged in user=operator\t\u{2028}\u{2029}\u{85}\0\u{202e}\u{200b}";
        let error = std::io::Error::other(forged);
        let text = logged(Level::INFO, false, || {
            tracing::info!("{forged}");
            tracing::info!(user = %forged, "display");
            tracing::info!(user = forged, "text");
            tracing::info!(?forged, "debug");
            tracing::info!(%error, "error");
            tracing::info!(error = &error as &dyn std::error::Error, "error");
        });
        assert_eq!(text.lines().count(), 6, "{text}");
        assert!(!text.chars().any(|c| is_trap(c) && c != '\n'), "{text:?}");
        assert!(text.lines().all(|line| line.contains("\\r\\n2026-11-23")), "{text}");
    }
}
