//! The step between a form and an action that cannot be undone, or that concerns more than one message.
//!
//! Promise: the page says what the action would do, counted by a dry run; one more click carries it out. The click
//! sends exactly what was counted: the same messages or filters, for the queue at that time, with the reason. Newer
//! mail is left alone. If the number of recipients has grown, it asks again. Nothing is changed or reserved before the
//! click.

use std::sync::Arc;

use axum::response::Response;
use maud::{Markup, html};
use stentor_admin::causes;
use stentor_control::problem::Problem;
use stentor_control::selection::REASON_BYTES_MAX;
use stentor_control::{ActionResult, ControlReply, ErrorCode, Request, Requester, Selection, Subject, Verb};
use stentor_core::Core;

use super::fields::{self, Fields};
use super::format::{message_link, number, plural, shown};
use super::page::Frame;
use crate::Http;
use crate::browser::local;

/// Maximum messages named; all are counted.
const NAMED_MAX: usize = 10;

fn unexpected() -> Problem {
    Problem::new(ErrorCode::Failed, "unexpected answer")
}

/// The question, in words.
struct Question {
    title: String,
    /// The button's label; `None` if there is nothing to do.
    button: Option<String>,
    effect: &'static str,
    /// Further information.
    beside: String,
    is_final: bool,
}

/// Whether the request needs confirmation.
pub fn is_needed(request: &Request) -> bool {
    match request {
        Request::Act { verb: Verb::Remove | Verb::Bounce | Verb::QuarantineDelete | Verb::Resend, .. }
        | Request::Flush { site: None, .. } => true,
        Request::Act { selection, .. } => selection.ids.len() != 1,
        _ => false,
    }
}

/// Whether the confirmation covers what the request would do now.
pub async fn is_given(http: &Http, fields: &Fields, request: &Request, peer: &Requester) -> bool {
    let Request::Act { verb, selection, .. } = request else { return fields.sure == "1" };
    if fields.sure != "1" {
        return false;
    }
    let dry = Request::Act { verb: *verb, selection: selection.clone(), dry_run: true, reason: None };
    match http.ask(dry, peer.clone()).await {
        ControlReply::Counted(counted) => fields.covers(touched(&counted)),
        // The request itself will report the error.
        _ => true,
    }
}

/// Number of recipients that an action concerns.
pub fn touched(counted: &ActionResult) -> u64 {
    counted.count.unwrap_or(0) + counted.in_flight.unwrap_or(0)
}

/// Counts what the request would do, and asks for confirmation.
pub async fn page(http: &Http, frame: &Frame, fields: &Fields, request: Request, peer: Requester) -> Response {
    let (mut recipients, mut as_of) = (0, None);
    let (question, selection) = match request {
        Request::Act { verb, mut selection, .. } => {
            // Count again, for the present queue.
            selection.as_of = None;
            let dry = Request::Act { verb, selection: selection.clone(), dry_run: true, reason: None };
            match http.ask(dry, peer).await {
                ControlReply::Counted(counted) => {
                    recipients = touched(&counted);
                    as_of = counted.as_of;
                    (of_verb(verb, &counted), Some(selection))
                }
                ControlReply::Error(problem) => return frame.problem(section(&fields.next), &problem),
                _ => return frame.problem("/", &unexpected()),
            }
        }
        _ => (of_flush(&http.core).await, None),
    };
    let next = local(&fields.next);
    let main = html! {
        div.head { h1 { (question.title) } }
        section.panel aria-label="Confirm" {
            p { (question.effect) }
            @if !question.beside.is_empty() { p { (question.beside) } }
            @if let Some(selection) = &selection { (what(selection)) }
            @if let (Some(button), Some(csrf)) = (&question.button, frame.caller.csrf()) {
                form.confirm method="post" action="/act" {
                    input type="hidden" name="csrf" value=(csrf);
                    input type="hidden" name="sure" value="1";
                    input type="hidden" name="counted" value=(recipients);
                    @if let Some(as_of) = as_of { input type="hidden" name="as_of" value=(as_of); }
                    @for (name, value) in fields.repeated() { input type="hidden" name=(name) value=(value); }
                    @if selection.is_some() {
                        div.field {
                            label for="reason" { "Reason, for views and the audit log (optional)" }
                            input #reason name="reason" value=(fields.reason) maxlength=(REASON_BYTES_MAX) autocomplete="off";
                        }
                    }
                    div.verbs {
                        button.main[!question.is_final].danger[question.is_final] { (button) }
                        a.button href=(next) { "Cancel" }
                    }
                }
            } @else {
                p { a.button href=(next) { "Back" } }
            }
        }
    };
    frame.page(section(&fields.next), &question.title, &main)
}

