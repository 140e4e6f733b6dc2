//! Mail of users who have logged in: whose senders they may use, and what is completed in the header (RFC 6409 section 8).
//!
//! Promise: neither the envelope nor From names an address that the user does not own, if that is configured. Date and Message-ID
//! are there ([`Completion`]), Bcc is not.

use stentor_auth::{Authenticator, Limits, Login};
use stentor_config::OwnSenders;
use stentor_mail::Ms;
use stentor_mail::address::{Address, ReversePath};
use stentor_mail::completed::Completion;
use stentor_mail::dsn::format_date;
use stentor_mail::reply::Reply;
use stentor_mail::server::EndOfData;
use stentor_rules::Removal;

use super::Transaction;
use stentor_engine::core::{Core, Settings, log};

const NOT_OWN_SENDER: Reply = Reply::fixed(553, (5, 7, 1), "This login may not use this sender");
const NOT_OWN_FROM: Reply = Reply::fixed(550, (5, 7, 1), "This login may not use the address in From");
const MANY_FROM: Reply = Reply::fixed(550, (5, 7, 1), "From must have exactly one address, which is your own");
const LEFT_OUT: [&str; 2] = ["Bcc", "Resent-Bcc"];

/// Whose message it is.
pub struct Account {
    pub login: Login,
    pub auth: Authenticator,
}

/// What is special about a user's message.
pub struct Submitted {
    /// None: who it is is proven by a certificate.
    account: Option<Account>,
    own_senders: OwnSenders,
    /// Of users without limits of their own.
    limits: Limits,
    recipients_max: u32,
    /// By the steady clock.
    begun: Ms,
    messages: u32,
    recipients: u32,
    /// When the last recipient was counted, by the same clock.
    counted: Ms,
}

impl Submitted {
    /// `limits`: those in force now, which may be newer than the session's settings.
    pub fn new(settings: &Settings, account: Option<Account>, limits: Limits, begun: Ms) -> Submitted {
        let (own_senders, recipients_max) =
            (settings.config.auth.own_senders, settings.config.listen.submission_recipients_max);
        Submitted { account, own_senders, limits, recipients_max, begun, messages: 0, recipients: 0, counted: begun }
    }

    pub fn user(&self) -> Option<&str> {
        self.account.as_ref().map(|account| &**account.login.user())
    }

    /// Who has to own the senders, if somebody has.
    fn owner(&self) -> Option<&Login> {
        self.account.as_ref().filter(|_| self.own_senders != OwnSenders::Any).map(|account| &account.login)
    }

    /// Checks the sender and counts the message.
    fn take_message(&mut self, sender: &ReversePath) -> Result<(), Reply> {
        if self.owner().is_some_and(|login| !login.owns_path(sender)) {
            return Err(NOT_OWN_SENDER);
        }
        if let Some(Account { login, auth }) = &self.account {
            auth.take_message(login, &self.limits).map_err(|over| Reply::new(450, (4, 7, 1), over.to_string()))?;
        }
        self.messages = 1;
        Ok(())
    }

    /// Counts a recipient that is named.
    fn take_recipient(&mut self) -> Result<(), Reply> {
        if self.recipients >= self.recipients_max {
            return Err(Reply::fixed(452, (4, 5, 3), "Too many recipients"));
        }
        if let Some(Account { login, auth }) = &self.account {
            let counted = auth.take_recipient(login, &self.limits);
            self.counted = counted.map_err(|over| Reply::new(452, (4, 5, 3), over.to_string()))?;
        }
        self.recipients += 1;
        Ok(())
    }

    /// The recipient that was counted last is refused.
    fn give_recipient_back(&mut self) {
        self.recipients = self.recipients.saturating_sub(1);
        if let Some(Account { login, auth }) = &self.account {
            auth.give_back(login, (0, 1), self.counted);
        }
    }

    /// Nothing came of the message.
    pub(super) fn give_back(&self) {
        if let Some(Account { login, auth }) = &self.account {
            auth.give_back(login, (self.messages, self.recipients), self.begun);
        }
    }
}

impl Transaction {
    /// Makes it a user's message.
    ///
    /// # Errors
    /// The user may not use the sender, or has sent as many messages as allowed.
    pub fn submitted(mut self, core: &Core, mut submitted: Submitted) -> Result<Transaction, Reply> {
        let taken = submitted.take_message(&self.mail.path);
        self.submitted = Some(Box::new(submitted));
        match taken {
            Ok(()) => Ok(self),
            Err(reply) => {
                log::refused(core, ("MAIL", ""), &self.mail, self.by(), &reply);
                self.abandon(core);
                Err(reply)
            }
        }
    }

    /// Counts a recipient of a user's message.
    pub(super) fn count_submitted(&mut self) -> Result<(), Reply> {
        self.submitted.as_mut().map_or(Ok(()), |submitted| submitted.take_recipient())
    }

    /// The recipient that was counted last is refused.
    pub(super) fn uncount_submitted(&mut self) {
        if let Some(submitted) = &mut self.submitted {
            submitted.give_recipient_back();
        }
    }

    /// What a user's message gets if it is missing; `ours`: so many octets before the client's are ours.
    pub(super) fn completion(&self, core: &Core, settings: &Settings, ours: usize) -> Option<Box<Completion>> {
        self.submitted.as_ref()?;
        let now = core.clock.now();
        let message_id = format!("<{}.{now:x}@{}>", self.id, settings.config.hostname);
        Some(Box::new(Completion::new(ours, format_date(now), message_id)))
    }

    /// Checks and completes the header of a user's message; all of it has come.
    pub(super) fn complete(&mut self, end: &mut EndOfData) -> Result<(), Reply> {
        let Some(submitted) = &self.submitted else { return Ok(()) };
        let facts = &mut end.facts;
        if let Some(login) = submitted.owner().filter(|_| submitted.own_senders == OwnSenders::Both) {
            let from = facts.from.as_deref().filter(|_| !facts.has_more_from).ok_or(MANY_FROM)?;
            if !Address::parse(from.as_bytes(), true).is_ok_and(|from| login.owns(&from)) {
                return Err(NOT_OWN_FROM);
            }
        }
        if facts.has_bcc {
            self.wishes.remove.extend(LEFT_OUT.iter().filter_map(|field| Removal::parse(field).ok()));
        }
        if let Some(completion) = &mut self.completion {
            end.last = completion.push(std::mem::take(&mut end.last), true);
            facts.has_date = true;
            if let Some(id) = completion.given_id() {
                facts.message_id = Some(id.to_owned());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipients_have_a_limit() {
        let settings = Settings::new(stentor_config::without_file().unwrap(), None);
        let mut submitted = Submitted { recipients_max: 2, ..Submitted::new(&settings, None, Limits::default(), 0) };
        assert!(submitted.take_recipient().is_ok() && submitted.take_recipient().is_ok());
        assert_eq!(submitted.take_recipient().map_err(|reply| reply.code), Err(452));
        submitted.give_recipient_back();
        assert!(submitted.take_recipient().is_ok(), "one was refused");
    }
}
