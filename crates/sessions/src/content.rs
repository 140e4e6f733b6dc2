//! Decisions that depend on a message's content: loops, who may post, its class.
//!
//! Promise: sessions, requests, local users and `stentor explain` share one decision. It does no I/O except through
//! [`Members`].
//!
//! Failure: a reply; nothing of the message is kept.

use std::net::IpAddr;
use std::sync::Arc;

use stentor_core::Settings;
use stentor_lists::{check_delivered_to, check_received};
use stentor_mail::Class;
use stentor_mail::address::{Address, ReversePath};
use stentor_mail::headers::HeaderFacts;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_rules::Step;

/// Look-ups of lists' subscribers.
pub trait Members {
    /// Whether a list's subscribers are known.
    fn is_read(&self, list: &Arc<str>) -> bool;
    fn is_member(&self, list: &Arc<str>, address: &str) -> bool;
}

/// The recipients of a message that its content is checked against.
pub struct ContentEnvelope<'n> {
    pub sender: &'n ReversePath,
    pub aliases: Vec<&'n Address>,
    pub lists: &'n [Arc<str>],
}

/// Checks loops, caps, and who may post. `steps` collects the checks.
///
/// # Errors
/// The refusal.
pub fn check(
    settings: &Settings,
    envelope: &ContentEnvelope<'_>,
    facts: &HeaderFacts,
    members: &dyn Members,
    mut steps: Option<&mut Vec<Step>>,
) -> Result<(), Reply> {
    let config = &settings.config;
    let result = match facts.overflow {
        Some(why) => Err(Reply::new(552, Enhanced::new(5, 3, 4), format!("Message header too large: {why}"))),
        None => Ok(()),
    };
    noted(&mut steps, result, || {
        ("header".to_owned(), String::new(), format!("{} octets, {} fields", facts.header_bytes, facts.fields))
    })?;
    let received_max = config.received_max;
    noted(&mut steps, check_received(facts, received_max), || {
        let asked = format!("received_max {received_max}");
        (asked, config.place("", "received_max"), format!("{} Received fields", facts.received_count))
    })?;
    for alias in &envelope.aliases {
        noted(&mut steps, check_delivered_to(facts, alias), || {
            (format!("Delivered-To of {alias}"), String::new(), "not delivered to it before".to_owned())
        })?;
    }
    for name in envelope.lists {
        let result = check_post(settings, name, envelope.sender, facts, members);
        noted(&mut steps, result, || {
            let section = format!("lists.{name}");
            let place = [config.place(&section, "post"), config.place(&section, "address")];
            let place = place.into_iter().find(|place| !place.is_empty()).unwrap_or_default();
            (format!("list {name}"), place, "takes this post".to_owned())
        })?;
    }
    Ok(())
}

/// Checks whether a list accepts a message as a post.
///
/// # Errors
/// The refusal.
pub fn check_post(
    settings: &Settings,
    name: &Arc<str>,
    sender: &ReversePath,
    facts: &HeaderFacts,
    members: &dyn Members,
) -> Result<(), Reply> {
    // A reload may have removed the list since its RCPT: nobody would get the post.
    let list = settings.list(name).filter(|_| members.is_read(name));
    let list = list.ok_or(Reply::fixed(451, Enhanced::new(4, 3, 0), "The list is being changed, try again later"))?;
    list.admit(sender, facts, settings.config.received_max, &mut |who| members.is_member(name, who))
}

/// Notes a check: its description if it passed, else the refusal.
fn noted(
    steps: &mut Option<&mut Vec<Step>>,
    result: Result<(), Reply>,
    step: impl FnOnce() -> (String, String, String),
) -> Result<(), Reply> {
    if let Some(steps) = steps {
        let (asked, place, mut answer) = step();
        if let Err(reply) = &result {
            answer = format!("refused with {reply}");
        }
        steps.push(Step::new(asked, place, answer));
    }
    result
}

/// The reason for a message's class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClassCause {
    Rule,
    Network,
    Header,
    SenderRate,
}

impl ClassCause {
    pub fn words(self) -> &'static str {
        match self {
            ClassCause::Rule => "a rule",
            ClassCause::Network => "its client's network",
            ClassCause::Header => "its header",
            ClassCause::SenderRate => "its sender's rate",
        }
    }

    /// Appends the reason to the log's text on why the message was accepted.
    pub(super) fn logged(self, class: Class) -> String {
        format!("; {}: {}", class.name(), self.words())
    }
}

/// Returns a message's class by rules, the client's network or the header, and the reason. `None`: the class depends on
/// the sender's rate.
pub fn class(
    settings: &Settings,
    by_rule: Option<Class>,
    client: IpAddr,
    facts: &HeaderFacts,
) -> Option<(Class, ClassCause)> {
    let by_network = || Some((settings.config.classes.injectors.of(client)?, ClassCause::Network));
    let by_header = || facts.is_bulk().then_some((Class::Bulk, ClassCause::Header));
    by_rule.map(|class| (class, ClassCause::Rule)).or_else(by_network).or_else(by_header)
}
