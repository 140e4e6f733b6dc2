//! RCPT call-ahead: asks a relay domain's next hop whether it accepts a recipient, before accepting the recipient here.
//!
//! A host is asked about the address that a delivery would use: over SMTP the recipient's generic address, if there is
//! one. The dialogue is MAIL from the null sender (or a configured one), one RCPT, then RSET or QUIT; never content.
//! Answers are cached ([`stentor_core::call_ahead`]).
//!
//! | reply of the next hop | answer |
//! |---|---|
//! | 2xx to RCPT | the recipient exists |
//! | 5xx to RCPT about the recipient's address | refused, with its code |
//! | none: the domain gets no mail, by its DNS records | refused |
//! | any other 5xx: about the mailbox (such as full), sender, policy or command; 4xx; no connection in time | undecided |
//!
//! Promise: no client waits longer than `timeout_s`, and one client's recipients never make a site fail for others. A
//! site gets at most `connections_per_site_max` connections and `questions_per_second_max` questions, however many
//! clients guess addresses, and none while it is failing. A connection ends before a host would slow it down for
//! refused recipients. Sites that do not answer leave connections to those that do
//! ([`stentor_core::call_ahead::Places`]).

mod session;
mod worker;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use stentor_addresses::AddressRole;
use stentor_config::UnverifiedAction;
use stentor_core::call_ahead::{
    AnswerReceiver, CacheLookup, CallAheadQuery, CallAheadResult, EntryOutcome, Names, QueryTicket, ReasonTexts,
};
use stentor_core::clock::Clock;
use stentor_core::limits::Limit;
use stentor_core::route::Route;
use stentor_core::sts::LookupServices;
use stentor_core::{Core, Settings};
use stentor_mail::address::Address;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_policy::counted_as;
use stentor_queue::book::at_hop;
use stentor_queue::site::{Resolution, SitePlan, Target};
use stentor_resolve::Resolver;
use stentor_rules::NextHop;
use stentor_smtp::client::{ParsedReply, RcptResult, RcptStage};

use self::worker::Outcome;
use crate::short_session::SessionContext;
use crate::{LookupContext, generic_address, look_up};

/// Octets of a host's reply that are kept and passed on.
const WORDS_BYTES_MAX: usize = 300;
/// Extra time beyond the deadline, so that an answer arrives before the time-out.
const GRACE_MS: u64 = 500;
/// Enhanced code of a refusal that has none.
const UNKNOWN_USER: Enhanced = Enhanced::new(5, 1, 1);
pub const NO_HOST: &str = "No mail server accepts mail for the recipient's domain";
const CROWDED: &str = "too many call-ahead checks in progress";

/// A recipient, and where its mail goes.
#[derive(Clone)]
pub struct RoutedRcpt {
    pub address: Address,
    pub hop: NextHop,
    /// Route kept with it, if its next hop is not the domain's.
    pub route: Route,
}

impl RoutedRcpt {
    /// Returns the addresses to ask about, and the cache key, which includes the next hop.
    async fn names(&self, settings: &Settings) -> Result<(Names, String), ReasonTexts> {
        let hosts = match &self.hop {
            NextHop::Hosts(hosts) => Some(hosts),
            NextHop::Named(name) => settings.rules.hops.get(name),
            NextHop::Mx | NextHop::Refuse(_) => None,
        };
        let by_smtp = hosts.is_none_or(|hosts| hosts.iter().any(|host| !host.lmtp));
        let by_lmtp = hosts.is_some_and(|hosts| hosts.iter().any(|host| host.lmtp));
        let stored = self.address.as_str();
        let mut generic: Option<Arc<str>> = None;
        if by_smtp && !settings.rules.addresses.generic.is_empty() {
            let found = generic_address(settings, stored, AddressRole::Recipient, None).await;
            generic =
                found.map_err(|reply| ReasonTexts::plain(&reply.text))?.map(|address| Arc::from(address.as_str()));
        }
        let asked = match &generic {
            Some(generic) if by_lmtp => format!("{stored} {generic}").to_lowercase(),
            Some(generic) => generic.to_lowercase(),
            None => stored.to_lowercase(),
        };
        // The MX hosts are those of the stored address, whichever address they are asked about.
        let hop = match hosts {
            Some(hosts) => NextHop::Hosts(hosts.clone()).to_string(),
            None => format!("{} {}", self.hop, self.address.domain().to_lowercase()),
        };
        Ok((Names { stored: stored.into(), generic }, at_hop(&asked, &hop)))
    }

    /// Returns the look-up key of the next hop.
    fn entry(&self) -> String {
        self.route.entry(self.address.domain()).into_owned()
    }
}

