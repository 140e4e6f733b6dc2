//! Displays waiting mail: the tables of `mailqq`, `latedudes`, `hosts` and `report`. As in [`super::render`], text is
//! escaped and cut.

use stentor_records::civil::Zone;
use stentor_records::escape::printable;

use super::causes::{next_try_for, next_try_of, summary, why, why_of};
use super::foreign::cut;
use super::format::{
    Width, bytes, counted, date_time, duration, instant, line, localised, next_try, part, percent, plural, slot_ago,
    span,
};
use super::observe::{ComplaintView, HostRow, Hosts, Mailqq, PostReports};
use super::posts::PostReport;
use super::render_tls::{host_tls, weakest_tls};
use super::reply::{SiteRow, StuckReport};
use super::site_view::site_state;

const NAME_COLUMNS: usize = 40;

/// Formats `stentor mailqq`: pending recipients, queue id (`*`: being delivered), octets, date, sender, list; the
/// total.
pub fn mailqq(m: &Mailqq, zone: &Zone, width: Width) -> String {
    let mut out = String::new();
    if m.messages == 0 {
        return format!("{}: no recipients waiting\n", cut(&m.hostname, 60));
    }
    if !m.rows.is_empty() {
        let date = format!("date ({})", zone.label(m.now));
        line(&mut out, format_args!("{:>10}  {:<14} {:>10}  {date:<19}  {}", "recipients", "id", "length", "sender"));
    }
    for row in &m.rows {
        let mark = if row.in_flight > 0 { '*' } else { ' ' };
        let (sender, held) = (cut(&row.sender, width.column(NAME_COLUMNS)), if row.held { ", held" } else { "" });
        let given = given_as(row.given_sender.as_deref(), width);
        let list = row.list.as_deref().map(|list| format!(" list {}", cut(list, width.column(24)))).unwrap_or_default();
        let (pending, id, size) = (row.here.unwrap_or(row.pending), format!("{}{mark}", cut(&row.id, 12)), row.size);
        let date = date_time(row.accepted, zone);
        line(&mut out, format_args!("{pending:>10}  {id:<14} {size:>10}  {date:<19}  <{sender}>{given}{list}{held}"));
        if let Some(subject) = row.subject.as_deref().filter(|subject| !subject.is_empty()) {
            line(&mut out, format_args!("{:>28}Subject: {}", "", cut(subject, width.rest(37))));
        }
        if row.causes.iter().any(|cause| !cause.cause().is_moving()) {
            line(&mut out, format_args!("{:>28}{}", "", cut(&summary(&row.causes), width.rest(28))));
        }
    }
    if m.rows.is_empty() && m.stopped_after.is_none() {
        line(&mut out, format_args!("no messages match"));
        return out;
    }
    if let (Some(messages), Some(recipients)) = (m.matching_messages, m.matching_recipients) {
        line(&mut out, format_args!("{recipients:>10}  of {} match", plural(messages, "message")));
    }
    let (recipients, sum) = (m.recipients, plural(m.messages, "message"));
    line(&mut out, format_args!("{recipients:>10}  in all, {sum}, {}", bytes(m.octets)));
    if let Some(after) = &m.stopped_after {
        let (looked, after) = (m.looked_at, cut(after, 20));
        line(&mut out, format_args!("only the oldest {looked} were examined; continue with --after {after}"));
    }
    out
}

/// The sender that the client gave, if the mail leaves with another.
pub(crate) fn given_as(given: Option<&str>, width: Width) -> String {
    let given = given.filter(|given| !given.is_empty());
    given.map(|given| format!(" (original sender <{}>)", cut(given, width.column(NAME_COLUMNS)))).unwrap_or_default()
}

/// Formats `stentor latedudes`: each row with its cause and advice.
pub fn latedudes(s: &StuckReport, width: Width) -> String {
    let mut out = String::new();
    if s.is_counting {
        line(&mut out, format_args!("{}: still counting, more will follow", cut(&s.hostname, 60)));
    }
    if s.recipients.is_empty() && s.sites.is_empty() {
        line(&mut out, format_args!("{}: no recipients waiting{}", cut(&s.hostname, 60), part(&s.part)));
        return out;
    }
    if !s.part.is_empty() {
        line(&mut out, format_args!("{}: mail{}", cut(&s.hostname, 60), part(&s.part)));
    }
    counted(&mut out, s.counted, s.now);
    if !s.sites.is_empty() {
        stuck_sites(&mut out, s, width);
    }
    if !s.sites.is_empty() && !s.recipients.is_empty() {
        out.push('\n');
    }
    if !s.recipients.is_empty() {
        stuck_recipients(&mut out, s, width);
    }
    out
}

fn age(oldest: Option<u64>, now: u64) -> String {
    oldest.map_or_else(|| "-".to_owned(), |at| span(now.saturating_sub(at)))
}

