//! The operator's actions as forms, and their execution.
//!
//! Promise: an action is a POST by a logged-in user, with the token of their session; it becomes the control socket's
//! request, with the same audit record. An action that cannot be undone asks for confirmation. Afterwards the browser
//! is redirected, so that reloading the page does not repeat it.

use axum::Form;
use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use stentor_control::problem::Problem;
use stentor_control::selection::REASON_BYTES_MAX;
use stentor_control::{ErrorCode, Peer, Reply, Request, Selection, Subject, Verb};

use super::format::{encode, shown};
use super::page::{self, Frame};
use crate::Http;

/// A verb that a page offers.
#[derive(Clone, Copy)]
pub struct Button {
    pub verb: &'static str,
    pub label: &'static str,
    /// Whether it can be taken back; else it asks once more.
    pub is_sure: bool,
}

/// Who asks where nothing is changed.
pub fn reader() -> Peer {
    Peer::Process { uid: rustix::process::geteuid().as_raw(), pid: None }
}

/// The verbs for what `subject` names, or the way to the login.
pub fn panel(frame: &Frame, title: &str, subject: &[(&str, &str)], buttons: &[Button]) -> Markup {
    let id = format!("act-{}", title.split_whitespace().next().unwrap_or_default().to_lowercase());
    html! {
        section.panel aria-labelledby=(id) {
            h2 id=(id) { (title) }
            @match frame.caller.csrf() {
                Some(csrf) => {
                    @let (sure, unsure): (Vec<&Button>, Vec<&Button>) = buttons.iter().partition(|button| button.is_sure);
                    (form(frame, csrf, &id, subject, &sure, false))
                    @if !unsure.is_empty() {
                        details {
                            summary { "Cannot be undone" }
                            (form(frame, csrf, &format!("{id}-end"), subject, &unsure, true))
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

fn names(buttons: &[Button]) -> String {
    let names: Vec<String> = buttons.iter().map(|button| button.label.to_lowercase()).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

fn form(frame: &Frame, csrf: &str, id: &str, subject: &[(&str, &str)], buttons: &[&Button], asks: bool) -> Markup {
    html! {
        form.fields method="post" action="/act" {
            input type="hidden" name="csrf" value=(csrf);
            input type="hidden" name="next" value=(frame.here);
            @for (name, value) in subject { input type="hidden" name=(name) value=(value); }
            div {
                label for={ (id) "-reason" } { "Reason, for the journal" }
                input id={ (id) "-reason" } name="reason" maxlength=(REASON_BYTES_MAX) autocomplete="off";
            }
            @if asks {
                label.check { input type="checkbox" name="sure" value="1" required; "I am sure" }
            }
            div.go {
                @for button in buttons {
                    button.danger[asks] name="verb" value=(button.verb) { (button.label) }
                }
            }
        }
    }
}

/// One verb as a button of its own, in a row of a table; `of`: what tells it from the others for who hears the page.
pub fn single(frame: &Frame, subject: &[(&str, &str)], verb: &str, label: &str, of: &str) -> Markup {
    html! {
        @if let Some(csrf) = frame.caller.csrf() {
            form.inline method="post" action="/act" {
                input type="hidden" name="csrf" value=(csrf);
                input type="hidden" name="next" value=(frame.here);
                @for (name, value) in subject { input type="hidden" name=(name) value=(value); }
                button name="verb" value=(verb) { (label) span.hidden { " " (shown(of)) } }
            }
        }
    }
}

/// The fields of all forms.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct Fields {
    csrf: String,
    next: String,
    verb: String,
    id: String,
    list: String,
    sender: String,
    site: String,
    subscriber: String,
    reason: String,
    sure: String,
}

impl Fields {
    fn request(&self) -> Result<Request, String> {
        let reason = Some(self.reason.trim().to_owned()).filter(|reason| !reason.is_empty());
        if reason.as_ref().is_some_and(|reason| reason.len() > REASON_BYTES_MAX) {
            return Err(format!("the reason is longer than {REASON_BYTES_MAX} octets"));
        }
        if let "suspend" | "resume" = self.verb.as_str() {
            let what = self.subject().ok_or("nothing to suspend is named")?;
            return Ok(Request::Suspend { suspended: self.verb == "suspend", what, reason });
        }
        if self.verb == "flush" {
            return Ok(Request::Flush { site: Some(self.site.clone()).filter(|site| !site.is_empty()) });
        }
        let verb = Verb::ALL.into_iter().find(|verb| verb.name() == self.verb).ok_or("no such action")?;
        if matches!(verb, Verb::Remove | Verb::Bounce) && self.sure != "1" {
            return Err("tick the box to confirm".to_owned());
        }
        // One message: the console never asks for all.
        let id = self.id.parse().map_err(|_| "a message is needed".to_owned())?;
        Ok(Request::Act {
            verb,
            selection: Selection { ids: vec![id], ..Selection::default() },
            dry_run: false,
            reason,
        })
    }

    fn subject(&self) -> Option<Subject> {
        let given = |text: &String| (!text.is_empty()).then(|| text.clone());
        match (given(&self.list), given(&self.sender), given(&self.site), given(&self.subscriber)) {
            (Some(list), None, None, None) => Some(Subject::List(list)),
            (None, Some(sender), None, None) => Some(Subject::Sender(sender)),
            (None, None, Some(site), None) => Some(Subject::Site(site)),
            (Some(list), None, None, Some(address)) => Some(Subject::Subscriber { list, address }),
            _ => None,
        }
    }
}

/// `POST /act`
pub async fn act(State(http): State<Http>, frame: Frame, Form(fields): Form<Fields>) -> Response {
    let peer = match frame.caller.may_change(Some(&fields.csrf)) {
        Ok(peer) => peer,
        Err(refused) => {
            let problem = Problem::new(
                ErrorCode::Forbidden,
                "a change needs a login, and a form of this session: go back and load the page again",
            );
            let mut page = frame.problem("/", &problem);
            *page.status_mut() = refused.status();
            return page;
        }
    };
    let request = match fields.request() {
        Ok(request) => request,
        Err(why) => return page::go_on(&fields.next, false, &why),
    };
    match http.ask(request, peer).await {
        Reply::Done { text, .. } => page::go_on(&fields.next, true, &text),
        Reply::Counted(counted) => page::go_on(&fields.next, true, &counted.text),
        Reply::Error(problem) => page::go_on(&fields.next, false, &problem.text),
        _ => page::go_on(&fields.next, false, "unexpected answer"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_requests() {
        let site = |verb: &str| Fields { verb: verb.into(), site: "a.example".into(), ..Fields::default() };
        let subject = Subject::Site("a.example".into());
        assert_eq!(site("suspend").request(), Ok(Request::Suspend { suspended: true, what: subject, reason: None }));
        assert_eq!(site("flush").request(), Ok(Request::Flush { site: Some("a.example".into()) }));
        for verb in ["", "stop", "remove", "hold"] {
            assert!(site(verb).request().is_err(), "{verb}: no message is named");
        }
        let two = Fields { sender: "b.example".into(), ..site("suspend") };
        assert!(two.request().is_err(), "name one subject, not two");
    }

    #[test]
    fn what_cannot_be_taken_back_asks() {
        let id = stentor_queue::ids::MessageId(7).to_string();
        let fields =
            |sure: &str| Fields { verb: "remove".into(), id: id.clone(), sure: sure.into(), ..Fields::default() };
        assert!(fields("").request().is_err());
        assert!(matches!(fields("1").request(), Ok(Request::Act { selection, .. }) if selection.ids.len() == 1));
        let long = Fields { reason: "x".repeat(REASON_BYTES_MAX + 1), ..fields("1") };
        assert!(long.request().is_err());
    }
}
