//! Joining and leaving lists: requests by mail or web page, and their confirmations.
//!
//! Promise: a request changes nothing. It causes at most one mail a day to the person it names, whoever sends it and
//! however often ([`AddressRegistry::offer`]); that mail has a token, and only the token changes the membership, once.
//! A change is durable when [`confirm`] returns it. The mail is our own: from the null sender, so that it never
//! bounces, and marked as automatic.
//!
//! Failure: a registry that refuses changes, or a full queue, is a [`MembershipError`], and the client tries again. If
//! only the mail could not be stored, the person gets none until the next day: the request is noted first, so that no
//! crash makes two mails of one. A welcome or goodbye that cannot be stored is logged.
//!
//! [`AddressRegistry::offer`]: stentor_registry::AddressRegistry::offer

use std::sync::Arc;

use stentor_lists::List;
use stentor_lists::commands::{ConfirmationToken, JoinPolicy};
use stentor_lists::replies::{CommandReply, ReplyKind};
use stentor_mail::address::Address;
use stentor_mail::dsn::format_date;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_queue::ids::Ms;
use stentor_registry::{Confirmation, ConfirmedAction, NAME_BYTES_MAX, OfferEffect, OfferPause, RegistryError};

use super::Core;
use super::envelope::{EnvelopeRcpt, NewEnvelope};
use super::intake::IntakeRefusal;
use super::log;
use super::own::{MessageIds, hand_in};
use super::settings::Settings;

/// How long a person may wait before confirming.
const EXPIRES_DAYS: u64 = 3;
const DAY_MS: Ms = 24 * 3_600_000;
/// What a person asks for; nothing of it happens without a confirmation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MembershipWish {
    Join,
    Leave,
    Help,
    /// Help with the number of members.
    Who,
}

/// A request about one person's membership of a list.
#[derive(Debug, Clone)]
pub struct MembershipRequest {
    pub list: Arc<str>,
    pub person: Address,
    /// The person's name; may be empty.
    pub name: String,
    pub wish: MembershipWish,
    /// Who asks: `mail 192.0.2.1`.
    pub source: String,
    /// The person is proven to ask.
    pub is_proven: bool,
    /// Message-ID of a request by mail.
    pub message_id: Option<String>,
}

/// Effect of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestEffect {
    Mailed(ReplyKind),
    /// Nothing is sent, for this reason.
    Silent(&'static str),
}

#[derive(Debug, thiserror::Error)]
pub enum MembershipError {
    #[error("{0}")]
    Registry(#[from] RegistryError),
    #[error("{0}")]
    Intake(#[from] IntakeRefusal),
}

impl MembershipError {
    /// The reply to the client.
    pub fn reply(&self) -> Reply {
        match self {
            MembershipError::Registry(_) => {
                Reply::fixed(451, Enhanced::new(4, 3, 0), "The request could not be stored, try again later")
            }
            MembershipError::Intake(refused) => refused.reply(),
        }
    }
}

/// A change that a person confirmed.
#[derive(Debug)]
pub struct ConfirmedChange {
    pub confirmation: Confirmation,
    pub list: Arc<List>,
}

/// Returns a list that takes commands.
pub fn command_list<'s>(settings: &'s Settings, name: &str) -> Option<&'s Arc<List>> {
    settings.list(name).filter(|list| list.settings().commands.is_some())
}

/// Mails the person a token, unless that happened within a day.
///
/// # Errors
/// The request or its mail cannot be stored.
pub async fn request(
    core: &Core,
    settings: &Settings,
    request: MembershipRequest,
) -> Result<RequestEffect, MembershipError> {
    let Some(list) = command_list(settings, &request.list) else { return Ok(RequestEffect::Silent("no such list")) };
    let readers = settings.readers_of(&request.person, core.clock.now()).await?;
    if !readers.lists.is_empty() || readers.people.is_empty() {
        return Ok(RequestEffect::Silent("the address is a list, or has no mailbox"));
    }
    let is_closed = list.settings().commands.is_some_and(|commands| commands.join == JoinPolicy::Closed);
    let token = ConfirmationToken::new(stentor_config::keys::random());
    // Several people behind one address could be mailed through each of their other addresses.
    let [reader] = &readers.people[..] else { return Ok(RequestEffect::Silent("the address has several readers")) };
    let pause = OfferPause { reader: reader.to.address.to_string(), is_proven: request.is_proven };
    let offer =
        |action| core.registry.offer(token.as_str(), confirmation(&request, action, core.clock.now()), pause.clone());
    let (join, leave) = (ConfirmedAction::Join, ConfirmedAction::Leave);
    // Who asks for what is so already gets help, with the token for the opposite.
    let (effect, kind) = match request.wish {
        MembershipWish::Leave => match offer(leave).await? {
            OfferEffect::NotMember if is_closed => (OfferEffect::NotMember, ReplyKind::HelpToJoin),
            OfferEffect::NotMember => (offer(join).await?, ReplyKind::HelpToJoin),
            effect => (effect, ReplyKind::ConfirmLeave),
        },
        _ if is_closed => (offer(leave).await?, ReplyKind::HelpToLeave),
        wish => match offer(join).await? {
            OfferEffect::AlreadyMember => (offer(leave).await?, ReplyKind::HelpToLeave),
            effect if wish == MembershipWish::Join => (effect, ReplyKind::ConfirmJoin),
            effect => (effect, ReplyKind::HelpToJoin),
        },
    };
    match effect {
        OfferEffect::Offered => {}
        OfferEffect::MailedRecently => return Ok(RequestEffect::Silent("mailed within a day")),
        OfferEffect::Banned => {
            return Ok(RequestEffect::Silent("the person is suppressed for the list by an operator"));
        }
        OfferEffect::AlreadyMember | OfferEffect::NotMember => {
            return Ok(RequestEffect::Silent("the list is closed to others"));
        }
    }
    let members = (request.wish == MembershipWish::Who).then(|| core.registry.member_count(&request.list));
    let text = ReplyText { list, kind, token: Some(&token), members, in_reply_to: request.message_id.as_deref() };
    text.send(core, settings, &request.person).await?;
    Ok(RequestEffect::Mailed(kind))
}

