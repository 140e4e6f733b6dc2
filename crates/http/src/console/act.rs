//! The operator's actions as forms, and their execution.
//!
//! Promise: an action is a POST by a logged-in user with the session's token; it becomes the control socket's request,
//! with the same audit record. An action that cannot be undone, or that concerns more than one message, is carried out
//! only after [`confirm`] has said what it would do. Afterwards the browser is redirected, so that reloading the page
//! does not repeat it. An incomplete form is answered with what is missing.

use axum::Form;
use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use stentor_control::format::instant;
use stentor_control::selection::REASON_BYTES_MAX;
use stentor_control::{ControlReply, Request, Requester, Verb};

use super::confirm;
use super::fields::{self, Fields};
use super::format::shown;
use super::page::{self, Frame};
use super::progress::{self, ActionOutcome};
use crate::Http;
use crate::browser::encode;

/// A verb offered on a page.
#[derive(Clone, Copy)]
pub struct Button {
    pub verb: &'static str,
    pub label: &'static str,
    /// Whether it can be undone.
    pub is_reversible: bool,
}

/// The peer for requests that change nothing.
pub fn reader() -> Requester {
    Requester::Process { uid: rustix::process::geteuid().as_raw(), pid: None }
}

/// Buttons for actions on `subject`, or a link to the login.
pub fn panel(frame: &Frame, title: &str, subject: &[(&str, &str)], buttons: &[Button]) -> Markup {
    let id = format!("act-{}", title.split_whitespace().next().unwrap_or_default().to_lowercase());
    let (now, later): (Vec<&Button>, Vec<&Button>) = buttons.iter().partition(|button| button.is_reversible);
    html! {
        section.panel aria-labelledby=(id) {
            h2 id=(id) { (title) }
            @match frame.caller.csrf() {
                Some(csrf) => {
                    form.fields method="post" action="/act" {
                        (hidden(frame, csrf, subject))
                        @if now.iter().any(|button| button.verb == "suspend") { (fields::duration(&id)) }
                        div {
                            label for={ (id) "-reason" } { "Reason, for views and the audit log (optional)" }
                            input id={ (id) "-reason" } name="reason" maxlength=(REASON_BYTES_MAX) autocomplete="off";
                        }
                        div.go { @for button in now { button name="verb" value=(button.verb) { (button.label) } } }
                    }
                    @if !later.is_empty() {
                        h3.later { "Irreversible actions" }
                        form.verbs method="post" action="/act" {
                            (hidden(frame, csrf, subject))
                            @for button in later { button.danger name="verb" value=(button.verb) { (button.label) "…" } }
                            span.quiet.small { "You will be asked to confirm." }
                        }
                    }
                },
                None => p {
                    a href={ "/login?next=" (encode(&frame.here)) } { "Log in" }
                    " to " (names(buttons)) "."
                },
            }
        }
    }
}

/// The form that sends a copy of a message to another address.
pub fn copy(frame: &Frame, subject: &[(&str, &str)]) -> Markup {
    html! {
        @if let Some(csrf) = frame.caller.csrf() {
            section.panel aria-labelledby="copy" {
                h2 #copy { "A copy to another address" }
                form.fields method="post" action="/act" {
                    (hidden(frame, csrf, subject))
                    div {
                        label for="copy-to" { "Address" }
                        input #copy-to name="to" type="email" required autocomplete="off";
                    }
                    div {
                        label for="copy-reason" { "Reason, for views and the audit log (optional)" }
                        input #copy-reason name="reason" maxlength=(REASON_BYTES_MAX) autocomplete="off";
                    }
                    div.go { button name="verb" value="quarantine_copy" { "Send a copy" } }
                }
                p.quiet.small { "Sent unchanged, with attachments. The message stays in the quarantine." }
            }
        }
    }
}

/// Fields of every form on a page: the session's token, where to continue, and the subject.
fn hidden(frame: &Frame, csrf: &str, subject: &[(&str, &str)]) -> Markup {
    html! {
        input type="hidden" name="csrf" value=(csrf);
        input type="hidden" name="next" value=(frame.here);
        @for (name, value) in subject { input type="hidden" name=(name) value=(value); }
    }
}

