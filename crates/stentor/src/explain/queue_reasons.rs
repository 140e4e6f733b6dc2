//! Reasons for which an accepted message stays in the queue: sections `[queue_only.NAME]`. Only the running server
//! knows what was set by command.

use stentor_config::{InForce, QueueOnlyConfig};
use stentor_core::Settings;
use stentor_core::clock::Clock;
use stentor_mail::Class;
use stentor_policy::AddressClass;
use stentor_queue::event::Envelope;
use stentor_queue::queue_only::Scope;
use stentor_rules::Outcome;

use super::targets::Targets;
use super::{Explanation, Options};

/// One line for each section that applies to the message, in the order of the file.
pub(super) fn lines(
    settings: &Settings,
    options: &Options,
    explanation: &Explanation,
    targets: &Targets,
) -> Vec<String> {
    if explanation.decision.refusal().is_some() || matches!(explanation.decision.outcome, Outcome::Discard(_)) {
        return Vec::new();
    }
    let now = Clock::start().now();
    let of = settings.config.queue_only.iter().filter(|section| is_of(section, options, explanation, targets));
    of.map(|section| {
        let (name, key) = (format!("queue_only.{}", section.name), section.scope.parts().0);
        let place = settings.config.place(&name, key);
        match section.in_force(now) {
            Some(InForce::Always | InForce::Until(_)) => format!("accepted and kept in the queue: [{name}] ({place})"),
            None => format!("kept in the queue while a window of [{name}] ({place}) is open; none is open now"),
        }
    })
    .collect()
}

fn is_of(section: &QueueOnlyConfig, options: &Options, explanation: &Explanation, targets: &Targets) -> bool {
    let list = match &explanation.decision.outcome {
        Outcome::Local(AddressClass::List(name)) => Some(&**name),
        _ => None,
    };
    match &section.scope {
        Scope::All => true,
        Scope::Class(class) => {
            let is_bulk = list.is_some() || explanation.also.iter().any(|words| words.starts_with("class bulk"));
            *class == if is_bulk { Class::Bulk } else { Class::Ordinary }
        }
        Scope::List(name) => list == Some(name),
        Scope::Domain(domain) => explanation.to.domain() == domain || targets.domains().any(|of| of == domain),
        // The source of a copy is chosen when it is sent.
        Scope::Source(_) => false,
        scope @ (Scope::Sender(_) | Scope::Client(_)) => {
            let login = if options.login { " login" } else { "" };
            let origin = format!("{}{login}", options.client);
            scope.has_message(&Envelope { sender: &explanation.from, origin: &origin, ..Envelope::default() })
        }
    }
}