fn confirmation(request: &MembershipRequest, action: ConfirmedAction, now: Ms) -> Confirmation {
    let mut name: String = request.name.trim().chars().filter(|c| !c.is_control()).collect();
    name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
    Confirmation {
        list: request.list.to_string(),
        address: request.person.to_string(),
        name,
        action,
        source: request.source.clone(),
        since: now,
        expires: now + EXPIRES_DAYS * DAY_MS,
    }
}

/// Returns what a token confirms, without using it up. `list`: the list that it was presented to, if any.
///
/// # Errors
/// The registry cannot be read.
pub async fn pending(
    core: &Core,
    settings: &Settings,
    token: &ConfirmationToken,
    list: Option<&str>,
) -> Result<Option<ConfirmedChange>, MembershipError> {
    let found = core.registry.confirmation(token.as_str(), core.clock.now()).await?;
    Ok(found.and_then(|confirmation| valid(settings, confirmation, list)))
}

/// A confirmation that is valid for the list, under its present settings.
fn valid(settings: &Settings, confirmation: Confirmation, asked: Option<&str>) -> Option<ConfirmedChange> {
    let list = command_list(settings, &confirmation.list)?.clone();
    let is_closed = list.settings().commands.is_some_and(|commands| commands.join == JoinPolicy::Closed);
    let is_asked = asked.is_none_or(|asked| *asked == *confirmation.list);
    let is_refused = is_closed && confirmation.action == ConfirmedAction::Join;
    (is_asked && !is_refused).then_some(ConfirmedChange { confirmation, list })
}

/// Does what a token confirms, and sends the welcome or goodbye. `None`: the token is unknown, used or expired, or
/// for another list. `source`: who confirms.
///
/// # Errors
/// The change cannot be stored.
pub async fn confirm(
    core: &Core,
    settings: &Settings,
    token: &ConfirmationToken,
    list: Option<&str>,
    source: &str,
) -> Result<Option<ConfirmedChange>, MembershipError> {
    if pending(core, settings, token, list).await?.is_none() {
        return Ok(None);
    }
    let Some(confirmation) = core.registry.confirm(token.as_str(), core.clock.now()).await? else { return Ok(None) };
    let Some(change) = valid(settings, confirmation, list) else { return Ok(None) };
    let Confirmation { list: name, address, action, .. } = &change.confirmation;
    let (verb, kind) = match action {
        ConfirmedAction::Join => ("join", ReplyKind::Welcome),
        ConfirmedAction::Leave => ("leave", ReplyKind::Goodbye),
    };
    log::audit_note(core, verb, source, &format!("{address} list {name}"));
    if let Ok(person) = address.parse() {
        let text = ReplyText { list: &change.list, kind, token: None, members: None, in_reply_to: None };
        if let Err(error) = text.send(core, settings, &person).await {
            tracing::warn!(list = name, %person, %error, "{verb} confirmed, but the mail about it could not be stored");
        }
    }
    Ok(Some(change))
}

/// A mail to a person about a list.
struct ReplyText<'a> {
    list: &'a List,
    kind: ReplyKind,
    token: Option<&'a ConfirmationToken>,
    members: Option<u64>,
    in_reply_to: Option<&'a str>,
}

impl ReplyText<'_> {
    async fn send(&self, core: &Core, settings: &Settings, person: &Address) -> Result<(), IntakeRefusal> {
        let now = core.clock.now();
        let readers = settings.readers_of(person, now).await?;
        let to: Vec<EnvelopeRcpt> = readers.people.into_iter().map(|reader| reader.to).collect();
        if to.is_empty() {
            return Ok(());
        }
        let ids = MessageIds::next(core);
        let message_id = format!("<{}.list@{}>", ids.message, settings.config.hostname);
        let reply = CommandReply {
            list: self.list,
            to: person,
            kind: self.kind,
            token: self.token,
            days: EXPIRES_DAYS,
            link_base: settings.config.http.link_base.as_deref(),
            members: self.members,
            in_reply_to: self.in_reply_to,
            date: &format_date(now),
            message_id: &message_id,
        };
        let body = reply.write();
        let envelope = NewEnvelope { eight_bit: !body.is_ascii(), ..NewEnvelope::own(to, message_id, "list command") };
        hand_in(core, ids, body, envelope, Vec::new()).await
    }
}
