//! The delivery report as a mail.
//!
//! Promise: one per post, from the null sender and marked as automatic, so that it is neither answered nor bounced (RFC
//! 3834 section 2, RFC 5321 section 4.5.5); no list ever gets one, and there are no reports about reports. It is sent
//! when the fast lane has finished the post, or at the configured time.
//!
//! Failure answer: a report that cannot be stored is dropped and logged. A restart between the post and its report also
//! loses it.

use std::fmt::Write;
use std::sync::Arc;

use stentor_config::ReportTo;
use stentor_control::PostReport;
use stentor_core::Core;
use stentor_core::envelope::EnvelopeRcpt;
use stentor_core::intake::IntakeRefusal;
use stentor_core::live::posts::Post;
use stentor_core::own::NoticeText;
use stentor_mail::address::Address;
use stentor_mail::dsn::format_date;
use stentor_queue::cause::Cause;
use stentor_records::civil::Zone;
use stentor_records::escape::printable;

use super::words;

const REPLY_CHARS_MAX: usize = 300;

pub(super) async fn send(core: Arc<Core>, post: Arc<Post>, to: ReportTo) {
    let (named, people) = match people(&core, &post, to).await {
        Ok((_, people)) if people.is_empty() => return,
        Ok(found) => found,
        Err(refused) => return tracing::warn!(post = %post.id, %refused, "could not send a delivery report"),
    };
    // A finished post is still known here.
    let Some(report) = super::post(&core, post.id, None, &Zone::utc()).await else { return };
    let note = NoticeText {
        to: people,
        named,
        subject: format!("{}: delivery report of {}", post.list, post.id),
        what: "report of a post",
        word: "report",
        text: &text(&report),
    };
    if note.hand_in(&core).await.is_err() {
        tracing::warn!(post = %post.id, "could not store a delivery report");
    }
}

/// The report's addresses, and the recipients behind them, without duplicates.
async fn people(core: &Core, post: &Post, to: ReportTo) -> Result<(Vec<Address>, Vec<EnvelopeRcpt>), IntakeRefusal> {
    let (settings, now) = (core.settings(), core.clock.now());
    let (mut named, mut people) = (Vec::new(), Vec::new());
    if to.owner() {
        named.extend(settings.list(&post.list).and_then(|list| list.settings().owner.clone()));
        people = settings.owners(&post.list, now).await?;
    }
    if to.poster()
        && let Some(Ok(poster)) = post.poster.as_deref().map(str::parse::<Address>)
    {
        people.extend(settings.people(&poster, now).await?);
        if !named.contains(&poster) {
            named.push(poster);
        }
    }
    let mut seen = std::collections::HashSet::new();
    people.retain(|to| seen.insert(to.address.as_str().to_owned()));
    Ok((named, people))
}

/// The report in a few CRLF lines.
fn text(r: &PostReport) -> String {
    let mut out = String::new();
    let mut line = |text: std::fmt::Arguments<'_>| {
        // Writing to a String cannot fail.
        let _ = write!(out, "{text}\r\n");
    };
    line(format_args!("{}", words::of(r, "", &Zone::utc())));
    line(format_args!(""));
    line(format_args!("post        {} of the list {}, {} octets", r.id, r.list, r.size));
    line(format_args!("accepted    {}", format_date(r.accepted)));
    line(format_args!("recipients  {}", r.total));
    let rows = [
        (r.delivered, "delivered"),
        (r.pending, "waiting"),
        (r.bounced, "bounced"),
        (r.expired, "expired"),
        (r.removed, "removed"),
        (r.coalesced, "in digests"),
    ];
    for (count, what) in rows.into_iter().filter(|(count, _)| *count > 0) {
        line(format_args!("  {what:<10}  {count} ({})", words::share(count, r.total)));
    }
    let t = &r.timeline;
    if t.count > 0 {
        let parts = [(50, t.p50_ms), (90, t.p90_ms), (95, t.p95_ms), (99, t.p99_ms), (100, t.p100_ms)];
        let parts: Vec<String> = parts.iter().map(|(part, ms)| format!("{part} % {}", words::time(*ms))).collect();
        line(format_args!("delivered within: {}", parts.join(", ")));
    }
    for place in &r.waiting {
        let next = match place.next_try {
            Some(at) => format!("next try {}", words::minute(at, &Zone::utc())),
            None if Cause::of_name(&place.cause).is_some_and(Cause::is_kept) => place.words.clone(),
            None => "next try as soon as a connection is free".to_owned(),
        };
        line(format_args!(""));
        line(format_args!("{} waiting at {}, {next}", place.recipients, printable(&place.site, REPLY_CHARS_MAX)));
        if !place.last_reply.is_empty() {
            line(format_args!("    {}", printable(&place.last_reply, REPLY_CHARS_MAX)));
        }
    }
    out
}
