//! NOTIFY=SUCCESS of recipients that this server answers for itself (RFC 3461 section 5.2.7).
//!
//! A list ends the request: it has delivered the message once it is stored, and subscribers get nothing of NOTIFY,
//! ORCPT and ENVID (5.2.7.3). So does an address for commands to a list. An alias of several addresses is expanded: one
//! report says so, and those addresses get the rest of NOTIFY without SUCCESS, so that one request is not answered many
//! times. An alias of one address passes the request on unchanged.
//!
//! The report is stored before the client gets its 250: a client without a reply sends the message, with its request,
//! again. Untrusted clients are not offered the extension, and the null sender gets no reports.

use std::sync::Arc;

use stentor_core::Core;
use stentor_delivery::bounce::{Success, SuccessRcpt, succeeded};
use stentor_queue::ids::ContentId;
use stentor_smtp::server::Notify;

use super::Transaction;

/// Success requests of a message that are answered here.
pub(super) struct Answer {
    recipients: Vec<SuccessRcpt>,
    envid: Option<String>,
}

fn asks(notify: Option<u8>) -> bool {
    notify.is_some_and(|notify| notify & Notify::SUCCESS.bits() != 0)
}

impl Transaction {
    /// Removes the requests that are answered here from the recipients' parameters.
    pub(super) fn answer_requests(&mut self) {
        let is_answered = self.is_of_trusted() && !self.mail.path.is_null() && self.quarantine.is_none();
        let mut recipients = Vec::new();
        let commands = self.rcpts.commands().map(|named| (named.address, named.params));
        for (address, asked) in self.rcpts.posts().chain(commands) {
            if asks(asked.params.notify) && asked.quarantine.is_none() {
                let (address, orcpt) = (self.names.given(address).as_str().to_owned(), asked.params.orcpt.clone());
                recipients.push(SuccessRcpt { address, orcpt, is_expanded: false });
            }
        }
        for (alias, expansion, asked) in self.rcpts.expansions_mut() {
            let Some(notify) = asked.params.notify.filter(|notify| asks(Some(*notify))) else { continue };
            let (people, lists) = (expansion.everyone().count(), expansion.lists.len());
            if people == 1 && lists == 0 {
                continue;
            }
            if asked.quarantine.is_none() {
                let (address, orcpt) = (self.names.given(alias).as_str().to_owned(), asked.params.orcpt.clone());
                recipients.push(SuccessRcpt { address, orcpt, is_expanded: people + lists > 1 });
            }
            let rest = notify & !Notify::SUCCESS.bits();
            asked.params.notify = Some(if rest == 0 { Notify::NEVER.bits() } else { rest });
        }
        if is_answered && !recipients.is_empty() {
            self.answer = Some(Box::new(Answer { recipients, envid: self.mail.envid.clone() }));
        }
    }

    /// What the reports say, once the message is about to be stored.
    pub(super) fn success(&mut self, content: ContentId, size: u64, last: &Arc<Vec<u8>>) -> Option<Success> {
        let Answer { recipients, envid } = *self.answer.take()?;
        Some(Success {
            id: self.id,
            sender: self.mail.path.as_str().to_owned(),
            envid,
            smtputf8: self.mail.smtputf8,
            require_tls: self.mail.requiretls,
            content,
            size,
            // The beginning of a large body has been stored.
            beginning: (self.stored() == 0).then(|| last.clone()),
            recipients,
        })
    }
}

/// Stores the report, if there is one.
pub(super) async fn report(core: &Arc<Core>, success: Option<Success>) {
    if let Some(success) = success {
        Box::pin(succeeded(core, success)).await;
    }
}
