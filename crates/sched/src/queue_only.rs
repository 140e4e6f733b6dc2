//! What is queue-only: its mail is accepted and waits in the queue, until that ends or the queue is run.
//!
//! Promise: what is about all mail, a class, a list or a source is known by the flow ([`crate::flows`]), so that whole lines
//! are put aside; a sender or client is looked at when its message comes to a line or is met there, a domain where its
//! messages would enter its site's line. Nothing is searched for, and it costs nothing while nothing is queue-only.
//!
//! **A run** of the queue ([`crate::Scheduler::run_queue`]) tries once what is in the queue by then. First all retry clocks
//! end, then site by site what stands in line or aside is let pass ([`crate::flows::lines::Lines::let_pass`]). A message
//! passes at a site until it leaves the line there, or all hosts of the site have failed: what returns from a clock, and what
//! came later, is queue-only as before. Mail whose domain has not been looked up yet passes when it comes to its site. The run
//! is over when nothing passes any more. It is volatile: a start forgets it.
//!
//! An operator and the configuration may both want the same; it ends when both have ended it.

use stentor_queue::message::Message;
use stentor_queue::queue_only::Scope;

use crate::config::SourceConfig;
use crate::flows::{Kept, SourceSet};

/// Who wants something to be queue-only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum By {
    Operator = 1,
    Configuration = 2,
}

struct Entry {
    scope: Scope,
    /// A bit for each [`By`].
    by: u8,
}

/// What is queue-only now.
#[derive(Default)]
pub struct QueueOnly {
    list: Vec<Entry>,
    /// Whether some of it is about senders or clients, or about domains.
    has_messages: bool,
    has_domains: bool,
}

impl QueueOnly {
    /// Begins or ends it; whether that changed anything.
    pub fn set(&mut self, scope: &Scope, is_on: bool, by: By) -> bool {
        let at = self.list.iter().position(|entry| entry.scope == *scope);
        let changes = match (at, is_on) {
            (None, false) => false,
            (None, true) => {
                self.list.push(Entry { scope: scope.clone(), by: by as u8 });
                true
            }
            (Some(at), true) => {
                self.list[at].by |= by as u8;
                false
            }
            (Some(at), false) => {
                self.list[at].by &= !(by as u8);
                let is_over = self.list[at].by == 0;
                if is_over {
                    self.list.swap_remove(at);
                }
                is_over
            }
        };
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

    /// What the configuration wants, and is not among these.
    pub fn configured_beside(&self, wanted: &[Scope]) -> Vec<Scope> {
        let is_configured = |entry: &&Entry| entry.by & By::Configuration as u8 != 0 && !wanted.contains(&entry.scope);
        self.list.iter().filter(is_configured).map(|entry| entry.scope.clone()).collect()
    }

    /// Whether messages or domains have to be looked at.
    pub fn is_of_parts(&self) -> bool {
        self.has_messages || self.has_domains
    }

    /// Whether the message's sender or client is queue-only.
    pub fn has_message(&self, message: &Message) -> bool {
        self.has_messages && {
            let envelope = message.envelope();
            self.scopes().any(|scope| scope.has_message(envelope.sender, envelope.origin))
        }
    }

    pub fn has_domains(&self) -> bool {
        self.has_domains
    }

    pub fn has_domain(&self, name: &str) -> bool {
        self.has_domains && self.scopes().any(|scope| matches!(scope, Scope::Domain(domain) if domain == name))
    }

    /// What of it is about whole flows.
    pub fn of_flows(&self, sources: &[SourceConfig]) -> Kept {
        let mut kept = Kept { sources_all: SourceSet::first(sources.len()), ..Kept::default() };
        for scope in self.scopes() {
            match scope {
                Scope::All => kept.classes = [true; crate::flows::CLASSES],
                Scope::Class(class) => kept.classes[usize::from(*class == stentor_queue::event::Class::Bulk)] = true,
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
        assert!(all.set(&scope, true, By::Operator) && !all.set(&scope, true, By::Configuration));
        assert!(!all.set(&scope, false, By::Operator) && all.has_domain("one.example") && !all.has_domain("x.example"));
        assert!(!all.set(&scope, false, By::Operator), "it was ended before");
        assert!(all.set(&scope, false, By::Configuration) && all.is_empty() && !all.has_domain("one.example"));
    }
}
