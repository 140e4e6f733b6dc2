//! Queue-only scopes: their mail is accepted and waits in the queue until the scope ends or the queue is run.
//!
//! Promise: scopes for all mail, a class, a list or a source apply to the flow ([`crate::flows`]), so whole lines are
//! put aside. A sender or client is checked when its message comes to a line or its turn comes there, a domain where
//! its messages would enter its site's line. Nothing is searched for, and the check is free while nothing is
//! queue-only.
//!
//! **A run** of the queue ([`crate::Scheduler::run_queue`]) tries once all mail that is in the queue when it begins.
//! First all retry clocks end; then, site by site, messages in line or aside are let pass
//! ([`crate::flows::lines::Lines::let_pass`]). A message passes at a site until it leaves the line there, or all hosts
//! of the site have failed. Mail that returns from a clock, or came later, is queue-only as before. Mail whose domain
//! has not been looked up yet passes when it reaches its site. The run is over when nothing passes any more. It is
//! volatile: a start forgets it.
//!
//! An operator and the configuration may both make the same scope queue-only; it ends when both have ended it.

use stentor_queue::message::Message;
use stentor_queue::queue_only::Scope;

use crate::config::SourceConfig;
use crate::flows::{QueueOnlyFlows, SourceSet};
use crate::keeper::Keeper;

/// Who made a scope queue-only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScopeOwner {
    Operator,
    Configuration,
}

struct Entry {
    /// The entry's number, never reused.
    no: u32,
    scope: Scope,
    /// The reason given by each [`ScopeOwner`].
    reasons: [Option<Box<str>>; 2],
}

impl Entry {
    fn is_over(&self) -> bool {
        self.reasons.iter().all(Option::is_none)
    }
}

/// The scopes that are queue-only now.
#[derive(Default)]
pub struct QueueOnly {
    list: Vec<Entry>,
    /// The number given last.
    last: u32,
    /// Whether some scopes are about senders or clients, or about domains.
    has_messages: bool,
    has_domains: bool,
}