fn names(buttons: &[Button]) -> String {
    let names: Vec<String> = buttons.iter().map(|button| button.label.to_lowercase()).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

/// A verb as a button in a table row; `of` names the row for screen readers.
pub fn single(frame: &Frame, subject: &[(&str, &str)], verb: &str, label: &str, of: &str) -> Markup {
    html! {
        @if let Some(csrf) = frame.caller.csrf() {
            form.inline method="post" action="/act" {
                (hidden(frame, csrf, subject))
                button name="verb" value=(verb) { (label) span.hidden { " " (shown(of)) } }
            }
        }
    }
}

/// A suspension as a button in a table row: the next page asks for duration and reason.
pub fn suspend_single(frame: &Frame, subject: &[(&str, &str)], of: &str) -> Markup {
    let asked: Vec<(&str, &str)> = subject.iter().copied().chain([("ask", "1")]).collect();
    single(frame, &asked, "suspend", "Suspend…", of)
}

/// Buttons for the selected rows of a table and, with `filters`, for all matching messages. The checkboxes refer to the
/// form by `form="bulk"`.
pub fn bulk(frame: &Frame, filters: Option<&[(&str, &str)]>) -> Markup {
    let verbs =
        [("hold", "Hold"), ("release", "Release"), ("requeue", "Try now"), ("bounce", "Bounce"), ("remove", "Remove")];
    bulk_of(frame, filters, &verbs, "hold, release, retry, bounce or remove messages")
}

/// As [`bulk`], with these verbs. `names`: what the login is for, if nobody is logged in.
pub fn bulk_of(frame: &Frame, filters: Option<&[(&str, &str)]>, verbs: &[(&str, &str)], names: &str) -> Markup {
    html! {
        @match frame.caller.csrf() {
            Some(csrf) => form.verbs.bulk #bulk method="post" action="/act" {
                (hidden(frame, csrf, filters.unwrap_or_default()))
                @if filters.is_some() {
                    label for="scope" { "Apply to" }
                    select #scope name="scope" {
                        option value="ticked" { "selected messages" }
                        option value="matching" { "all that match the filters" }
                    }
                }
                button.scripted type="button" data-tick-all="bulk" { "Select all" }
                @for (verb, label) in verbs { button.danger[matches!(*verb, "bounce" | "remove" | "quarantine_delete")] name="verb" value=(verb) { (label) "…" } }
            },
            None => p.small { a href={ "/login?next=" (encode(&frame.here)) } { "Log in" } " to " (names) "." },
        }
    }
}

/// `POST /act`
pub async fn act(State(http): State<Http>, frame: Frame, Form(pairs): Form<Vec<(String, String)>>) -> Response {
    let fields = Fields::of(pairs);
    let peer = match frame.caller.may_change(Some(&fields.csrf)) {
        Ok(peer) => peer,
        Err(refused) => {
            let text = html! {
                "Nothing was changed: actions need a login and a form of the current session. Go back, reload the page and try again, or "
                a href={ "/login?next=" (encode(&fields.next)) } { "log in" } "."
            };
            return frame.sorry(refused.status(), "/", "Not allowed", &text);
        }
    };
    let request = match fields.request() {
        Ok(request) => request,
        Err(why) => return page::go_on(&fields.next, false, &why),
    };
    if fields.ask == "1" && matches!(request, Request::Suspend { .. }) {
        return confirm::suspension(&frame, &fields, &request);
    }
    if confirm::is_needed(&request) && !confirm::is_given(&http, &fields, &request, &peer).await {
        return confirm::page(&http, &frame, &fields, request, peer).await;
    }
    if let Request::Act { verb, selection, .. } = &request
        && !matches!(verb, Verb::QuarantineRelease | Verb::QuarantineDelete | Verb::Resend)
    {
        let (verb, selection) = (*verb, selection.clone());
        let dry = Request::Act { verb, selection, dry_run: true, reason: None };
        if let ControlReply::Counted(counted) = http.ask(dry, peer.clone()).await
            && confirm::touched(&counted) >= progress::RECIPIENTS_MIN
        {
            return progress::begin(&http, request, peer, verb, confirm::touched(&counted), &fields.next);
        }
    }
    let lasts_s = if let Request::Suspend { for_s, .. } = &request { *for_s } else { None };
    match http.ask(request, peer).await {
        // In the same zone as all other times.
        ControlReply::Done { count: Some(1), .. } if let Some(s) = lasts_s => {
            let end = http.core.clock.now().saturating_add(s * 1000);
            page::go_on(&fields.next, true, &format!("Suspended until {}.", instant(end, &http.zone)))
        }
        reply => {
            let ActionOutcome { is_well, text } = ActionOutcome::of(reply);
            page::go_on(&fields.next, is_well, &text)
        }
    }
}