fn stuck_sites(out: &mut String, s: &StuckReport, width: Width) {
    line(out, format_args!("{:>10} {:>8} {:>8}  {}", "recipients", "oldest", "next try", "site"));
    for row in &s.sites {
        let next = next_try_of(&row.causes, row.next_try, s.now);
        let (recipients, oldest) = (row.waiting, age(row.oldest, s.now));
        let messages = plural(row.messages, "message");
        let site = cut(&row.site, width.column(60));
        line(out, format_args!("{recipients:>10} {oldest:>8} {next:>8}  {site}, {messages}"));
        details(out, &why_of(&row.causes, &row.last_reply), &row.action, width);
    }
    more_sites(out, s.sites_total, s.domains_total, &s.sites);
}

fn stuck_recipients(out: &mut String, s: &StuckReport, width: Width) {
    line(out, format_args!("{:>8} {:>8} {:>8}  {}", "messages", "oldest", "next try", "recipient"));
    let mut advised = "";
    for row in &s.recipients {
        let next = next_try_for(&row.state.cause, row.state.next_try, s.now);
        let (messages, oldest) = (row.messages, age(row.oldest, s.now));
        let address = cut(&row.state.address, width.column(70));
        line(out, format_args!("{messages:>8} {oldest:>8} {next:>8}  {address}"));
        let why = why(&row.state.words, &row.state.last_reply, row.state.since);
        // Print repeated advice once: a dead host may have thousands of rows.
        let action = if row.action == advised { "" } else { &row.action };
        details(out, why, action, width);
        advised = &row.action;
    }
    more(out, s.recipients_total, s.recipients.len(), "recipient");
}

/// Adds the number of rows not shown.
fn more(out: &mut String, total: u64, shown: usize, what: &str) {
    let hidden = total.saturating_sub(shown as u64);
    if hidden > 0 {
        line(out, format_args!("... and {}", plural(hidden, &format!("more {what}"))));
    }
}

/// Adds the number of sites, including domains without one, not shown.
pub(crate) fn more_sites(out: &mut String, total: u64, domains_total: u64, shown: &[SiteRow]) {
    let domains = shown.iter().filter(|row| row.is_unresolved).count();
    more(out, total.saturating_sub(domains_total), shown.len() - domains, "site");
    more(out, domains_total, domains, "unresolved domain");
}

fn details(out: &mut String, why: &str, action: &str, width: Width) {
    const INDENT: &str = "                            ";
    if !why.is_empty() {
        line(out, format_args!("{INDENT}{}", cut(why, width.rest(INDENT.len()))));
    }
    if !action.is_empty() {
        // A cut command would be useless.
        line(out, format_args!("{INDENT}-> {}", printable(action, 1_000)));
    }
}

/// Formats `stentor hosts`.
pub fn hosts(h: &Hosts, width: Width) -> String {
    let mut out = String::new();
    let (hostname, matching) = (cut(&h.hostname, 60), plural(h.matching, "site"));
    let of = if h.part.is_empty() { String::new() } else { format!("; mail{}", part(&h.part)) };
    line(&mut out, format_args!("{hostname}: {matching} of {} known{of}", h.sites_total));
    counted(&mut out, h.counted, h.now);
    for row in &h.rows {
        host_row(&mut out, row, h.now, width);
    }
    let shown = h.offset + h.rows.len() as u64;
    if shown < h.matching {
        line(
            &mut out,
            format_args!("... and {}; continue with --offset {shown}", plural(h.matching - shown, "more site")),
        );
    }
    out
}

/// A site's state in the console's words.
fn state_of(lane: &str) -> String {
    site_state(lane).map_or_else(|| cut(lane, 12), str::to_lowercase)
}

fn host_row(out: &mut String, row: &HostRow, now: u64, width: Width) {
    let ago = |at: Option<u64>| slot_ago(at, now);
    let (site, lane, waiting) =
        (cut(&row.site, width.column(50)), state_of(&row.lane), plural(row.waiting, "recipient"));
    let connections = plural(row.connections, "connection");
    line(out, format_args!("{site}  {lane}, {waiting} waiting, {connections}"));
    if !row.waits_for.is_empty() {
        line(out, format_args!("    waits for    {}", cut(&row.waits_for, width.rest(17))));
    }
    if row.next_try.is_some() {
        line(out, format_args!("    next try     {}", next_try(row.next_try, now)));
    }
    if !row.last_reply.is_empty() {
        line(out, format_args!("    last reply   {}", cut(&row.last_reply, width.rest(17))));
    }
    let history = &row.history;
    let took = history.xdelay_ms.map_or_else(String::new, |ms| format!(", xdelay {}.{:03}s", ms / 1_000, ms % 1_000));
    let latency = if row.latency_ms > 0 { format!("; latency {} ms", row.latency_ms) } else { String::new() };
    // The history is kept by domain.
    let of = if row.domains > 1 { format!("{}: ", cut(&row.domain, 40)) } else { String::new() };
    let answered = plural(history.answered.into(), "answered attempt");
    let failed = plural(history.failed.into(), "failed attempt");
    let (success, failure) = (ago(history.last_success), ago(history.last_failure));
    line(
        out,
        format_args!("    history      {of}{answered} (last {success}), {failed} (last {failure}){took}{latency}"),
    );
    if let Some(weak) = &row.weakest_tls {
        line(out, format_args!("    weakest TLS  {}", weakest_tls(weak, now, width)));
    }
    for host in &row.hosts {
        line(out, format_args!("    {} [{}]: {}", cut(&host.host, 34), cut(&host.address, 47), host.state(now)));
        if !host.last_reply.is_empty() {
            line(out, format_args!("        {}", cut(&host.last_reply, width.rest(12))));
        }
        host_tls(out, host, now, width);
    }
}