impl QueueOnly {
    /// Adds a scope, with a reason that may be empty, or ends it. Returns whether mail is kept or released by that.
    pub fn set(&mut self, scope: &Scope, reason: Option<&str>, by: ScopeOwner) -> bool {
        let at = self.list.iter().position(|entry| entry.scope == *scope);
        let changes = match (at, reason) {
            (None, Some(_)) => {
                self.last = self.last.wrapping_add(1);
                self.list.push(Entry { no: self.last, scope: scope.clone(), reasons: [None, None] });
                true
            }
            (Some(at), None) => self.list[at].reasons[1 - by as usize].is_none(),
            (None, None) | (Some(_), Some(_)) => false,
        };
        if let Some(entry) = self.list.iter_mut().find(|entry| entry.scope == *scope) {
            entry.reasons[by as usize] = reason.map(Into::into);
        }
        self.list.retain(|entry| !entry.is_over());
        self.has_messages = self.list.iter().any(|entry| entry.scope.is_of_messages());
        self.has_domains = self.list.iter().any(|entry| matches!(entry.scope, Scope::Domain(_)));
        changes
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn scopes(&self) -> impl Iterator<Item = &Scope> {
        self.list.iter().map(|entry| &entry.scope)
    }

    /// The configured scopes that are not among `wanted`.
    pub fn configured_beside(&self, wanted: &[(Scope, &str)]) -> Vec<Scope> {
        let is_wanted = |entry: &&Entry| wanted.iter().any(|(scope, _)| *scope == entry.scope);
        let is_configured =
            |entry: &&Entry| entry.reasons[ScopeOwner::Configuration as usize].is_some() && !is_wanted(entry);
        self.list.iter().filter(is_configured).map(|entry| entry.scope.clone()).collect()
    }

    /// Whether messages or domains have to be checked.
    pub fn is_of_parts(&self) -> bool {
        self.has_messages || self.has_domains
    }

    /// Whether the message's sender or client is queue-only.
    pub fn has_message(&self, message: &Message) -> bool {
        self.has_messages && {
            let envelope = message.envelope();
            self.scopes().any(|scope| scope.has_message(&envelope))
        }
    }

    pub fn has_domains(&self) -> bool {
        self.has_domains
    }

    pub fn has_domain(&self, name: &str) -> bool {
        self.domain(name).is_some()
    }

    /// The keeper of mail to a domain, if it is queue-only.
    pub fn domain(&self, name: &str) -> Option<Keeper> {
        let is_of = |entry: &&Entry| matches!(&entry.scope, Scope::Domain(domain) if domain == name);
        self.list.iter().find(is_of).filter(|_| self.has_domains).map(|entry| Keeper::QueueOnly(entry.no))
    }

    /// The keeper of a message whose flow, sender or client is queue-only.
    pub fn keeper(&self, message: &Message) -> Keeper {
        let envelope = message.envelope();
        let is_of = |entry: &&Entry| match &entry.scope {
            Scope::All => true,
            Scope::Class(class) => message.class() == *class,
            Scope::List(list) => envelope.list == Some(list),
            scope => scope.has_message(&envelope),
        };
        // Then its flow uses one of the sources.
        let of_source = |entry: &&Entry| matches!(entry.scope, Scope::Source(_));
        let entry = self.list.iter().find(is_of).or_else(|| self.list.iter().find(of_source));
        entry.map_or(Keeper::None, |entry| Keeper::QueueOnly(entry.no))
    }

    /// The reasons of the entry of this number: the operator's, then the configuration's. `None`: the entry has ended
    /// or has no reason.
    pub fn reason(&self, no: u32) -> Option<String> {
        let entry = self.list.iter().find(|entry| entry.no == no)?;
        let given: Vec<&str> =
            entry.reasons.iter().flatten().map(|reason| &**reason).filter(|r| !r.is_empty()).collect();
        (!given.is_empty()).then(|| given.join("; "))
    }

    /// The scopes that apply to whole flows.
    pub fn of_flows(&self, sources: &[SourceConfig]) -> QueueOnlyFlows {
        let mut kept = QueueOnlyFlows { sources_all: SourceSet::first(sources.len()), ..QueueOnlyFlows::default() };
        for scope in self.scopes() {
            match scope {
                Scope::All => kept.classes = [true; crate::flows::CLASSES],
                Scope::Class(class) => kept.classes[usize::from(*class == stentor_mail::Class::Bulk)] = true,
                Scope::List(name) => kept.lists.push(name.as_str().into()),
                Scope::Source(name) => {
                    let at = sources.iter().position(|source| source.name == *name);
                    kept.sources.0 |= at.map_or(0, |at| 1 << at);
                }
                Scope::Domain(_) | Scope::Sender(_) | Scope::Client(_) => {}
            }
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_want_ends_when_both_have_ended_it() {
        let mut all = QueueOnly::default();
        let scope = Scope::Domain("one.example".to_owned());
        assert!(
            all.set(&scope, Some("disks"), ScopeOwner::Operator)
                && !all.set(&scope, Some(""), ScopeOwner::Configuration)
        );
        let Some(Keeper::QueueOnly(no)) = all.domain("one.example") else { panic!("nobody keeps it") };
        assert_eq!(all.reason(no).as_deref(), Some("disks"));
        assert!(
            !all.set(&scope, Some("more disks"), ScopeOwner::Operator)
                && !all.set(&scope, Some("weekly"), ScopeOwner::Configuration)
        );
        assert_eq!(all.reason(no).as_deref(), Some("more disks; weekly"));
        assert!(
            !all.set(&scope, None, ScopeOwner::Operator)
                && all.has_domain("one.example")
                && !all.has_domain("x.example")
        );
        assert!(!all.set(&scope, None, ScopeOwner::Operator), "it was ended before");
        assert_eq!(all.reason(no).as_deref(), Some("weekly"));
        assert!(all.set(&scope, None, ScopeOwner::Configuration) && all.is_empty() && !all.has_domain("one.example"));
        assert_eq!(all.reason(no), None);
    }
}
