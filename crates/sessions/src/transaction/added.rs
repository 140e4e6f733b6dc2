//! A recipient that a milter adds, when the content has come already.
//!
//! Promise: what is checked at the end of the data for recipients that a client names is checked for this one by itself before it is
//! taken: loops, who may post, and the rules that wait for the content. Otherwise an alias whose mail comes back would get a copy in
//! each pass, and anybody could post to a list for members.
//!
//! Failure: a reply; the recipient is not taken, others are.

use std::sync::Arc;

use stentor_mail::address::Address;
use stentor_mail::headers::HeaderFacts;
use stentor_mail::reply::Reply;
use stentor_policy::Verdict;

use super::super::content::{Named, check as check_content};
use super::super::judge::Judged;
use super::rcpt::RcptContext;
use super::{InForce, Transaction};

impl Transaction {
    /// See the module's documentation.
    ///
    /// # Errors
    /// It is refused, with what refuses it in words.
    pub(super) fn check_late(
        &self,
        context: RcptContext<'_>,
        facts: &HeaderFacts,
        address: &Address,
        judged: &Judged,
    ) -> Result<(), (Reply, String)> {
        let RcptContext { core, settings, .. } = context;
        let (aliases, lists): (Vec<&Address>, &[Arc<str>]) = match &judged.verdict {
            Verdict::Alias(expansion) => (vec![address], &expansion.lists),
            Verdict::List(list) => (Vec::new(), std::slice::from_ref(list)),
            Verdict::Relay | Verdict::Bounces(_) | Verdict::Refuse(_) => (Vec::new(), &[]),
        };
        let named = Named { sender: &self.mail.path, aliases, lists };
        check_content(settings, &named, facts, &InForce(core), None).map_err(|reply| (reply, String::new()))?;
        let Some((reply, by)) = self.waiting.refusal(&settings.rules, &judged.open) else { return Ok(()) };
        Err((reply, settings.rules.shown(&by)))
    }
}
