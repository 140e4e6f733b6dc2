//! Carries out commands to lists: mail to `LIST-join@`, `-leave@`, `-confirm@` and `-request@`.
//!
//! Promise: the message itself is not queued; a confirmed change is durable in the registry before the 250. A request,
//! forged or not, changes nothing and causes at most one mail a day to one person ([`stentor_core::membership`]). Whose
//! request it is: [`stentor_lists::commands::requester`]. Automatic mail is accepted and ignored (RFC 3834), as is mail
//! that a rule or milter discards, redirects, holds or quarantines. Mail without commands costs a look at the addresses
//! of lists among its recipients.
//!
//! Failure: 450 for an untrusted client that sends many requests whose author nothing proves; 451 if the registry or
//! the journal cannot store the change. The client tries again.

use std::net::Ipv4Addr;
use std::sync::Arc;

use stentor_core::membership::{self, MembershipError, MembershipRequest, MembershipWish, RequestEffect};
use stentor_core::{Core, Settings, log};
use stentor_lists::commands::{CommandMail, ConfirmationToken, ListCommand, ListRequest, automatic, requester};
use stentor_mail::address::{Address, ReversePath};
use stentor_mail::headers::HeaderFacts;
use stentor_mail::heading::Heading;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_policy::{AddressClass, counted_as};
use stentor_smtp::server::EndOfData;

use super::Transaction;
use super::post_reports::NOT_READ;

const TOO_MANY_REQUESTS: Reply =
    Reply::fixed(450, Enhanced::new(4, 7, 1), "Too many list requests from your address, try again later");

/// A recipient that takes commands.
struct CommandAddress {
    list: Arc<str>,
    command: ListCommand,
    address: Address,
}

/// The person that the message's commands are for.
struct Requester {
    person: Address,
    /// The person's name; may be empty.
    name: String,
    /// DMARC passes for the person's domain, or a trusted client sends the message.
    is_proven: bool,
    message_id: Option<String>,
}

/// Where the commands of a message are carried out.
#[derive(Clone, Copy)]
struct CommandContext<'a> {
    core: &'a Core,
    requester: &'a Requester,
}

impl Transaction {
    /// Carries out the commands of a complete message.
    ///
    /// # Errors
    /// A command cannot be carried out now.
    pub(super) async fn list_commands(
        &mut self,
        core: &Core,
        settings: &Settings,
        end: &EndOfData,
    ) -> Result<(), Reply> {
        let named = self.rcpts.commands().filter(|named| named.params.quarantine.is_none());
        let commands: Vec<CommandAddress> = named
            .map(|named| CommandAddress {
                list: named.list.clone(),
                command: named.command,
                address: named.address.clone(),
            })
            .collect();
        let is_withheld = self.wishes.is_discarded()
            || self.wishes.redirect.is_some()
            || self.wishes.hold.is_some()
            || self.quarantine.is_some();
        if commands.is_empty() || is_withheld {
            return Ok(());
        }
        self.has_commands = true;
        let requester = match self.requester(settings, &end.facts) {
            Ok(requester) => requester,
            Err(why) => {
                for command in &commands {
                    self.log_command(core, command, "", &format!("ignored: {why}"));
                }
                return Ok(());
            }
        };
        let mut octets = Vec::new();
        let read = self.read_content(core, &end.last, CommandMail::BYTES_MAX, |piece| octets.extend_from_slice(piece));
        read.map_err(|error| {
            tracing::error!(message = %self.id, %error, "command to a list could not be read");
            NOT_READ
        })?;
        let requester = Requester { name: name_of(&octets, &requester.person), ..requester };
        let context = CommandContext { core, requester: &requester };
        for command in &commands {
            self.carry_out(context, command, &octets).await?;
        }
        Ok(())
    }

