//! Displays replies: tables of at most a [`Width`]. Text from the network is escaped and cut to its column, so that no
//! mail server can control the operator's terminal.

use std::fmt::Write;

use stentor_queue::cause::Cause;
use stentor_queue::ids::Ms;
use stentor_records::civil::Zone;
use stentor_records::escape::printable;
use stentor_records::health::Condition;

use super::address_view::AddressView;
use super::causes::{CauseRow, line_of, most_first, next_try_of, summary, why, why_of};
use super::doctor::Doctor;
use super::foreign::{cut, marked, restored};
use super::format::{
    Width, bytes, counted, grouped, instant, line, localised, next_try, part, plural, resume_command, slot_ago, span,
};
use super::queue_only_view::QueueOnlyView;
use super::recipient_view::{RecipientState, RecipientView};
use super::render_suppressions::scope;
use super::render_tls::{host_tls, weakest_tls};
use super::render_waiting::{given_as, more_sites};
use super::reply::{ActionView, ControlReply, Fates, MessageView, QueueSummary, SiteRow, Status};
use super::site_view::{PathView, SiteView};
use super::standing_view::StandingBounceView;
use super::users_view::UsersView;
use super::verify_view::VerifyView;

const SITE_COLUMNS: usize = 34;
const ADDRESS_COLUMNS: usize = 42;
const REASON_CHARS_MAX: usize = 200;

/// Formats any reply, with a line end, in the least width. Instants are in `zone` and show its offset.
pub fn reply(reply: &ControlReply, zone: &Zone) -> String {
    restored(&reply_in(reply, zone, Width::LEAST))
}

/// As [`reply`], in any width, with others' backticks marked for the code that completes hints.
pub fn reply_in(reply: &ControlReply, zone: &Zone, width: Width) -> String {
    match reply {
        ControlReply::Status(s) => status(s),
        ControlReply::Queue(q) => queue(q, width),
        ControlReply::Stuck(s) => super::render_waiting::latedudes(s, width),
        ControlReply::Message(m) => message(m, zone, width),
        ControlReply::Address(a) => address(a, width),
        ControlReply::Verified(v) => verified(v),
        ControlReply::Ages(a) => super::render_ages::ages(a, width),
        ControlReply::Site(s) => site(s, width),
        ControlReply::Mailqq(m) => super::render_waiting::mailqq(m, zone, width),
        ControlReply::Hosts(h) => super::render_waiting::hosts(h, width),
        ControlReply::Posts(p) => super::render_waiting::posts(p, zone, width),
        ControlReply::Post(p) => super::render_post::post(p, zone, width),
        ControlReply::Doctor(d) => doctor(d),
        ControlReply::Users(u) => users(u),
        ControlReply::Quarantine(q) => super::render_quarantine::list(q, width),
        ControlReply::Quarantined(m) => super::render_quarantine::message(m, zone, width),
        ControlReply::Suppressions(all) => super::render_suppressions::list(all, zone, width),
        ControlReply::Lists(table) => super::render_lists::lists(table, width),
        ControlReply::Members(table) => super::render_lists::members(table, zone, width),
        ControlReply::Person(person) => super::render_lists::person(person, zone),
        ControlReply::DkimRecords(records) => super::render_dkim::records(records),
        // A reload adds a line for each warning.
        ControlReply::Done { text, .. } => text.lines().fold(String::new(), |mut out, text| {
            line(&mut out, format_args!("{}", printable(&localised(text, zone, None), 1000)));
            out
        }),
        ControlReply::Counted(counted) => format!("{}\n", printable(&localised(&counted.text, zone, None), 1000)),
        ControlReply::Error(problem) => format!("error: {}\n", printable(&problem.text, 1000)),
    }
}

