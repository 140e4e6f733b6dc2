//! Formats a story for a terminal. Everything from the network is escaped.

use std::fmt::Write;

use super::{Acceptance, MailTrace, MessageTrace, Refusal, Sums, TO_SHOWN_MAX, TraceNote, Try, Unreached};
use crate::civil::{Civil, Zone};
use crate::escape::is_trap;
use crate::record::{Ms, WireChanges};

/// Largest size of a text on a line; longer ones are cut.
const TEXT_CHARS_MAX: usize = 1_024;
/// When a message was accepted whose acceptance may have been dropped.
const FORGOTTEN: &str = "before the oldest record, or over 20,000 messages before its first attempt: trace its queue \
    id";
/// Step of a refusal of the content, as in records.
const END_OF_DATA: &str = ".";

impl MailTrace {
    /// Formats the story as lines for people; times in `zone`.
    pub fn text(&self, zone: &Zone) -> String {
        let mut out = String::new();
        for message in &self.messages {
            let before = if self.has_forgotten { FORGOTTEN } else { "before the oldest record" };
            message.text(self.since, before, zone, &mut out);
        }
        if self.messages_left_out > 0 {
            push(&mut out, format_args!("and {} more messages", self.messages_left_out));
        }
        for refusal in &self.refusals {
            refusal.text(zone, &mut out);
        }
        if self.refusals_left_out > 0 {
            push(&mut out, format_args!("and {} more refusals", self.refusals_left_out));
        }
        for failure in &self.unreached {
            failure.text(zone, &mut out);
        }
        out
    }
}

impl MessageTrace {
    /// `before`: when a message without an acceptance was accepted.
    fn text(&self, since: Ms, before: &str, zone: &Zone, out: &mut String) {
        let message_id = self.accepted.as_ref().map_or(&*self.message_id, |accepted| &accepted.message_id);
        push(out, format_args!("{}  {}", printable(&self.id), printable(message_id)));
        match &self.accepted {
            Some(accepted) => accepted.text(zone, out),
            None if !self.discarded.is_empty() => {
                let to: Vec<String> = self.discarded.iter().map(|to| printable(to)).collect();
                push(out, format_args!("  discarded   {}", to.join(", ")));
            }
            None if self.is_report => {}
            None => push(out, format_args!("  accepted    {before}")),
        }
        if self.is_earlier_unknown {
            let before = time(since, zone);
            push(
                out,
                format_args!(
                    "  earlier     unknown: too many records before {before}; the state covers only the records below"
                ),
            );
        }
        if self.earlier > 0 {
            let records = if self.earlier == 1 { "record" } else { "records" };
            push(out, format_args!("  earlier     {} {records} before {}", self.earlier, time(since, zone)));
        }
        let mut notes = self.notes.iter().peekable();
        for attempt in &self.attempts {
            while let Some(note) = notes.next_if(|note| note.at <= attempt.at) {
                note.text(zone, out);
            }
            attempt.text(zone, out);
        }
        if self.attempts_left_out > 0 {
            push(out, format_args!("  and {} more attempts", self.attempts_left_out));
        }
        for note in notes {
            note.text(zone, out);
        }
        push(out, format_args!("  state       {}", self.state()));
        out.push('\n');
    }

    /// The state in words.
    pub fn state(&self) -> String {
        let Sums { delivered, bounced, expired, removed, coalesced, quarantined, released, deferred, untried } =
            self.sums;
        let untried = untried + self.waiting_copies();
        let (deferred, untried) = if self.is_over { (0, 0) } else { (deferred, untried) };
        let all = [
            (delivered, "delivered"),
            (bounced, "bounced"),
            (expired, "expired"),
            (removed, "removed"),
            (coalesced, "sent in a digest"),
            (quarantined, "quarantined"),
            (released, "released from the quarantine"),
            (deferred, "deferred so far"),
            (untried, "with no finished attempt"),
        ];
        let parts: Vec<String> =
            all.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
        match parts.as_slice() {
            [] if !self.held.is_empty() => printable(&self.held),
            parts if !self.held.is_empty() => format!("{}, {}", parts.join(", "), printable(&self.held)),
            [] if self.domains.values().any(|domain| domain.is_pending) => "no host has replied yet".to_owned(),
            [] if !self.discarded.is_empty() && self.accepted.is_none() => "accepted and discarded".to_owned(),
            [] if self.is_report => "a report about this recipient".to_owned(),
            [] => "no records of its recipients".to_owned(),
            parts => parts.join(", "),
        }
    }
}