    /// Returns the person that the message is from, or why commands ignore it.
    fn requester(&self, settings: &Settings, facts: &HeaderFacts) -> Result<Requester, &'static str> {
        if let Some(why) = automatic(&self.mail.path, facts) {
            return Err(why);
        }
        let ReversePath::Address(sender) = &self.mail.path else { return Err("null sender") };
        let author = facts.from.as_deref().filter(|_| !facts.has_more_from);
        let author: Option<Address> = author.and_then(|from| Address::parse(from.as_bytes(), true).ok());
        let is_of_list = |address: &Address| {
            let class = settings.policy.rcpt(Ipv4Addr::LOCALHOST.into(), address);
            matches!(class, AddressClass::List(_) | AddressClass::Bounces(_) | AddressClass::Command { .. })
        };
        if is_of_list(sender) || author.as_ref().is_some_and(is_of_list) {
            return Err("sender is a list of this server");
        }
        let passes = self.dmarc.passed().is_some();
        let person = requester(sender, author.as_ref(), passes);
        let is_proven = self.is_of_trusted() || passes && author.as_ref() == Some(person);
        Ok(Requester { person: person.clone(), name: String::new(), is_proven, message_id: facts.message_id.clone() })
    }

    async fn carry_out(
        &self,
        context: CommandContext<'_>,
        command: &CommandAddress,
        octets: &[u8],
    ) -> Result<(), Reply> {
        let CommandContext { core, requester, .. } = context;
        let request = CommandMail { command: command.command, address: &command.address, octets }.request();
        let effect = match request {
            ListRequest::Confirm(token) => self.confirm(context, command, &token).await,
            ListRequest::Join => self.ask(context, command, MembershipWish::Join).await,
            ListRequest::Leave => self.ask(context, command, MembershipWish::Leave).await,
            ListRequest::Help => self.ask(context, command, MembershipWish::Help).await,
            ListRequest::Who => self.ask(context, command, MembershipWish::Who).await,
        };
        match effect {
            Ok(effect) => {
                self.log_command(core, command, requester.person.as_str(), &effect);
                Ok(())
            }
            Err(CommandFailure::TooMany) => {
                self.log_command(core, command, requester.person.as_str(), "deferred: too many requests of the client");
                Err(TOO_MANY_REQUESTS)
            }
            Err(CommandFailure::Membership(error)) => {
                tracing::error!(message = %self.id, list = &*command.list, %error, "command to a list failed");
                Err(error.reply())
            }
        }
    }

    /// Does what a token confirms. One that confirms nothing asks for help: the person may have answered too late.
    async fn confirm(
        &self,
        context: CommandContext<'_>,
        command: &CommandAddress,
        token: &ConfirmationToken,
    ) -> Result<String, CommandFailure> {
        let core = context.core;
        let list = Some(&*command.list);
        // A long session must not act for a list that has changed.
        match membership::confirm(core, &core.settings(), token, list, &self.source()).await? {
            Some(change) => {
                let confirmation = &change.confirmation;
                Ok(format!("confirmed: {:?} of {}", confirmation.action, confirmation.address))
            }
            None => Ok(format!("invalid token; {}", self.ask(context, command, MembershipWish::Help).await?)),
        }
    }

    async fn ask(
        &self,
        context: CommandContext<'_>,
        command: &CommandAddress,
        wish: MembershipWish,
    ) -> Result<String, CommandFailure> {
        let CommandContext { core, requester } = context;
        if !requester.is_proven {
            let (client, now) = (counted_as(self.client), core.clock.steady());
            let mut requests = core.list_requests.lock();
            if requests.wait_ms(&client, now).is_some() {
                return Err(CommandFailure::TooMany);
            }
            requests.wrong(&client, now);
        }
        let request = MembershipRequest {
            list: command.list.clone(),
            person: requester.person.clone(),
            name: requester.name.clone(),
            wish,
            source: self.source(),
            is_proven: requester.is_proven,
            message_id: requester.message_id.clone(),
        };
        Ok(match membership::request(core, &core.settings(), request).await? {
            RequestEffect::Mailed(kind) => format!("{wish:?}; mailed {kind:?}"),
            RequestEffect::Silent(why) => format!("{wish:?}; nothing mailed: {why}"),
        })
    }

    /// Who sends the command, for the registry.
    fn source(&self) -> String {
        format!("mail {}", self.client.to_canonical())
    }

    fn log_command(&self, core: &Core, command: &CommandAddress, person: &str, effect: &str) {
        let CommandAddress { list, command, .. } = command;
        log::list_command(core, list, &self.mail, self.client, &format!("{}, <{person}>, {effect}", command.word()));
    }
}

/// Why a command is not carried out.
enum CommandFailure {
    /// The client has sent too many requests.
    TooMany,
    Membership(MembershipError),
}

impl From<MembershipError> for CommandFailure {
    fn from(error: MembershipError) -> CommandFailure {
        CommandFailure::Membership(error)
    }
}

/// The author's name in From; empty if there is only an address.
fn name_of(octets: &[u8], person: &Address) -> String {
    let author = Heading::of(octets).author;
    if author.contains('@') || author.eq_ignore_ascii_case(person.as_str()) { String::new() } else { author }
}