/// Formats the output of `sendmail -bv`.
fn verified(v: &VerifyView) -> String {
    let mut out = String::new();
    for row in &v.rows {
        let address = printable(&row.address, 320);
        if let Some(why) = &row.refused {
            line(&mut out, format_args!("{address}... {}", printable(why, 1_000)));
            continue;
        }
        let host = if row.host.is_empty() { String::new() } else { format!(", host {}", printable(&row.host, 500)) };
        let (mailer, user) = (&row.mailer, printable(&row.user, 1_000));
        line(&mut out, format_args!("{address}... deliverable: mailer {mailer}{host}, user {user}"));
    }
    if v.more > 0 {
        line(&mut out, format_args!("... and {} more", v.more));
    }
    out
}

/// Formats `stentor queue`: the total, then a row for each site.
pub fn queue(q: &QueueSummary, width: Width) -> String {
    let mut out = head(q);
    site_rows(&mut out, &q.sites, q.now, width);
    if !q.sites.is_empty() {
        more_sites(&mut out, q.sites_total, q.domains_total, &q.sites);
    }
    out
}

/// Formats the totals of the queue, and why it waits.
fn head(q: &QueueSummary) -> String {
    let mut out = String::new();
    if q.messages == 0 && !q.part.is_empty() {
        return format!("{}: no mail {} is waiting\n", cut(&q.hostname, 60), printable(&q.part, 300));
    }
    if q.messages == 0 {
        return format!("{}: the queue is empty\n", cut(&q.hostname, 60));
    }
    let (messages, recipients) = (plural(q.messages, "message"), plural(q.recipients, "recipient"));
    let size = bytes(q.content_bytes);
    let held = if q.held > 0 { format!("; {} held", plural(q.held, "message")) } else { String::new() };
    let of = part(&q.part);
    line(&mut out, format_args!("{}: {messages} ({size}), {recipients}{of} waiting{held}", cut(&q.hostname, 40)));
    if let Some(oldest) = q.oldest {
        let id = cut(q.oldest_id.as_deref().unwrap_or(""), 20);
        line(&mut out, format_args!("oldest: {id}, accepted {} ago", span(q.now.saturating_sub(oldest))));
    }
    counted(&mut out, q.counted, q.now);
    cause_rows(&mut out, &q.causes, q.now);
    out
}

/// Adds the causes, largest first.
fn cause_rows(out: &mut String, causes: &[CauseRow], now: Ms) {
    for row in most_first(causes) {
        line(out, format_args!("{}", line_of(row, now)));
    }
}

/// Formats `stentor queue --by list`: the total, then a row for each list.
pub fn queue_by_list(q: &QueueSummary, width: Width) -> String {
    let mut out = head(q);
    if q.lists.is_empty() {
        return out;
    }
    let name = width.fit(24, q.lists.iter().map(|row| row.list.as_str()));
    out.push('\n');
    line(
        &mut out,
        format_args!("{:>8} {:>7} {:>8} {:>8}  {:<name$}  {}", "waiting", "msgs", "oldest", "next try", "list", "why"),
    );
    for row in &q.lists {
        let list = if row.list.is_empty() { "(no list)".to_owned() } else { cut(&row.list, name) };
        let oldest = row.oldest.map_or_else(|| "-".to_owned(), |at| span(q.now.saturating_sub(at)));
        let (waiting, messages, next) = (row.waiting, row.messages, next_try_of(&row.causes, row.next_try, q.now));
        let why = cut(&summary(&row.causes), width.rest(8 + 1 + 7 + 1 + 8 + 1 + 8 + 2 + 24 + 2));
        line(&mut out, format_args!("{waiting:>8} {messages:>7} {oldest:>8} {next:>8}  {list:<name$}  {why}"));
    }
    out
}

