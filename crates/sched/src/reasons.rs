//! The last replies, for status queries and delivery status notifications.
//!
//! Clocks refer to replies by number. A ring keeps the last `REASONS_MAX`, so that a million greylisted recipients,
//! each with its own reply text, cost eight bytes each and the ring. A reply that has left the ring is shown without
//! its text.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use stentor_mail::reply::Enhanced;
use stentor_queue::cause::Cause;

/// Number of replies kept, about 200 bytes each.
const REASONS_MAX: usize = 16_384;
/// How many replies back an equal one is looked for before it is stored again.
const SAME_LOOK_BACK: usize = 8;

/// A host's reply, or why there was none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostReply {
    /// 0 if there was no reply.
    pub code: u16,
    pub dsn: Option<Enhanced>,
    pub text: Arc<str>,
    /// The cause that it stands for.
    pub cause: Cause,
    pub host: Option<Arc<str>>,
}

impl fmt::Display for HostReply {
    /// Formats the host's text, or ours if there was no reply.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.dsn) {
            (0, _) => f.write_str(&self.text),
            (code, None) => write!(f, "{code} {}", self.text),
            (code, Some(dsn)) => write!(f, "{code} {dsn} {}", self.text),
        }
    }
}

/// A kept reply. Its cause stays known after the text has left the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reason {
    /// Number in the ring; 0: none.
    no: u32,
    pub cause: Cause,
}

impl Reason {
    pub const NONE: Reason = Reason { no: 0, cause: Cause::Ready };

    pub fn is_none(self) -> bool {
        self.no == 0
    }

    /// A reason whose text is no longer known.
    pub fn without_text(cause: Cause) -> Reason {
        if cause == Cause::Ready { Reason::NONE } else { Reason { no: u32::MAX, cause } }
    }

    /// Identifies the reply while its text is kept.
    pub(crate) fn number(self) -> u32 {
        self.no
    }
}

#[derive(Default)]
pub(crate) struct Reasons {
    ring: VecDeque<HostReply>,
    /// Number of replies that have left the ring.
    left: u32,
}

impl Reasons {
    pub fn keep(&mut self, reply: HostReply) -> Reason {
        let cause = reply.cause;
        Reason { no: self.number(reply), cause }
    }

    fn number(&mut self, reply: HostReply) -> u32 {
        let back = self.ring.iter().rev().take(SAME_LOOK_BACK).position(|r| *r == reply);
        if let Some(back) = back {
            return self.left.wrapping_add((self.ring.len() - back) as u32);
        }
        if self.ring.len() == REASONS_MAX {
            self.ring.pop_front();
            self.left = self.left.wrapping_add(1);
        }
        self.ring.push_back(reply);
        self.left.wrapping_add(self.ring.len() as u32)
    }

    pub fn get(&self, reason: Reason) -> Option<&HostReply> {
        self.ring.get(reason.no.wrapping_sub(self.left).wrapping_sub(1) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_shown_as_it_was_given() {
        let reply = |code, dsn, text: &str| {
            HostReply { code, dsn, text: text.into(), cause: Cause::Recipient, host: None }.to_string()
        };
        assert_eq!(reply(450, Some(Enhanced::new(4, 1, 2)), "lookup failed"), "450 4.1.2 lookup failed");
        assert_eq!(reply(450, None, "later"), "450 later");
        assert_eq!(reply(0, Some(Enhanced::new(4, 4, 2)), "lost connection"), "lost connection");
    }

    #[test]
    fn keeps_the_last_replies_and_forgets_older_ones() {
        let reply =
            |n: usize| HostReply { code: 450, dsn: None, text: n.to_string().into(), cause: Cause::Busy, host: None };
        let mut reasons = Reasons::default();
        assert_eq!(reasons.get(Reason::NONE), None);
        let first = reasons.keep(reply(0));
        assert_eq!(reasons.keep(reply(0)), first, "an equal reply is kept once");
        let numbers: Vec<_> = (1..=REASONS_MAX).map(|n| reasons.keep(reply(n))).collect();
        assert_eq!(reasons.get(first), None);
        for (n, no) in numbers.into_iter().enumerate() {
            assert_eq!(reasons.get(no), Some(&reply(n + 1)));
        }
        assert_eq!(reasons.get(Reason::NONE), None);
    }
}