impl TraceNote {
    fn text(&self, zone: &Zone, out: &mut String) {
        push(out, format_args!("  {}  {}", time(self.at, zone), printable(&self.text)));
    }
}

impl Acceptance {
    fn text(&self, zone: &Zone, out: &mut String) {
        let client = match (self.client, self.client_host.as_str()) {
            (Some(ip), "") => format!(" from [{ip}]"),
            (Some(ip), host) => format!(" from {} [{ip}]", printable(host)),
            (None, "") => String::new(),
            (None, host) => format!(" from {}", printable(host)),
        };
        let proto = if self.proto.is_empty() { String::new() } else { format!(", {}", printable(&self.proto)) };
        let tls = if self.tls.is_empty() { String::new() } else { format!(", {}", printable(&self.tls)) };
        let user = if self.user.is_empty() { String::new() } else { format!(", by {}", printable(&self.user)) };
        let given = if self.orig_from.is_empty() {
            String::new()
        } else {
            format!(" (given as <{}>)", printable(&self.orig_from))
        };
        let size = if self.size > 0 { format!(", {} octets", self.size) } else { String::new() };
        push(
            out,
            format_args!(
                "  {}  accepted: from <{}>{given}{size}, {} recipient{}{proto}{client}{tls}{user}",
                time(self.at, zone),
                printable(&self.from),
                self.recipients,
                if self.recipients == 1 { "" } else { "s" },
            ),
        );
        let class = if self.is_bulk { "bulk" } else { "ordinary" };
        let list = if self.list.is_empty() { String::new() } else { format!(", list {}", printable(&self.list)) };
        // If the only rule is the list's, the list's name is enough.
        let is_said = self.policy.is_empty() || self.policy == format!("list {}", self.list);
        let policy = if is_said { String::new() } else { format!("; {}", printable(&self.policy)) };
        push(out, format_args!("  policy      {class}{list}{policy}"));
        if !self.orig_to.is_empty() {
            let named: Vec<String> = self.orig_to.iter().map(|to| printable(to)).collect();
            push(out, format_args!("  orig_to     {}", named.join(", ")));
        }
        if !self.marks.is_empty() {
            push(out, format_args!("  rules       {}", printable(&self.marks)));
        }
    }
}

impl Try {
    fn text(&self, zone: &Zone, out: &mut String) {
        let to: Vec<String> = self.to.iter().map(|to| printable(to)).collect();
        let others = match self.others {
            0 => String::new(),
            1 => " and 1 other".to_owned(),
            others => format!(" and {others} others"),
        };
        let repeated = if self.is_repeated { " (recorded again after a restart)" } else { "" };
        match &self.unreached {
            Some(unreached) => unreached.text(self, zone, out),
            None => push(
                out,
                format_args!(
                    "  {}  {:<9}  {}{others}, {} after acceptance{repeated}",
                    time(self.at, zone),
                    self.stat,
                    to.join(", "),
                    span(self.delay_ms),
                ),
            ),
        }
        let mut by = printable(&self.mailer);
        if !self.host.is_empty() || self.ip.is_some() {
            let _ = write!(by, " {}", printable(&self.host));
            if let Some(ip) = self.ip {
                let _ = write!(by, " [{ip}]");
            }
            if self.port != 0 {
                let _ = write!(by, ":{}", self.port);
            }
            let tls = if self.tls.is_empty() { "no TLS".to_owned() } else { printable(&self.tls) };
            let tls = if self.unreached.is_some() { String::new() } else { format!(", {tls}") };
            let _ = write!(by, "{tls}, xdelay {}", span(self.xdelay_ms));
        }
        if !self.source.is_empty() {
            let _ = write!(by, ", source {}", printable(&self.source));
        }
        let recoded = WireChanges::named(self.recoded).text();
        if !recoded.is_empty() {
            let _ = write!(by, ", {recoded}");
        }
        let dsn = if self.dsn.is_empty() || self.reply.contains(&self.dsn) {
            String::new()
        } else {
            format!(" ({})", printable(&self.dsn))
        };
        push(out, format_args!("              {}: {}{dsn}", by.trim(), printable(&self.reply)));
    }
}

