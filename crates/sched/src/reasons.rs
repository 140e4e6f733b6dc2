//! The last replies, for status queries and delivery status notifications.
//!
//! Clocks refer to replies by number. A ring keeps the last `REASONS_MAX`, so that a million greylisted recipients, each with
//! its own reply text, cost four bytes each and the ring. A reply that has left the ring is shown without its text.

use std::collections::VecDeque;
use std::sync::Arc;

use stentor_mail::reply::Enhanced;

/// Replies kept, about 200 bytes each.
const REASONS_MAX: usize = 16_384;
/// How far back an equal reply is looked for before it is kept anew.
const SAME_LOOK_BACK: usize = 8;

/// A host's reply, or why there was none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// 0 if there was no reply.
    pub code: u16,
    pub dsn: Option<Enhanced>,
    pub text: Arc<str>,
    pub host: Option<Arc<str>>,
}

/// A kept reply; 0 is none.
pub(crate) type ReasonNo = u32;

#[derive(Default)]
pub(crate) struct Reasons {
    ring: VecDeque<Reply>,
    /// Replies that have left the ring.
    left: u32,
}

impl Reasons {
    pub fn keep(&mut self, reply: Reply) -> ReasonNo {
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

    pub fn get(&self, no: ReasonNo) -> Option<&Reply> {
        self.ring.get(no.wrapping_sub(self.left).wrapping_sub(1) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_last_replies_and_forgets_older_ones() {
        let reply = |n: usize| Reply { code: 450, dsn: None, text: n.to_string().into(), host: None };
        let mut reasons = Reasons::default();
        assert_eq!(reasons.get(0), None);
        let first = reasons.keep(reply(0));
        assert_eq!(reasons.keep(reply(0)), first, "an equal reply is kept once");
        let numbers: Vec<_> = (1..=REASONS_MAX).map(|n| reasons.keep(reply(n))).collect();
        assert_eq!(reasons.get(first), None);
        for (n, no) in numbers.into_iter().enumerate() {
            assert_eq!(reasons.get(no), Some(&reply(n + 1)));
        }
        assert_eq!(reasons.get(0), None);
    }
}