fn site_rows(out: &mut String, sites: &[SiteRow], now: Ms, width: Width) {
    if sites.is_empty() {
        return;
    }
    let name = width.fit(SITE_COLUMNS, sites.iter().map(|row| row.site.as_str()));
    let rest = width.rest(8 + 1 + 7 + 1 + 5 + 1 + 8 + 2 + name + 2);
    out.push('\n');
    let heading =
        format_args!("{:>8} {:>7} {:>5} {:>8}  {:<name$}  {}", "waiting", "msgs", "conns", "next try", "site", "why");
    line(out, heading);
    for row in sites {
        let next = next_try_of(&row.causes, row.next_try, now);
        let (site, last) = (cut(&row.site, name), cut(&why_of(&row.causes, &row.last_reply), rest));
        let (waiting, messages, connections) = (row.waiting, row.messages, row.connections);
        line(out, format_args!("{waiting:>8} {messages:>7} {connections:>5} {next:>8}  {site:<name$}  {last}"));
    }
}

/// Formats `stentor queue show ID`: the message, then a row for each pending recipient.
pub fn message(m: &MessageView, zone: &Zone, width: Width) -> String {
    let mut out = String::new();
    let list = m.list.as_deref().map(|list| format!(", list {}", cut(list, 30))).unwrap_or_default();
    let age = span(m.now.saturating_sub(m.accepted));
    let held = if m.held { ", HELD" } else { "" };
    let expires = m.expires.map(|at| format!(", expires in {}", span(at.saturating_sub(m.now)))).unwrap_or_default();
    line(&mut out, format_args!("{}  {}  {}{list}{held}", cut(&m.id, 20), bytes(m.size), cut(&m.class, 20)));
    line(&mut out, format_args!("  accepted    {} ({age} ago){expires}", instant(m.accepted, zone)));
    let given = given_as(m.given_sender.as_deref(), width);
    line(
        &mut out,
        format_args!("  from        <{}>{given} by {}", cut(&m.sender, width.column(60)), cut(&m.origin, 20)),
    );
    if let Some(subject) = &m.subject {
        let subject = if subject.is_empty() { "(none)" } else { subject };
        line(&mut out, format_args!("  subject     {}", cut(subject, width.rest(15))));
    }
    if !m.message_id.is_empty() {
        line(&mut out, format_args!("  message-id  {}", cut(&m.message_id, width.rest(15))));
    }
    if !m.held_by.is_empty() {
        line(&mut out, format_args!("  held by     {}", cut(&m.held_by, width.rest(15))));
        if let Some(since) = m.held_since {
            let age = span(m.now.saturating_sub(since));
            line(&mut out, format_args!("  held since  {} ({age} ago)", instant(since, zone)));
        }
    }
    line(&mut out, format_args!("  recipients  {}", fates(&m.fates)));
    if m.recipients.is_empty() {
        return out;
    }
    let name = width.fit(ADDRESS_COLUMNS, m.recipients.iter().map(|row| row.address.as_str()));
    let rest = width.rest(9 + 1 + 8 + 2 + name + 2);
    out.push('\n');
    line(&mut out, format_args!("{:<9} {:>8}  {:<name$}  {}", "state", "next try", "recipient", "why"));
    for r in &m.recipients {
        let (state, next) = waiting_state(r, m.now);
        let last = why(&r.words, &r.last_reply, r.since);
        let (address, last) = (cut(&r.address, name), cut(last, rest));
        line(&mut out, format_args!("{state:<9} {next:>8}  {address:<name$}  {last}"));
    }
    let more = m.fates.pending.saturating_sub(m.recipients.len() as u64);
    if more > 0 {
        line(&mut out, format_args!("... and {}", plural(more, "more recipient")));
    }
    out
}

/// A pending recipient's state and next attempt.
fn waiting_state(r: &RecipientView, now: Ms) -> (&'static str, String) {
    match r.state {
        RecipientState::Waiting => ("waiting", next_try(r.next_try, now)),
        RecipientState::InFlight => ("in flight", "-".to_owned()),
        RecipientState::Deferred => ("deferred", next_try(r.next_try, now)),
        RecipientState::Held => ("held", "-".to_owned()),
        RecipientState::Suspended => ("suspended", "-".to_owned()),
        RecipientState::QueueOnly => ("queue-only", "-".to_owned()),
        RecipientState::Other => ("other", next_try(r.next_try, now)),
    }
}

