//! Mail of users who have logged in: the senders that they may use, and their limits.
//!
//! Promise: if configured, neither the envelope nor From names an address that the user does not own.

use stentor_auth::{Authenticator, Limits, Login};
use stentor_config::OwnSenders;
use stentor_core::{Core, Settings, log};
use stentor_mail::Ms;
use stentor_mail::address::{Address, ReversePath};
use stentor_mail::headers::HeaderFacts;
use stentor_mail::reply::{Enhanced, Reply};

use super::Transaction;

const NOT_OWN_SENDER: Reply = Reply::fixed(553, Enhanced::new(5, 7, 1), "This login may not use this sender");
const NOT_OWN_FROM: Reply = Reply::fixed(550, Enhanced::new(5, 7, 1), "This login may not use the address in From");
const NOT_OWN_PATHS: Reply = Reply::fixed(555, Enhanced::new(5, 5, 4), "XVERP of a login must begin with +");
const MANY_FROM: Reply = Reply::fixed(550, Enhanced::new(5, 7, 1), "From must have exactly one address, your own");

/// The account of a message's user.
pub struct Account {
    pub login: Login,
    pub auth: Authenticator,
}

/// A user's limits and senders for a message.
pub struct Submitted {
    /// `None`: the user is proven by a certificate.
    account: Option<Account>,
    own_senders: OwnSenders,
    /// Limits of users without limits of their own.
    limits: Limits,
    recipients_max: u32,
    /// Start time, on the steady clock.
    begun: Ms,
    messages: u32,
    recipients: u32,
    /// When the last recipient was counted, on the steady clock.
    counted: Ms,
}

impl Submitted {
    /// `limits`: those now in force, which may be newer than the session's settings.
    pub fn new(settings: &Settings, account: Option<Account>, limits: Limits, begun: Ms) -> Submitted {
        let (own_senders, recipients_max) =
            (settings.config.auth.own_senders, settings.config.listen.submission_recipients_max);
        Submitted { account, own_senders, limits, recipients_max, begun, messages: 0, recipients: 0, counted: begun }
    }

    pub fn user(&self) -> Option<&str> {
        self.account.as_ref().map(|account| &**account.login.user())
    }

    /// Returns the login that must own the senders, if ownership is checked.
    fn owner(&self) -> Option<&Login> {
        self.account.as_ref().filter(|_| self.own_senders != OwnSenders::Any).map(|account| &account.login)
    }

    /// Checks the sender and counts the message.
    fn take_message(&mut self, sender: &ReversePath) -> Result<(), Reply> {
        if self.owner().is_some_and(|login| !login.owns_path(sender)) {
            return Err(NOT_OWN_SENDER);
        }
        if let Some(Account { login, auth }) = &self.account {
            auth.take_message(login, &self.limits)
                .map_err(|over| Reply::new(450, Enhanced::new(4, 7, 1), over.to_string()))?;
        }
        self.messages = 1;
        Ok(())
    }

    /// Counts a named recipient.
    fn take_recipient(&mut self) -> Result<(), Reply> {
        if self.recipients >= self.recipients_max {
            return Err(Reply::fixed(452, Enhanced::new(4, 5, 3), "Too many recipients"));
        }
        if let Some(Account { login, auth }) = &self.account {
            let counted = auth.take_recipient(login, &self.limits);
            self.counted = counted.map_err(|over| Reply::new(452, Enhanced::new(4, 5, 3), over.to_string()))?;
        }
        self.recipients += 1;
        Ok(())
    }

    /// Uncounts the last recipient, which was refused.
    fn give_recipient_back(&mut self) {
        self.recipients = self.recipients.saturating_sub(1);
        if let Some(Account { login, auth }) = &self.account {
            auth.give_back(login, 0, 1, self.counted);
        }
    }

    /// The message is durable: it counts.
    pub(super) fn keep(&mut self) {
        (self.messages, self.recipients) = (0, 0);
    }
}

impl Drop for Submitted {
    /// Nothing came of the message.
    fn drop(&mut self) {
        if let Some(Account { login, auth }) = &self.account {
            auth.give_back(login, self.messages, self.recipients, self.begun);
        }
    }
}

