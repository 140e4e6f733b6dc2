//! Maps a verdict to what happens to its recipient.

use super::verdict::Verdict;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Consequence {
    Delivered,
    /// Retry as soon as host, site and message allow.
    Again,
    /// Retry as soon as host, site and message allow. The mailbox did not cause the failure: messages that wait for it
    /// behind this one are released.
    AgainAlone,
    /// The mailbox gets a clock.
    DeferMailbox,
    /// The recipient of this message gets a clock.
    DeferRecipient,
    /// 5xx for this mailbox: the recipient fails, which counts towards a suspension.
    Refused,
    /// 5xx for the message or the whole transaction.
    Failed,
    /// The failure was temporary, and the lifetime is over.
    Expired,
}

impl Consequence {
    /// `over_age`: the message has outlived its lifetime. `deferred`: it is now deferred at the site.
    pub fn of(verdict: Verdict, over_age: bool, deferred: bool) -> Consequence {
        match verdict {
            Verdict::Delivered => Consequence::Delivered,
            Verdict::Refused => Consequence::Refused,
            Verdict::Fail => Consequence::Failed,
            // If no host may be tried now, overdue mail there expires as a whole (`charge_host`).
            Verdict::Host | Verdict::SessionLimit | Verdict::Sender if over_age && deferred => Consequence::Expired,
            // Another host may take it (RFC 5321 section 5.1).
            Verdict::Sender => Consequence::AgainAlone,
            Verdict::Host | Verdict::TooMany | Verdict::SessionLimit => Consequence::Again,
            Verdict::Mailbox => Consequence::DeferMailbox,
            _ if over_age => Consequence::Expired,
            Verdict::Recipient => Consequence::DeferRecipient,
            Verdict::Rate | Verdict::Lost | Verdict::Message | Verdict::Unreadable | Verdict::LostAfterDot => {
                Consequence::AgainAlone
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_too_old_expires() {
        let temporary = [Verdict::Recipient, Verdict::Rate, Verdict::Lost, Verdict::Message];
        for verdict in temporary.into_iter().chain([Verdict::Unreadable, Verdict::LostAfterDot]) {
            assert_eq!(Consequence::of(verdict, true, false), Consequence::Expired, "{verdict:?}");
            assert_ne!(Consequence::of(verdict, false, true), Consequence::Expired, "{verdict:?}");
        }
        assert_eq!(Consequence::of(Verdict::Host, true, false), Consequence::Again, "another host may take it");
        assert_eq!(Consequence::of(Verdict::Host, true, true), Consequence::Expired);
        assert_eq!(Consequence::of(Verdict::Sender, true, false), Consequence::AgainAlone, "another host may take it");
        assert_eq!(Consequence::of(Verdict::Sender, true, true), Consequence::Expired);
        assert_eq!(Consequence::of(Verdict::TooMany, true, true), Consequence::Again);
        assert_eq!(Consequence::of(Verdict::SessionLimit, true, false), Consequence::Again, "another session takes it");
        assert_eq!(Consequence::of(Verdict::SessionLimit, true, true), Consequence::Expired);
        assert_eq!(
            Consequence::of(Verdict::Mailbox, true, true),
            Consequence::DeferMailbox,
            "it looks at the age itself"
        );
    }
}