/// Formats `stentor report`.
pub fn posts(p: &PostReports, zone: &Zone, width: Width) -> String {
    let mut out = String::new();
    if p.rows.is_empty() {
        line(&mut out, format_args!("{}: no posts since the server started", cut(&p.hostname, 60)));
    }
    for row in &p.rows {
        let list = if row.list.is_empty() {
            format!("from <{}>", cut(&row.sender, width.column(NAME_COLUMNS)))
        } else {
            cut(&row.list, width.column(40))
        };
        let state = match (row.pending, row.held) {
            (0, _) => ", finished",
            (_, true) => ", held",
            (_, false) => ", running",
        };
        let recipients = plural(row.total, "recipient");
        line(
            &mut out,
            format_args!("{} {}  {list}, {recipients}{state}", cut(&row.id, 12), instant(row.accepted, zone)),
        );
        if let Some(subject) = row.subject.as_deref().filter(|subject| !subject.is_empty()) {
            line(&mut out, format_args!("    Subject: {}", cut(subject, width.rest(13))));
        }
        line(&mut out, format_args!("    {}", printable(&localised(&row.text, zone, Some(p.now)), 1_000)));
        let t = &row.timeline;
        if p.rows.len() == 1 && t.count > 0 {
            let parts = [(50, t.p50_ms), (90, t.p90_ms), (95, t.p95_ms), (99, t.p99_ms), (100, t.p100_ms)];
            let parts: Vec<String> = parts.iter().map(|(part, ms)| format!("{part} % {}", duration(*ms))).collect();
            line(&mut out, format_args!("    of {} delivered: {}", t.count, parts.join(", ")));
        }
        for place in row.waiting.iter().filter(|_| p.rows.len() == 1) {
            let next = next_try_for(&place.cause, place.next_try, p.now);
            let (recipients, site) = (place.recipients, cut(&place.site, width.column(40)));
            let why = why(&place.words, &place.last_reply, place.since);
            line(
                &mut out,
                format_args!("    {recipients:>8} at {site}, next try {next}  {}", cut(why, width.column(60))),
            );
        }
        let hidden = row.pending.saturating_sub(row.waiting.iter().map(|place| place.recipients).sum());
        if hidden > 0 && !row.waiting.is_empty() {
            line(&mut out, format_args!("    {hidden:>8} more; --limit shows more rows"));
        }
        if p.rows.len() == 1 {
            render_failures(&mut out, row, width);
        }
    }
    if !p.complaints.is_empty() {
        complaints(&mut out, &p.complaints, width);
    }
    out
}

fn complaints(out: &mut String, rows: &[ComplaintView], width: Width) {
    line(out, format_args!("\nComplaints\n   rate  complaints  delivered  unproven  window  about"));
    for row in rows {
        let rate = percent(row.complaints, row.delivered);
        let (window, subject) = (cut(&row.window, 6), cut(&row.subject, 10));
        let name = cut(&row.name, width.column(NAME_COLUMNS));
        line(
            out,
            format_args!(
                "{rate:>7}  {:>10}  {:>9}  {:>8}  {window:<6}  {subject} {name}",
                row.complaints, row.delivered, row.unproven
            ),
        );
    }
}

/// Adds the recipients that bounced or expired, and the command that shows all.
fn render_failures(out: &mut String, row: &PostReport, width: Width) {
    for rcpt in &row.failed {
        let (fate, address) = (cut(&rcpt.fate, 10), cut(&rcpt.address, width.column(NAME_COLUMNS)));
        let reply = cut(&rcpt.reply, width.rest(14 + address.chars().count()));
        line(out, format_args!("    {fate} {address}  {reply}"));
    }
    let hidden = (row.bounced + row.expired).saturating_sub(row.failed.len() as u64);
    if hidden > 0 {
        let (and, what) = if row.failed.is_empty() { ("", "recipient") } else { ("and ", "more recipient") };
        let (hidden, id) = (plural(hidden, what), cut(&row.id, 20));
        line(out, format_args!("    {and}{hidden} failed: `stentor trace {id} --only bounced,expired`"));
    }
}