impl Transaction {
    /// Makes the transaction a user's message.
    ///
    /// # Errors
    /// The user may not use the sender or such return paths, or has sent as many messages as allowed.
    pub fn submitted(mut self: Box<Self>, core: &Core, mut submitted: Submitted) -> Result<Box<Transaction>, Reply> {
        // As with templates of X-Stentor-Copies: a user's return paths stay within the user's own address.
        let is_within = self.mail.verp.is_none_or(|delimiters| delimiters.before == '+');
        let taken = if is_within { submitted.take_message(&self.mail.path) } else { Err(NOT_OWN_PATHS) };
        self.submitted = Some(Box::new(submitted));
        match taken {
            Ok(()) => Ok(self),
            Err(reply) => {
                log::refused(core, "MAIL", "", &self.mail, self.by(), &reply);
                Err(reply)
            }
        }
    }

    /// Counts a recipient of a user's message.
    pub(super) fn count_submitted(&mut self) -> Result<(), Reply> {
        self.submitted.as_mut().map_or(Ok(()), |submitted| submitted.take_recipient())
    }

    /// Uncounts the last recipient, which was refused.
    pub(super) fn uncount_submitted(&mut self) {
        if let Some(submitted) = &mut self.submitted {
            submitted.give_recipient_back();
        }
    }

    /// Checks whether the author of a user's complete message is the user.
    pub(super) fn check_author(&self, facts: &HeaderFacts) -> Result<(), Reply> {
        let Some(submitted) = &self.submitted else { return Ok(()) };
        if let Some(login) = submitted.owner().filter(|_| submitted.own_senders == OwnSenders::Both) {
            check_from(facts, |address| login.owns(address))?;
        }
        Ok(())
    }
}

/// Checks whether From has one mailbox, and whether that and all addresses shown in its name are the user's own.
fn check_from(facts: &HeaderFacts, owns: impl Fn(&Address) -> bool) -> Result<(), Reply> {
    let is_own = |text: &str| Address::parse(text.as_bytes(), true).is_ok_and(|address| owns(&address));
    let from = facts.from.as_deref().filter(|_| !facts.has_more_from).ok_or(MANY_FROM)?;
    if !is_own(from) {
        return Err(NOT_OWN_FROM);
    }
    if facts.shown_from.iter().all(|shown| is_own(shown)) { Ok(()) } else { Err(MANY_FROM) }
}

#[cfg(test)]
mod tests {
    use stentor_mail::headers::HeaderScan;

    use super::*;

    #[test]
    fn a_name_shows_only_addresses_of_the_user() {
        let owns = |address: &Address| ["ann@old.example", "ann@new.example"].contains(&address.to_string().as_str());
        for (from, expected) in [
            ("Ann <ann@new.example>", Ok(())),
            ("\"ann@old.example\" <ann@new.example>", Ok(())),
            ("Ann <ann@new.example> (ann@old.example)", Ok(())),
            // Without quotes, some programs take it for the mailbox.
            ("ann@old.example <ann@new.example>", Err(MANY_FROM)),
            ("\"boss@x.example\" <ann@new.example>", Err(MANY_FROM)),
            ("\"ann@old.example boss@x.example\" <ann@new.example>", Err(MANY_FROM)),
            ("\"ann@old.example@x.example\" <ann@new.example>", Err(MANY_FROM)),
            ("ann@old.example, ann@new.example", Err(MANY_FROM)),
            ("\"ann@old.example\" <boss@x.example>", Err(NOT_OWN_FROM)),
        ] {
            let mut scan = HeaderScan::new();
            scan.push(format!("From: {from}\r\n\r\n").as_bytes());
            assert_eq!(check_from(&scan.finish(), owns), expected, "{from}");
        }
    }

    #[test]
    fn recipients_have_a_limit() {
        let settings = Settings::new(stentor_config::without_file().unwrap(), None);
        let mut submitted = Submitted::new(&settings, None, Limits::default(), 0);
        submitted.recipients_max = 2;
        assert!(submitted.take_recipient().is_ok() && submitted.take_recipient().is_ok());
        assert_eq!(submitted.take_recipient().map_err(|reply| reply.code), Err(452));
        submitted.give_recipient_back();
        assert!(submitted.take_recipient().is_ok(), "one was refused");
    }
}
