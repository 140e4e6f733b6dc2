//! Drains: domains, sites and standing bounces whose waiting recipients fail. `choice::drain` takes the recipients, in
//! slices.

use stentor_queue::ids::{DomainId, MessageNo, SiteId};

use crate::effects::SourceNo;
use crate::flows::FlowNo;
use crate::reasons::HostReply;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum DrainWhat {
    Domain(DomainId),
    /// Mail to the site that goes from this source.
    Site(SiteId, SourceNo),
    /// Waiting recipients of a message at the site.
    Message(SiteId, MessageNo),
    /// Waiting recipients of a message at a domain that a standing bounce covers.
    Waiting(DomainId, MessageNo),
}

/// A domain or site whose waiting recipients fail, or one message there: all of its recipients, or those past their
/// lifetime.
pub struct Drain {
    pub what: DrainWhat,
    pub expired_only: bool,
    pub reply: HostReply,
    pub cursor: DrainCursor,
}

/// The progress of a drain of a site or domain: messages that stay are passed over once.
#[derive(Clone, Copy, Default)]
pub struct DrainCursor {
    /// At a site, the line that is looked at, and its flow. `None`: the last one.
    pub line: Option<usize>,
    pub flow: Option<FlowNo>,
    /// Number of parts of the line, or of the domain, that are done.
    pub part: usize,
    /// The message that was passed over last.
    pub after: Option<u32>,
}

impl DrainCursor {
    pub fn next_part(&mut self) {
        (self.part, self.after) = (self.part + 1, None);
    }
}

impl Drain {
    pub fn all(what: DrainWhat, reply: &HostReply) -> Drain {
        Drain { what, expired_only: false, reply: reply.clone(), cursor: DrainCursor::default() }
    }

    pub fn expired(what: DrainWhat, reply: &HostReply) -> Drain {
        Drain { what, expired_only: true, reply: reply.clone(), cursor: DrainCursor::default() }
    }
}
