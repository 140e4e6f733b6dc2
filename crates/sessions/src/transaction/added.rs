//! A recipient that a milter adds after the content has arrived.
//!
//! Promise: this recipient gets the end-of-data checks of recipients that a client names, before it is accepted: loops,
//! who may post, and rules that wait for the content. Otherwise an alias whose mail returns would get a copy in each
//! pass, and anyone could post to a list for members.
//!
//! Failure: a reply; only this recipient is refused.

use std::sync::Arc;

use stentor_mail::address::Address;
use stentor_mail::headers::HeaderFacts;
use stentor_mail::reply::Reply;
use stentor_policy::AddressClass;

use super::super::content::{ContentEnvelope, check as check_content};
use super::super::judge::Judged;
use super::rcpt::RcptContext;
use super::{InForce, Transaction};

impl Transaction {
    /// Checks the recipient; see the module documentation.
    ///
    /// # Errors
    /// The recipient is refused, with a description of the deciding rule.
    pub(super) fn check_late(
        &self,
        context: RcptContext<'_>,
        facts: &HeaderFacts,
        address: &Address,
        judged: &Judged,
    ) -> Result<(), (Reply, String)> {
        let RcptContext { core, settings, .. } = context;
        let (aliases, lists): (Vec<&Address>, &[Arc<str>]) = match &judged.class {
            AddressClass::Alias(expansion) => (vec![address], &expansion.lists),
            AddressClass::List(list) => (Vec::new(), std::slice::from_ref(list)),
            AddressClass::Relay | AddressClass::Bounces(_) | AddressClass::Command { .. } | AddressClass::Refuse(_) => {
                (Vec::new(), &[])
            }
        };
        let named = ContentEnvelope { sender: &self.mail.path, aliases, lists };
        check_content(settings, &named, facts, &InForce(core), None).map_err(|reply| (reply, String::new()))?;
        let Some((reply, by)) = self.waiting.refusal(&settings.rules, &judged.open) else { return Ok(()) };
        Err((reply, settings.rules.shown(&by)))
    }
}