/// Formats `stentor address ADDR`.
pub fn address(a: &AddressView, width: Width) -> String {
    let mut out = String::new();
    let (m, h) = (&a.mailbox, &a.hosts);
    let ago = |at: Option<Ms>| slot_ago(at, a.now);
    // Values never measured are omitted.
    let took = |what: &str, ms: Option<Ms>| {
        ms.map_or_else(String::new, |ms| format!("{what} {}.{:03}s", ms / 1_000, ms % 1_000))
    };
    line(&mut out, format_args!("{}", cut(&a.address, 80)));
    for (n, words) in a.here.iter().enumerate() {
        let name = if n == 0 { "here" } else { "" };
        line(&mut out, format_args!("  {name:<9} {}", cut(words, width.rest(12))));
    }
    for entry in &a.suppressions {
        let end = entry.expires.map_or_else(String::new, |at| format!(", ends in {}", next_try(Some(at), a.now)));
        let words = format!("{} for {} ({}){end}", entry.subject, scope(entry), entry.reason);
        line(&mut out, format_args!("  suppressed {}", cut(&words, width.rest(13))));
    }
    if a.mailbox.last.is_empty() && !(a.here.is_empty() && a.suppressions.is_empty()) {
        return out;
    }
    let failed = a.pending.as_ref().and_then(|pending| Cause::of_name(&pending.cause));
    let failed = failed.filter(|cause| matches!(cause, Cause::Dns | Cause::Routing | Cause::Table));
    let place = match &a.site {
        Some(site) => format!("at {}", cut(site, width.column(40))),
        None => failed.map_or("not looked up yet", Cause::words).to_owned(),
    };
    line(&mut out, format_args!("  domain    {}, {place}", cut(&a.domain, width.column(40))));
    let lists = if a.lists.is_empty() { "none".to_owned() } else { a.lists.join(", ") };
    line(&mut out, format_args!("  lists     {}", cut(&lists, 85)));
    for list in &a.suspended {
        let command = resume_command(&format!("subscriber:{list}:{}", a.address)).unwrap_or_default();
        let reason = in_brackets(a.suspended_reasons.get(list).map(String::as_str));
        line(&mut out, format_args!("  suspended from list {list}{reason}: `{command}`"));
    }
    line(
        &mut out,
        format_args!("  waiting   {} {}", plural(a.messages_total, "message"), cut(&a.messages.join(" "), 70)),
    );
    let refused = if m.refusals > 0 {
        format!(", refused {}, first {}", plural(m.refusals.into(), "time"), ago(m.refused_since))
    } else {
        String::new()
    };
    if let Some(pending) = &a.pending {
        let (state, next) = waiting_state(pending, a.now);
        let next = if next == "-" { String::new() } else { format!(", next try {next}") };
        let why = why(&pending.words, &pending.last_reply, pending.since);
        let rest = width.rest(12 + state.len() + next.len() + 2);
        let why = if why.is_empty() { String::new() } else { format!(": {}", cut(why, rest)) };
        line(&mut out, format_args!("            {state}{next}{why}"));
    }
    let seen = ago(m.last_seen);
    let last = match m.last.as_str() {
        "untried" => "no reply about it yet".to_owned(),
        last => format!("last {} {seen}{}", cut(last, 20), took(", xdelay", m.xdelay_ms)),
    };
    line(&mut out, format_args!("  mailbox   {last}{refused}"));
    line(
        &mut out,
        format_args!(
            "  hosts     {}, {}{}{}",
            plural(h.answered.into(), "answered attempt"),
            plural(h.failed.into(), "failed attempt"),
            took("; xdelay", h.xdelay_ms),
            took(", 99 % within", h.p99_ms.filter(|_| h.xdelay_ms.is_some()))
        ),
    );
    let (success, failure) = (ago(h.last_success), ago(h.last_failure));
    line(&mut out, format_args!("            last success {success}, last failure {failure}"));
    out
}