impl Unreached {
    /// Appends the first line of an entry.
    fn text(&self, entry: &Try, zone: &Zone, out: &mut String) {
        let what = if entry.stat == "lookup_failed" { "lookup of" } else { "connection for" };
        let domains: Vec<String> = self.domains.iter().take(TO_SHOWN_MAX).map(|domain| printable(domain)).collect();
        let times = match self.times {
            1 => "failed".to_owned(),
            times => format!("failed {times} times, last {}", time(self.last, zone)),
        };
        let waiting = match self.waiting {
            0 => "no recipient was deferred".to_owned(),
            1 => "1 recipient was waiting".to_owned(),
            waiting => format!("{waiting} recipients were waiting"),
        };
        push(out, format_args!("  {}  {what} {} {times}; {waiting}", time(entry.at, zone), domains.join(", ")));
    }
}

impl Refusal {
    fn text(&self, zone: &Zone, out: &mut String) {
        let client = self.client.map(|ip| format!(" [{ip}]")).unwrap_or_default();
        let step = match self.step.as_str() {
            "" => String::new(),
            END_OF_DATA => " at the end of the data".to_owned(),
            step => format!(" at {}", printable(step)),
        };
        let to: Vec<String> = match self.orig_to.as_slice() {
            [] => vec![format!("<{}>", printable(&self.to))],
            all => all.iter().map(|to| format!("<{}>", printable(to))).collect(),
        };
        let user = if self.user.is_empty() { String::new() } else { format!(" by {}", printable(&self.user)) };
        // The client is asked to come again.
        let what = if self.reply.starts_with('4') { "deferred" } else { "refused" };
        push(
            out,
            format_args!(
                "{}  {what}{step}: from <{}> to {},{client}{user}: {}",
                time(self.at, zone),
                printable(&self.from),
                to.join(", "),
                printable(&self.reply),
            ),
        );
        if !self.message_id.is_empty() {
            push(out, format_args!("              Message-ID: {}", printable(&self.message_id)));
        }
        if !self.policy.is_empty() {
            push(out, format_args!("              policy: {}", printable(&self.policy)));
        }
    }
}

/// Appends a line. Writing into a string cannot fail.
fn push(out: &mut String, line: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(line);
    out.push('\n');
}

/// Formats a time as `2026-11-22 10:42:07.123`.
fn time(at: Ms, zone: &Zone) -> String {
    let civil = Civil::of(at, zone);
    format!("{} {:02}:{:02}:{:02}.{:03}", civil.date_text(), civil.hour, civil.minute, civil.second, at % 1_000)
}

/// Formats a duration as `0.120 s`, `4 min 10 s`, `3 h 2 min`, `2 d 1 h`.
fn span(ms: u64) -> String {
    let s = ms / 1_000;
    match s {
        0..60 => format!("{}.{:03} s", s, ms % 1_000),
        60..3_600 => format!("{} min {} s", s / 60, s % 60),
        3_600..86_400 => format!("{} h {} min", s / 3_600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86_400, s / 3_600 % 24),
    }
}

/// Escapes characters that move a terminal's cursor, break a line or change the reading direction as `\xHH` or
/// `\uHHHH`.
fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.chars().enumerate() {
        if at == TEXT_CHARS_MAX {
            out.push_str("...");
            break;
        }
        let is_trap = is_trap(c);
        if c == '\\' {
            out.push_str("\\\\");
        } else if is_trap && c.is_ascii() {
            let _ = write!(out, "\\x{:02x}", c as u32);
        } else if is_trap {
            let _ = write!(out, "\\u{:04x}", c as u32);
        } else {
            out.push(c);
        }
    }
    out
}