/// Returns the refusal for an answer, with the reason for the operator. `None`: the recipient is accepted.
pub fn refusal(answer: CallAheadResult, on_failure: UnverifiedAction) -> Option<(Reply, Arc<str>)> {
    match answer {
        CallAheadResult::Exists => None,
        CallAheadResult::Refused(reply, log) => Some((reply, log)),
        CallAheadResult::Undecided(_) if on_failure == UnverifiedAction::Accept => None,
        CallAheadResult::Undecided(ReasonTexts { client, log }) => Some((
            Reply::new(450, Enhanced::new(4, 1, 1), format!("The recipient could not be verified: {client}")),
            log,
        )),
    }
}

/// Asks whether a recipient's next hop accepts mail for it, as far as that can be found out in time.
pub async fn ask(core: &Arc<Core>, settings: &Arc<Settings>, client: IpAddr, recipient: RoutedRcpt) -> CallAheadResult {
    let begun = core.clock.steady();
    let timeout_ms = settings.config.call_ahead.timeout_ms;
    let names = tokio::time::timeout(Duration::from_millis(timeout_ms), recipient.names(settings)).await;
    let (names, key) = match names {
        Ok(Ok(found)) => found,
        Ok(Err(words)) => return CallAheadResult::Undecided(words),
        Err(_) => return CallAheadResult::Undecided(late(settings)),
    };
    let start = |ticket| {
        let (core, settings, client) = (core.clone(), settings.clone(), counted_as(client));
        // A client that disconnects does not end the question: others may wait for the answer.
        drop(tokio::spawn(put(core, settings, client, recipient.entry(), names, ticket)));
    };
    let awaited = match core.call_ahead.look(&key, core.clock.steady()) {
        CacheLookup::Known(answer) => return answer,
        CacheLookup::Refresh(answer, ticket) => {
            start(ticket);
            return answer;
        }
        CacheLookup::Wait(awaited) => awaited,
        CacheLookup::Ask(ticket, awaited) => {
            start(ticket);
            awaited
        }
        CacheLookup::Crowded => {
            core.limits.hit(Limit::CallAheadQuestions, core.clock.now());
            return CallAheadResult::Undecided(ReasonTexts::plain(CROWDED));
        }
    };
    let limit = Duration::from_millis((begun + timeout_ms + GRACE_MS).saturating_sub(core.clock.steady()));
    answered(awaited, limit).await.unwrap_or_else(|| CallAheadResult::Undecided(late(settings)))
}

async fn answered(mut awaited: AnswerReceiver, limit: Duration) -> Option<CallAheadResult> {
    let answer = tokio::time::timeout(limit, awaited.wait_for(Option::is_some)).await;
    answer.ok()?.ok()?.clone()
}

fn late(settings: &Settings) -> ReasonTexts {
    ReasonTexts::plain(&format!("no answer within {} s", settings.config.call_ahead.timeout_ms / 1_000))
}

/// Finds the site of a question and hands the question to it.
async fn put(
    core: Arc<Core>,
    settings: Arc<Settings>,
    client: IpAddr,
    entry: String,
    names: Names,
    ticket: QueryTicket,
) {
    let config = &settings.config.call_ahead;
    let tell = |ticket: QueryTicket, answer| ticket.answer(answer, config, core.clock.steady());
    let undecided = |ticket, words| tell(ticket, CallAheadResult::Undecided(words));
    let deadline = core.clock.steady() + config.timeout_ms;
    let limit = Duration::from_millis(config.timeout_ms);
    let looked_up =
        tokio::time::timeout(limit, look_up(&LookupContext::of(&core, &core.resolver(), &settings), &entry)).await;
    let plan = match looked_up.map(planned) {
        Ok(Ok(plan)) => Arc::new(plan),
        Ok(Err(answer)) => return tell(ticket, answer),
        Err(_) => return undecided(ticket, late(&settings)),
    };
    let of_site = plan.limits.connections_max.map_or(usize::MAX, |max| max.max(1) as usize);
    let workers_max = config.connections_per_site_max.min(of_site);
    let site = plan.key.clone();
    let question = CallAheadQuery { client, names, plan, settings: settings.clone(), ticket, deadline };
    match core.call_ahead.sites.enter(question, workers_max, core.clock.steady()) {
        EntryOutcome::Waits(Some(wake)) => worker::start(core.clone(), site, wake),
        EntryOutcome::Waits(None) => {}
        EntryOutcome::Failing(question, words) => undecided(question.ticket, words),
        EntryOutcome::Full(question) => {
            core.limits.hit(Limit::CallAheadQuestions, core.clock.now());
            undecided(question.ticket, ReasonTexts::plain(CROWDED));
        }
    }
}