/// Formats `stentor site NAME`: waiting mail, the reason, and each source's hosts.
pub fn site(s: &SiteView, width: Width) -> String {
    let mut out = String::new();
    let end = s.suspended_until.map_or_else(String::new, |at| format!(", resumes in {}", next_try(Some(at), s.now)));
    let reason = in_brackets(s.suspended_reason.as_deref());
    let suspended = if s.suspended { format!(", SUSPENDED{end}{reason}") } else { String::new() };
    let (recipients, messages) = (plural(s.waiting, "recipient"), plural(s.messages, "message"));
    let of = if s.list.is_empty() { String::new() } else { format!(" of list {}", cut(&s.list, 40)) };
    line(&mut out, format_args!("{}: {recipients} of {messages}{of} waiting{suspended}", cut(&s.site, 60)));
    if s.is_unresolved {
        let state = match (s.waiting, s.last_reply.is_empty()) {
            (0, true) => "not looked up since the server started",
            (_, true) => "lookup in progress",
            (_, false) => "lookup failed",
        };
        line(&mut out, format_args!("  hosts        unknown: {state}"));
    }
    counted(&mut out, s.counted, s.now);
    cause_rows(&mut out, &s.causes, s.now);
    if !s.waits_for.is_empty() {
        line(&mut out, format_args!("  waits for    {}", cut(&s.waits_for, width.rest(15))));
    }
    if s.next_try.is_some() {
        line(&mut out, format_args!("  next try     {}", next_try(s.next_try, s.now)));
    }
    if !s.last_reply.is_empty() {
        line(&mut out, format_args!("  last reply   {}", cut(&s.last_reply, width.rest(15))));
    }
    if let Some(weak) = &s.weakest_tls {
        line(&mut out, format_args!("  weakest TLS  {}", weakest_tls(weak, s.now, width)));
    }
    for path in &s.paths {
        site_path(&mut out, path, s.now, width);
    }
    out
}

fn site_path(out: &mut String, path: &PathView, now: Ms, width: Width) {
    let from = if path.source.is_empty() { String::new() } else { format!("from {}: ", cut(&path.source, 30)) };
    // May exceed the limit for a while after that has sunk.
    let open = plural(path.connections, "connection");
    let used = format!("{open} open (limit {}, {} silent)", path.connections_max, path.silent);
    line(out, format_args!("  {from}{used}, {} in flight", plural(path.transactions_under_way, "transaction")));
    let limits = [
        path.transactions_per_connection_max.map(|n| plural(n, "message") + " per connection"),
        path.recipients_per_transaction_max.map(|n| plural(n, "recipient") + " per transaction"),
        path.messages_per_minute_max.map(|n| plural(n, "message") + " per minute"),
        path.paused_until.map(|at| next_try(Some(at), now) + " of pause left after a rate-limit reply"),
    ];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    if !limits.is_empty() {
        line(out, format_args!("    limits: {}", limits.join(", ")));
    }
    for host in &path.hosts {
        let name = format!("{} [{}]", cut(&host.host, 34), cut(&host.address, 47));
        line(out, format_args!("    {name}: {}", host.state(now)));
        if !host.last_reply.is_empty() {
            line(out, format_args!("        {}", cut(&host.last_reply, width.rest(12))));
        }
        host_tls(out, host, now, width);
    }
}

/// Formats users with their submissions.
fn users(u: &UsersView) -> String {
    let mut out = String::new();
    line(&mut out, format_args!("{}: {}", cut(&u.hostname, 60), plural(u.users_total, "user")));
    for row in &u.rows {
        let shares = row.shares().map(|(what, share)| format!("{what} {}", share.words())).join(", ");
        let locked = if row.locked { ", locked" } else { "" };
        line(&mut out, format_args!("{}  {shares}{locked}", cut(&row.user, ADDRESS_COLUMNS)));
    }
    out
}