/// Asks for the duration and reason of a suspension.
pub fn suspension(frame: &Frame, fields: &Fields, request: &Request) -> Response {
    let Request::Suspend { what, .. } = request else { return frame.problem("/", &unexpected()) };
    let (next, title) = (local(&fields.next), format!("Suspend {}?", subject(what)));
    let main = html! {
        div.head { h1 { (shown(&title)) } }
        section.panel aria-label="Confirm" {
            p { "Its mail stays in the queue and is not tried until the suspension ends. Transactions in progress \
                complete." }
            @if let Some(csrf) = frame.caller.csrf() {
                form.confirm method="post" action="/act" {
                    input type="hidden" name="csrf" value=(csrf);
                    @for (name, value) in fields.repeated() { input type="hidden" name=(name) value=(value); }
                    div.fields {
                        (fields::duration("suspend"))
                        div {
                            label for="reason" { "Reason, for views and the audit log (optional)" }
                            input #reason name="reason" value=(fields.reason) maxlength=(REASON_BYTES_MAX) autocomplete="off";
                        }
                    }
                    div.verbs {
                        button.main { "Suspend" }
                        a.button href=(next) { "Cancel" }
                    }
                }
            }
        }
    };
    frame.page(section(&fields.next), &title, &main)
}

/// Formats `list news`.
fn subject(what: &Subject) -> String {
    match what {
        Subject::List(name) => format!("list {name}"),
        Subject::Sender(domain) => format!("sender {domain}"),
        Subject::Site(name) => format!("site {name}"),
        Subject::Subscriber { list, address } => format!("subscriber {address} of {list}"),
    }
}

/// The section of the page that the form was on.
fn section(next: &str) -> &'static str {
    let path = local(next).split(['?', '#']).next().unwrap_or("/");
    let known = ["/quarantine", "/queue", "/posts", "/lists", "/recipient", "/sites", "/stragglers"];
    known.into_iter().find(|section| path.starts_with(section)).unwrap_or(if path.starts_with("/site") {
        "/sites"
    } else {
        "/queue"
    })
}

fn of_verb(verb: Verb, counted: &ActionResult) -> Question {
    let (recipients, messages, in_flight) =
        (counted.count.unwrap_or(0), counted.messages.unwrap_or(0), counted.in_flight.unwrap_or(0));
    let (copies, whole) = (plural(recipients, "recipient"), plural(messages, "message"));
    let of = format!("{copies} of {whole}");
    let (title, button, effect) = match verb {
        Verb::Hold => (
            format!("Hold {whole} with {copies}?"),
            format!("Hold {whole}"),
            "Held messages stay in the queue until they are released: they are not tried and do not expire.",
        ),
        Verb::Release => {
            (format!("Release {whole} with {copies}?"), format!("Release {whole}"), "Delivery resumes at once.")
        }
        Verb::Requeue => (
            format!("Try {of} now?"),
            format!("Try {copies} now"),
            "Their retry clocks are reset; hosts that are down are tried once.",
        ),
        Verb::Remove => (
            format!("Remove {of}?"),
            format!("Remove {copies}"),
            "These recipients will not get the mail, and nobody is notified. This cannot be undone.",
        ),
        Verb::QuarantineRelease => (
            format!("Release {of} from the quarantine?"),
            format!("Release {copies}"),
            "They are delivered at once, without another check of the rules.",
        ),
        Verb::QuarantineDelete => (
            format!("Delete {of} from the quarantine?"),
            format!("Delete {copies}"),
            "These recipients will not get the mail, and nobody is notified. This cannot be undone.",
        ),
        Verb::Resend => (
            format!("Send the post again to {copies} that missed it?"),
            format!("Send it to {copies}"),
            "They get it as if it had just been posted. Nobody who has it or waits for it gets it again.",
        ),
        Verb::Bounce => (
            format!("Bounce {of}?"),
            format!("Bounce {copies}"),
            "These recipients will not get the mail, and each sender gets a bounce. This cannot be undone.",
        ),
    };
    if recipients + in_flight == 0 {
        let effect = match verb {
            Verb::Hold => "None of the selected messages can be held: they are held already, or have left the queue.",
            Verb::Release => "None of the selected messages is held.",
            Verb::QuarantineRelease | Verb::QuarantineDelete => {
                "The selected messages are no longer in the quarantine."
            }
            Verb::Resend => "Nobody has missed the post who may get it.",
            _ => "The selected messages are no longer waiting.",
        };
        let title = "Nothing to do".to_owned();
        return Question { title, button: None, effect, beside: String::new(), is_final: false };
    }
    let beside = match verb {
        _ if in_flight == 0 => String::new(),
        Verb::Remove | Verb::Bounce => format!(
            "{} more {} in a transaction now; recipients that it does not deliver are included.",
            number(in_flight),
            if in_flight == 1 { "is" } else { "are" }
        ),
        _ => format!("{} more {} being tried now.", number(in_flight), if in_flight == 1 { "is" } else { "are" }),
    };
    let is_final = matches!(verb, Verb::Remove | Verb::Bounce | Verb::QuarantineDelete);
    Question { title, button: Some(button), effect, beside, is_final }
}