/// Returns the hosts to ask, or the answer if there are none.
pub fn planned(resolution: Resolution) -> Result<SitePlan, CallAheadResult> {
    let none = |text: &str| CallAheadResult::Undecided(ReasonTexts::new("no mail server found", text));
    match resolution {
        Resolution::Site(plan) if plan.targets.is_empty() => Err(none("no address of any host")),
        Resolution::Site(plan) => Ok(plan),
        Resolution::Temporary { text, .. } => Err(none(&text)),
        // A delivery would return the mail.
        Resolution::Permanent { dsn, text } => Err(CallAheadResult::Refused(
            Reply { code: 550, enhanced: Some(dsn), text: NO_HOST.into(), limit: None },
            text.into(),
        )),
    }
}

/// Asks once without the cache, for `stentor explain`.
pub async fn once(settings: &Settings, clock: &Clock, recipient: &RoutedRcpt) -> CallAheadResult {
    let config = &settings.config.call_ahead;
    let asked = async {
        let resolver = match Resolver::new(settings.resolver(&[])) {
            Ok(resolver) => resolver,
            Err(error) => return CallAheadResult::Undecided(ReasonTexts::plain(&error.to_string())),
        };
        let context =
            LookupContext { services: LookupServices { resolver: &resolver, settings, clock }, policies: None };
        let plan = match planned(look_up(&context, &recipient.entry()).await) {
            Ok(plan) => plan,
            Err(answer) => return answer,
        };
        let names = match recipient.names(settings).await {
            Ok((names, _)) => names,
            Err(words) => return CallAheadResult::Undecided(words),
        };
        let context = SessionContext { settings, clock, live: None };
        let deadline = clock.steady() + config.timeout_ms;
        let mut session = None;
        let asked = worker::ask(context, &mut session, &plan.targets, &names, deadline, &|| ()).await;
        if let Some(session) = session {
            session.quit(None).await;
        }
        match asked {
            Outcome::Said(answer) => answer,
            Outcome::Unsaid(words) | Outcome::Down(words) => CallAheadResult::Undecided(words),
        }
    };
    let limit = Duration::from_millis(config.timeout_ms + GRACE_MS);
    tokio::time::timeout(limit, asked).await.unwrap_or_else(|_| CallAheadResult::Undecided(late(settings)))
}

/// Converts a host's reply to an answer about the recipient. `Err`: the reply concerns the sender, and so every
/// question.
pub fn answer_of(target: &Target, result: &RcptResult) -> Result<CallAheadResult, ReasonTexts> {
    let said = short(&result.reply.to_string());
    let words = || ReasonTexts::new(said.as_str(), format!("{target} said {said}"));
    match result.stage {
        RcptStage::Rcpt if result.reply.is_success() => Ok(CallAheadResult::Exists),
        RcptStage::Rcpt | RcptStage::Local if is_about_recipient(&result.reply) => {
            let enhanced = Some(result.reply.enhanced.unwrap_or(UNKNOWN_USER));
            let text = format!("The recipient's mail server refused it: {said}").into();
            Ok(CallAheadResult::Refused(Reply { code: result.reply.code, enhanced, text, limit: None }, words().log))
        }
        RcptStage::Mail => {
            Err(ReasonTexts::new("its mail server does not answer the check", format!("{} to MAIL", words().log)))
        }
        _ => Ok(CallAheadResult::Undecided(words())),
    }
}

/// Whether a refusal is about the recipient's address (RFC 3463: address, routing, or unspecified). Other refusals
/// concern the state of an existing mailbox, the command, the protocol, the host's state, or policy, and may apply only
/// to the question.
fn is_about_recipient(reply: &ParsedReply) -> bool {
    // RFC 5321 section 4.2.3: 552 is about space, and 554 about anything.
    let is_of_command = matches!(reply.code, 500 | 502..=504 | 555);
    match reply.enhanced.map(|code| (code.subject, code.detail)) {
        None | Some((0, _)) => matches!(reply.code, 501 | 550 | 551 | 553 | 556),
        // Codes about the sender's address.
        Some((1, 7 | 8)) => false,
        Some((1 | 4, _)) => reply.is_permanent() && !is_of_command && reply.code != 552,
        Some((6, _)) => reply.code == 553,
        Some(_) => false,
    }
}

fn short(text: &str) -> String {
    let end = text.floor_char_boundary(WORDS_BYTES_MAX.min(text.len()));
    text[..end].to_owned()
}