/// Formats `stentor doctor` for a running server.
pub fn doctor(d: &Doctor) -> String {
    let mut out = String::new();
    for finding in &d.findings {
        for part in finding.text().lines() {
            line(&mut out, format_args!("{}", printable(part, 1_000)));
        }
    }
    out
}

/// Formats `stentor status`.
pub fn status(s: &Status) -> String {
    let mut out = String::new();
    let up = span(s.now.saturating_sub(s.started));
    let stopping = if s.stopping { ", stopping" } else { "" };
    let version = cut(&s.version, 20);
    line(&mut out, format_args!("{}: stentor {version}, pid {}, up {up}{stopping}", cut(&s.hostname, 40), s.pid));
    for condition in &s.health {
        health(&mut out, condition, s.now);
    }
    let (messages, addresses) = (plural(s.messages, "message"), plural(s.addresses, "address"));
    let held = if s.held > 0 { format!(" ({} held)", grouped(s.held)) } else { String::new() };
    line(&mut out, format_args!("  queue        {messages}{held}, {addresses} known"));
    line(&mut out, format_args!("  recipients   {}", fates(&s.recipients)));
    line(&mut out, format_args!("  connections  {} in, {} out", s.connections_in, s.connections_out));
    line(
        &mut out,
        format_args!(
            "  journal      {} in {}, {} of content, {} free",
            plural(s.journal_syncs, "sync"),
            plural(s.journal_segments, "segment"),
            bytes(s.content_bytes),
            bytes(s.disk_free_bytes)
        ),
    );
    if let Some(ActionView { verb, who, since, recipients }) = &s.action {
        let (done, since) = (plural(*recipients, "recipient"), span(s.now.saturating_sub(*since)));
        let (verb, who) = (cut(&verb.replace('_', " "), 20), cut(who, 60));
        line(&mut out, format_args!("  action       {verb}: {done} so far, by {who}, since {since}"));
    }
    if s.journal_abandoned > 0 {
        let given_up = plural(s.journal_abandoned, "segment");
        line(&mut out, format_args!("  disk         FAILS: {given_up} given up, see `stentor doctor`"));
    }
    line(
        &mut out,
        format_args!("  dns          {}, {}", plural(s.dns_queries, "query"), plural(s.dns_failures, "failed lookup")),
    );
    if s.history_lost > 0 {
        line(&mut out, format_args!("  history      {} lost", plural(s.history_lost, "record")));
    }
    if s.log_lines_lost > 0 {
        line(&mut out, format_args!("  log          {} lost", plural(s.log_lines_lost, "line")));
    }
    if s.suppressed > 0 {
        let (removed, all) = (plural(s.suppressed, "recipient"), plural(s.suppressions, "suppression"));
        line(&mut out, format_args!("  suppressed   {removed} removed; {all} in the registry"));
    }
    if s.submissions > 0 {
        line(&mut out, format_args!("  submissions  {}", s.submissions_in_words()));
    }
    if let Some(why) = &s.submissions_unusable {
        line(&mut out, format_args!("  SUBMISSIONS  wait: {}", cut(why, 100)));
    }
    for key in &s.restart_pending {
        line(&mut out, format_args!("  RESTART      pending: {} has changed", cut(key, 80)));
    }
    for trouble in &s.webhooks_troubled {
        line(&mut out, format_args!("  webhook      {}", cut(trouble, 100)));
    }
    actions_in_force(&mut out, s);
    out
}