async fn of_flush(core: &Arc<Core>) -> Question {
    let (sites, _) = causes::per_site(core).await;
    let (recipients, messages) = core.with(|hub, _| (hub.store.pending(), hub.store.len() as u64));
    if recipients == 0 {
        let (title, effect) = ("Nothing to do".to_owned(), "The queue is empty.");
        return Question { title, button: None, effect, beside: String::new(), is_final: false };
    }
    let of = format!("{} of {}", plural(recipients, "recipient"), plural(messages, "message"));
    Question {
        title: format!("Try {of} at {} now?", plural(sites.len() as u64, "site")),
        button: Some(format!("Try {} now", plural(recipients, "recipient"))),
        effect: "Resets all retry clocks. Held and suspended mail is not affected.",
        beside: "Sites with rate limits may defer or block this server. To retry one site, use its page.".to_owned(),
        is_final: false,
    }
}

/// The selection: messages or filters.
fn what(selection: &Selection) -> Markup {
    let texts = [
        ("List", &selection.list),
        ("Sender", &selection.sender),
        ("Recipient", &selection.recipient),
        ("Site", &selection.site),
    ];
    html! {
        dl.facts {
            @if !selection.ids.is_empty() {
                dt { @if selection.ids.len() == 1 { "Message" } @else { "Messages" } }
                dd {
                    @for (at, id) in selection.ids.iter().take(NAMED_MAX).enumerate() { @if at > 0 { ", " } (message_link(&id.to_string())) }
                    @if selection.ids.len() > NAMED_MAX { " and " (number((selection.ids.len() - NAMED_MAX) as u64)) " more" }
                }
            }
            @for (name, text) in texts {
                @if let Some(text) = text { dt { (name) } dd { @if text.is_empty() { "<>" } @else { (shown(text)) } } }
            }
            @if let Some(age_s) = selection.age_s_min { dt { "Older than" } dd { (super::format::span(age_s * 1000)) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(count: u64, messages: u64, in_flight: u64) -> ActionResult {
        ActionResult {
            count: Some(count),
            messages: Some(messages),
            in_flight: Some(in_flight),
            ..ActionResult::default()
        }
    }

    #[test]
    fn the_question_has_the_counts() {
        let remove = of_verb(Verb::Remove, &counted(1_204, 3, 0));
        assert_eq!(remove.title, "Remove 1,204 recipients of 3 messages?");
        assert_eq!((remove.button.as_deref(), remove.is_final), (Some("Remove 1,204 recipients"), true));
        let one = of_verb(Verb::Bounce, &counted(1, 1, 1));
        assert_eq!(one.title, "Bounce 1 recipient of 1 message?");
        assert!(one.beside.starts_with("1 more is in a transaction"), "{}", one.beside);
        assert_eq!(of_verb(Verb::Hold, &counted(2, 1, 0)).title, "Hold 1 message with 2 recipients?");
        assert_eq!(of_verb(Verb::Requeue, &counted(0, 0, 0)).button, None);
    }

    #[test]
    fn what_asks_twice() {
        let act = |verb, ids: usize| Request::Act {
            verb,
            selection: Selection {
                ids: (0..ids as u64).map(stentor_queue::ids::MessageId).collect(),
                ..Selection::default()
            },
            dry_run: false,
            reason: None,
        };
        assert!(is_needed(&act(Verb::Remove, 1)) && is_needed(&act(Verb::Hold, 2)) && is_needed(&act(Verb::Hold, 0)));
        assert!(!is_needed(&act(Verb::Hold, 1)));
        assert!(
            is_needed(&Request::Flush { site: None, dry_run: false })
                && !is_needed(&Request::Flush { site: Some("a".into()), dry_run: false })
        );
        assert_eq!(
            (section("/site?name=a"), section("/posts?x"), section("/messages/1")),
            ("/sites", "/posts", "/queue")
        );
    }
}
