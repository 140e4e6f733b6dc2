//! The delivery report as a mail.
//!
//! Promise: one per post, from the null sender and marked as automatic, so that nothing answers it and nobody bounces it
//! (RFC 3834 section 2, RFC 5321 section 4.5.5); no list ever gets one, nor is there a report about a report. It is sent
//! when the fast lane is done with the post, or when the configuration says.
//!
//! Failure answer: one that cannot be stored is left out and said in the log. A restart between the post and its report
//! leaves it out as well.

use std::fmt::Write;
use std::sync::Arc;

use stentor_config::ReportTo;
use stentor_control::PostReport;
use stentor_engine::core::Core;
use stentor_engine::core::envelope::{NewEnvelope, Recipients, Taken};
use stentor_engine::core::own::hand_in;
use stentor_engine::live::posts::Post;
use stentor_mail::address::Address;
use stentor_mail::dsn::format_date;
use stentor_queue::event::{Class, RcptParams};
use stentor_stats::escape::printable;

use super::words;

const REPLY_CHARS_MAX: usize = 300;

pub(super) async fn send(core: Arc<Core>, post: Arc<Post>, to: ReportTo) {
    let people = people(&core, &post, to);
    if people.is_empty() {
        return;
    }
    // One that has ended is still known here.
    let Some(report) = super::post(&core, post.id).await else { return };
    let (id, content, now) = (core.next_message_id(), core.next_content_id(), core.clock.now());
    let hostname = core.settings().config.hostname.clone();
    let message_id = format!("<{id}.report@{hostname}>");
    let names: Vec<String> = people.iter().map(|to| format!("<{}>", to.as_str())).collect();
    let head = format!(
        "Date: {}\r\nFrom: Mail Delivery System <MAILER-DAEMON@{hostname}>\r\nTo: {}\r\nSubject: {}: delivery report of {}\r\n\
         Message-ID: {message_id}\r\nAuto-Submitted: auto-generated\r\nMIME-Version: 1.0\r\n\
         Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\n",
        format_date(now),
        names.join(",\r\n "),
        post.list,
        post.id,
    );
    let body = (head + &text(&report)).into_bytes();
    let envelope = NewEnvelope {
        sender: String::new(),
        class: Class::Ordinary,
        list: None,
        eight_bit: !body.is_ascii(),
        smtputf8: people.iter().any(|to| !to.as_str().is_ascii()),
        recipients: Recipients::Addresses(people.into_iter().map(|to| (to, RcptParams::default())).collect()),
        prefix: Vec::new(),
        ret: None,
        envid: None,
        origin: "local".to_owned(),
        message_id_at: None,
        message_id,
        is_report: true,
        taken: Taken::local("report of a post"),
    };
    if hand_in(&core, (id, content), body, envelope, Vec::new()).await.is_err() {
        tracing::warn!(post = %post.id, "a delivery report could not be stored");
    }
}

/// Whom it goes to, each once.
fn people(core: &Core, post: &Post, to: ReportTo) -> Vec<Address> {
    let settings = core.settings();
    let mut people = if to.owner() { settings.owners(&post.list) } else { Vec::new() };
    if to.poster()
        && let Some(Ok(poster)) = post.poster.as_deref().map(str::parse::<Address>)
    {
        people.extend(settings.people(&poster));
    }
    let mut seen = std::collections::HashSet::new();
    people.retain(|address| seen.insert(address.as_str().to_owned()));
    people
}

/// The report in some lines, with the line ends of mail.
fn text(r: &PostReport) -> String {
    let mut out = String::new();
    let mut line = |text: std::fmt::Arguments<'_>| {
        // Writing into a string cannot fail.
        let _ = write!(out, "{text}\r\n");
    };
    line(format_args!("{}", words::of(r)));
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
        let next = place.next_try.map_or_else(|| "as soon as a connection is free".to_owned(), words::minute);
        line(format_args!(""));
        line(format_args!(
            "{} waiting at {}, next try {next}",
            place.recipients,
            printable(&place.site, REPLY_CHARS_MAX)
        ));
        if !place.last_reply.is_empty() {
            line(format_args!("    {}", printable(&place.last_reply, REPLY_CHARS_MAX)));
        }
    }
    out
}