/// Adds suspensions, standing bounces and queue-only mail, each with its end or the command that ends it, and a queue
/// run.
fn actions_in_force(out: &mut String, s: &Status) {
    for what in &s.suspended {
        // A cut command would be useless.
        let command =
            resume_command(what).map_or_else(String::new, |command| format!(": `{}`", printable(&command, 1_000)));
        let end = s.suspended_until.get(what);
        let end = end.map_or_else(String::new, |at| format!(", resumes in {}", next_try(Some(*at), s.now)));
        let reason = in_brackets(s.suspended_reasons.get(what).map(String::as_str));
        line(out, format_args!("  SUSPENDED    {}{end}{reason}{command}", cut(what, 80)));
    }
    let more = s.suspended_total.saturating_sub(s.suspended.len() as u64);
    if more > 0 {
        line(out, format_args!("  SUSPENDED    and {more} more"));
    }
    for bounce in &s.standing_bounces {
        line(out, format_args!("  BOUNCED      {}", standing_bounce(bounce, s.now)));
    }
    for view in &s.queue_only {
        line(out, format_args!("  QUEUE-ONLY   {}", queue_only_line(view, s.now)));
    }
    if let Some(since) = s.queue_run_since {
        line(out, format_args!("  queue run    in progress for {}", span(s.now.saturating_sub(since))));
    }
}

/// Adds a problem and what to do, in two lines.
fn health(out: &mut String, condition: &Condition, now: Ms) {
    let (severity, since) = (condition.severity.words(), span(now.saturating_sub(condition.since)));
    let start = if condition.refuses_mail { "refusing mail: " } else { "" };
    let (what, next) = (marked(&printable(&condition.what, 600)), printable(&condition.next, 400));
    line(out, format_args!("  {severity:<12} {start}{what} (for {since})"));
    line(out, format_args!("               next: {next}"));
}

/// Formats queue-only scopes, and how each ends.
pub fn queue_only(s: &Status) -> String {
    let mut out = String::new();
    for view in &s.queue_only {
        line(&mut out, format_args!("{}", queue_only_line(view, s.now)));
    }
    if s.queue_only.is_empty() {
        line(&mut out, format_args!("no mail is queue-only"));
    }
    out
}

/// A reason in parentheses; empty if there is none.
fn in_brackets(reason: Option<&str>) -> String {
    let reason = marked(&printable(reason.unwrap_or_default(), REASON_CHARS_MAX));
    if reason.is_empty() { reason } else { format!(" ({reason})") }
}

fn queue_only_line(view: &QueueOnlyView, now: Ms) -> String {
    let (words, reason) = (marked(&printable(&view.words(), 200)), in_brackets(Some(&view.reason)));
    let end = view.until.map_or_else(String::new, |at| format!(", ends in {}", next_try(Some(at), now)));
    format!("{words}{end}{reason}: {}; `stentor queue run` tries it once", printable(&view.end(), 1_000))
}

/// Formats standing bounces, and what they have done.
pub fn standing_bounces(s: &Status) -> String {
    let mut out = String::new();
    for bounce in &s.standing_bounces {
        line(&mut out, format_args!("{}", standing_bounce(bounce, s.now)));
    }
    if s.standing_bounces.is_empty() {
        line(&mut out, format_args!("no standing bounces"));
    }
    if s.standing_bounced > 0 {
        let bounced = plural(s.standing_bounced, "recipient");
        line(&mut out, format_args!("{bounced} bounced by standing bounces since the server started"));
    }
    out
}

fn standing_bounce(bounce: &StandingBounceView, now: Ms) -> String {
    let (words, reason) = (marked(&printable(&bounce.words(), 200)), marked(&printable(&bounce.reason, 200)));
    let (end, command) = (next_try(Some(bounce.until), now), printable(&bounce.end_command(), 1_000));
    format!("{words}, ends in {end} ({reason}): `{command}`")
}

/// Formats the total and its parts that are not zero.
fn fates(f: &Fates) -> String {
    let mut out = f.acknowledged.to_string();
    let parts = [
        (f.delivered, "delivered"),
        (f.bounced, "bounced"),
        (f.expired, "expired"),
        (f.removed, "removed"),
        (f.quarantined, "quarantined"),
        (f.coalesced, "coalesced"),
        (f.pending, "pending"),
    ];
    let mut sign = ": ";
    for (n, name) in parts.into_iter().filter(|(n, _)| *n > 0) {
        // Writing to a String cannot fail.
        let _ = write!(out, "{sign}{n} {name}");
        sign = ", ";
    }
    out
}
