//! The addresses that rules redirect or copy a message to.
//!
//! Promise: look-ups and refusals are those of the end of the data. A redirect to an unknown address or a temporary
//! look-up failure refuses the message; a copy to an unknown address is dropped.

use stentor_core::Settings;
use stentor_core::clock::Clock;
use stentor_core::intake::IntakeRefusal;
use stentor_core::people::MailReaders;
use stentor_mail::address::Address;
use stentor_mail::headers::HeaderFacts;
use stentor_mail::reply::Reply;
use stentor_rules::{DecisionReason, Outcome, Step};
use stentor_sessions::redirected;

use super::Explanation;
use super::words::goes_to;

/// An address named by a rule, and who reads its mail.
pub(super) struct Forward {
    pub address: Address,
    pub is_copy: bool,
    pub found: MailReaders,
}

/// Looks up the redirects and copies, and records the results. `has_content`: rules on the content have already been
/// asked for redirects.
pub(super) async fn follow(settings: &Settings, explanation: &mut Explanation, has_content: bool) {
    if explanation.decision.refusal().is_some() || matches!(explanation.decision.outcome, Outcome::Discard(_)) {
        return;
    }
    let now = Clock::start().now();
    if let Some((to, by)) = explanation.decision.marks.redirect.clone() {
        let found = redirected(settings, &to, &HeaderFacts::default(), now).await;
        if !has_content {
            note(settings, explanation, "redirect", &to, &by, &found);
        }
        match found {
            Ok(found) => {
                if !has_content {
                    let lists = found.lists.iter();
                    explanation.also.extend(lists.map(|list| format!("a post to list {list}, if the sender may post")));
                }
                explanation
                    .also
                    .extend(found.has_null.then(|| format!("accepted and dropped: {to} is an alias of /dev/null")));
                explanation.forwards.push(Forward { address: to, is_copy: false, found });
            }
            Err(reply) => return explanation.refuse(reply),
        }
    }
    for (to, by) in explanation.decision.marks.bcc.clone() {
        let found = settings.readers_of(&to, now).await.map_err(IntakeRefusal::reply);
        note(settings, explanation, "copy", &to, &by, &found);
        match found {
            Ok(found) if found.people.is_empty() => {
                explanation.decision.marks.bcc.retain(|(known, _)| *known != to);
            }
            Ok(found) => explanation.forwards.push(Forward { address: to, is_copy: true, found }),
            Err(reply) => return explanation.refuse(reply),
        }
    }
}

fn note(
    settings: &Settings,
    explanation: &mut Explanation,
    what: &str,
    to: &Address,
    by: &DecisionReason,
    found: &Result<MailReaders, Reply>,
) {
    let answer = match found {
        Err(reply) => format!("refused with {reply}"),
        Ok(found) if what == "redirect" => goes_to(found),
        Ok(found) if found.is_nobody() => "no copy: this address does not exist here".to_owned(),
        Ok(found) if found.people.is_empty() && !found.lists.is_empty() => {
            "no copy: this address is a list, and a copy is not a post".to_owned()
        }
        Ok(found) => goes_to(&MailReaders { lists: Vec::new(), people: found.people.clone(), ..*found }),
    };
    explanation.steps.push(Step::new(format!("{what} to {to}, {}", settings.rules.shown(by)), "", answer));
}
