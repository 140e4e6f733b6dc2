//! RCPT call-ahead: a relay domain's next hop is asked whether it takes a recipient, before the recipient is taken here.
//!
//! What is asked: MAIL from the null sender (or the one that is configured), one RCPT, then RSET or QUIT; never content. Answers are
//! kept ([`crate::core::call_ahead`]).
//!
//! | the next hop says | answer |
//! |---|---|
//! | 2xx to RCPT | it exists |
//! | 5xx to RCPT that is about the recipient | refused |
//! | any other 5xx: of the sender, of policy, of the command; 4xx; no connection in time; DNS has no host | undecided |
//!
//! Promise: nobody waits longer than `timeout_s`, and what one client names makes no site fail for the others. A site has at most `connections_per_site_max` connections and gets
//! `questions_per_second_max` questions, however many clients guess addresses, and none while it fails; a connection ends before a
//! host would slow it down for refused recipients.

mod session;
mod worker;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use stentor_config::OnFailure;
use stentor_mail::address::Address;
use stentor_mail::client::{ParsedReply, RcptResult, Stage};
use stentor_mail::reply::Reply;
use stentor_policy::counted_as;
use stentor_queue::book::at_hop;
use stentor_queue::site::{Resolution, Target};
use stentor_resolve::Resolver;
use stentor_rules::NextHop;

use self::session::Engine;
use self::worker::Outcome;
use crate::clock::Clock;
use crate::core::call_ahead::{Answer, Awaited, Entered, Look, Question, Ticket, Words};
use crate::core::limits::Limit;
use crate::core::{Core, Settings};
use crate::delivery::look_up;

/// Of a host's words that are kept and passed on.
const WORDS_BYTES_MAX: usize = 300;
/// What a client hears beyond the answer's own time: the answer comes first.
const GRACE_MS: u64 = 500;
const CROWDED: &str = "too many recipients are being asked for";

/// A recipient, and where its mail goes.
#[derive(Clone)]
pub struct Recipient {
    pub address: Address,
    pub hop: NextHop,
    /// What its next hop is looked up by, where that is not its domain's: see [`at_hop`].
    pub own_hop: Option<Arc<str>>,
}

impl Recipient {
    /// What an answer is kept under: another next hop may say something else.
    fn key(&self, settings: &Settings) -> String {
        let address = self.address.as_str().to_lowercase();
        let named = if let NextHop::Named(name) = &self.hop { settings.rules.hops.get(name) } else { None };
        match named {
            Some(hosts) => at_hop(&address, &NextHop::Hosts(hosts.clone()).to_string()),
            None => at_hop(&address, &self.hop.to_string()),
        }
    }

    /// What is looked up.
    fn entry(&self) -> String {
        let domain = self.address.domain();
        self.own_hop.as_ref().map_or_else(|| domain.to_owned(), |hop| at_hop(domain, hop))
    }
}

/// The refusal that follows from an answer, with why in words for the operator; `None`: the recipient is taken.
pub fn refusal(answer: Answer, on_failure: OnFailure) -> Option<(Reply, Arc<str>)> {
    match answer {
        Answer::Exists => None,
        Answer::Refused(Words { client, log }) => {
            Some((Reply::new(550, (5, 1, 1), format!("The recipient's mail server refuses it: {client}")), log))
        }
        Answer::Undecided(_) if on_failure == OnFailure::Accept => None,
        Answer::Undecided(Words { client, log }) => {
            Some((Reply::new(450, (4, 1, 1), format!("The recipient cannot be verified now: {client}")), log))
        }
    }
}

/// Whether a recipient's next hop takes mail for it, as far as that can be found out in time.
pub async fn ask(core: &Arc<Core>, settings: &Arc<Settings>, client: IpAddr, recipient: Recipient) -> Answer {
    let awaited = match core.call_ahead.look(&recipient.key(settings), core.clock.steady()) {
        Look::Known(answer) => return answer,
        Look::Refresh(answer, ticket) => {
            drop(tokio::spawn(put(core.clone(), settings.clone(), counted_as(client), recipient, ticket)));
            return answer;
        }
        Look::Wait(awaited) => awaited,
        Look::Ask(ticket, awaited) => {
            // A client that goes away does not end the question: others may wait for the answer.
            drop(tokio::spawn(put(core.clone(), settings.clone(), counted_as(client), recipient, ticket)));
            awaited
        }
        Look::Crowded => {
            core.limits.hit(Limit::CallAheadQuestions, core.clock.now());
            return Answer::Undecided(Words::plain(CROWDED));
        }
    };
    let limit = Duration::from_millis(settings.config.call_ahead.timeout_ms + GRACE_MS);
    answered(awaited, limit).await.unwrap_or_else(|| Answer::Undecided(late(settings)))
}

async fn answered(mut awaited: Awaited, limit: Duration) -> Option<Answer> {
    let answer = tokio::time::timeout(limit, awaited.wait_for(Option::is_some)).await;
    answer.ok()?.ok()?.clone()
}

fn late(settings: &Settings) -> Words {
    Words::plain(&format!("no answer within {} s", settings.config.call_ahead.timeout_ms / 1_000))
}

/// Finds the site of a question and brings it there.
async fn put(core: Arc<Core>, settings: Arc<Settings>, client: IpAddr, recipient: Recipient, ticket: Ticket) {
    let config = &settings.config.call_ahead;
    let answer = |ticket: Ticket, words| ticket.answer(Answer::Undecided(words), config, core.clock.steady());
    let deadline = core.clock.steady() + config.timeout_ms;
    let limit = Duration::from_millis(config.timeout_ms);
    let looked_up = tokio::time::timeout(limit, look_up(&core.resolver, &settings, &recipient.entry())).await;
    let plan = match looked_up.map(planned) {
        Ok(Ok(plan)) => Arc::new(plan),
        Ok(Err(words)) => return answer(ticket, words),
        Err(_) => return answer(ticket, late(&settings)),
    };
    let of_site = plan.limits.connections_max.map_or(usize::MAX, |max| max.max(1) as usize);
    let workers_max = config.connections_per_site_max.min(of_site);
    let (address, site) = (recipient.address.as_str().into(), plan.key.clone());
    let question = Question { client, address, plan, settings: settings.clone(), ticket, deadline };
    match core.call_ahead.sites.enter(question, workers_max, core.clock.steady()) {
        Entered::Waits(Some(wake)) => drop(tokio::spawn(worker::work(core.clone(), site, wake))),
        Entered::Waits(None) => {}
        Entered::Failing(question, words) => answer(question.ticket, words),
        Entered::Full(question) => {
            core.limits.hit(Limit::CallAheadQuestions, core.clock.now());
            answer(question.ticket, Words::plain(CROWDED));
        }
    }
}

/// The hosts to be asked; why there are none.
fn planned(resolution: Resolution) -> Result<stentor_queue::site::SitePlan, Words> {
    let none = |text: &str| Words::new("its mail server cannot be found", text);
    match resolution {
        Resolution::Site(plan) if plan.targets.is_empty() => Err(none("no address of any host")),
        Resolution::Site(plan) => Ok(plan),
        Resolution::Temporary { text, .. } | Resolution::Permanent { text, .. } => Err(none(&text)),
    }
}

/// Asks once, with nothing kept: for `stentor explain`.
pub async fn once(settings: &Settings, clock: &Clock, recipient: &Recipient) -> Answer {
    let config = &settings.config.call_ahead;
    let asked = async {
        let resolver = match Resolver::new(settings.resolver(&[])) {
            Ok(resolver) => resolver,
            Err(error) => return Answer::Undecided(Words::plain(&error.to_string())),
        };
        let plan = match planned(look_up(&resolver, settings, &recipient.entry()).await) {
            Ok(plan) => plan,
            Err(words) => return Answer::Undecided(words),
        };
        let engine = Engine { settings, clock, live: None };
        let deadline = clock.steady() + config.timeout_ms;
        let mut session = None;
        let asked = worker::ask(engine, &mut session, &plan.targets, recipient.address.as_str(), deadline).await;
        if let Some(session) = session {
            session.quit(None).await;
        }
        match asked {
            Outcome::Said(answer) => answer,
            Outcome::Unsaid(words) | Outcome::Down(words) => Answer::Undecided(words),
        }
    };
    let limit = Duration::from_millis(config.timeout_ms + GRACE_MS);
    tokio::time::timeout(limit, asked).await.unwrap_or_else(|_| Answer::Undecided(late(settings)))
}

/// What a host's reply says of the recipient. `Err`: it says something of the sender, thus of everyone.
fn answer_of(target: &Target, result: &RcptResult) -> Result<Answer, Words> {
    let said = short(&result.reply.to_string());
    let words = || Words::new(said.as_str(), format!("{target} said {said}"));
    match result.stage {
        Stage::Rcpt if result.reply.is_success() => Ok(Answer::Exists),
        Stage::Rcpt | Stage::Local if is_about_recipient(&result.reply) => Ok(Answer::Refused(words())),
        Stage::Mail => {
            Err(Words::new("its mail server does not answer the question", format!("{} to MAIL", words().log)))
        }
        _ => Ok(Answer::Undecided(words())),
    }
}

/// Whether a refusal is about the recipient (RFC 3463: address, mailbox, routing, or nothing in particular), and not about the
/// command, the protocol, the host's state, or policy, which may hold for the question alone.
fn is_about_recipient(reply: &ParsedReply) -> bool {
    let is_of_command = matches!(reply.code, 500 | 502..=504 | 555);
    reply.is_permanent() && !is_of_command && reply.enhanced.is_none_or(|code| matches!(code.subject, 0 | 1 | 2 | 4))
        || reply.code == 553 && reply.enhanced.is_some_and(|code| code.subject == 6)
}

fn short(text: &str) -> String {
    let end = text.floor_char_boundary(WORDS_BYTES_MAX.min(text.len()));
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use stentor_mail::client::Extensions;
    use stentor_mail::reply::Enhanced;

    use super::*;

    fn said(stage: Stage, code: u16, enhanced: Option<(u8, u16, u16)>) -> String {
        let target = Target { preference: 0, host: "mx.inner".into(), addr: ([192, 0, 2, 1], 25).into(), lmtp: false };
        let enhanced = enhanced.map(|(class, subject, detail)| Enhanced::new(class, subject, detail));
        let reply = ParsedReply { code, enhanced, text: "words".into() };
        match answer_of(&target, &RcptResult { reply, stage, blames: Extensions::NONE }) {
            Ok(Answer::Exists) => "exists".to_owned(),
            Ok(Answer::Refused(words)) => format!("refused: {}", words.log),
            Ok(Answer::Undecided(words)) => format!("undecided: {}", words.log),
            Err(words) => format!("site: {}", words.log),
        }
    }

    #[test]
    fn only_a_refusal_of_the_recipient_refuses_it() {
        assert_eq!(said(Stage::Rcpt, 250, None), "exists");
        assert_eq!(said(Stage::Rcpt, 550, None), "refused: mx.inner [192.0.2.1] said 550 words");
        for (code, enhanced) in
            [(550, (5, 1, 1)), (550, (5, 2, 1)), (550, (5, 4, 1)), (501, (5, 1, 3)), (550, (5, 0, 0))]
        {
            assert!(said(Stage::Rcpt, code, Some(enhanced)).starts_with("refused"), "{code} {enhanced:?}");
        }
        for (code, enhanced) in [
            (450, Some((4, 1, 1))),
            (451, None),
            (554, Some((5, 7, 1))),
            (503, None),
            (501, Some((5, 5, 4))),
            (554, Some((5, 3, 0))),
        ] {
            assert!(said(Stage::Rcpt, code, enhanced).starts_with("undecided"), "{code} {enhanced:?}");
        }
        assert!(
            said(Stage::Mail, 550, Some((5, 7, 1)))
                .starts_with("site: mx.inner [192.0.2.1] said 550 5.7.1 words to MAIL")
        );
        assert!(said(Stage::Lost, 421, Some((4, 4, 2))).starts_with("undecided"));
    }

    #[test]
    fn a_failure_defers_or_accepts_and_the_client_learns_of_no_host() {
        let answer = Answer::Undecided(Words::new("its mail server cannot be reached", "mx.inner [10.0.0.1]: refused"));
        let (reply, log) = refusal(answer.clone(), OnFailure::Defer).unwrap();
        assert_eq!(
            reply.to_string(),
            "450 4.1.1 The recipient cannot be verified now: its mail server cannot be reached"
        );
        assert_eq!(&*log, "mx.inner [10.0.0.1]: refused");
        assert_eq!(refusal(answer, OnFailure::Accept), None);
        assert_eq!(refusal(Answer::Exists, OnFailure::Defer), None);
        let refused = refusal(Answer::Refused(Words::plain("550 5.1.1 No such user")), OnFailure::Accept).unwrap();
        assert_eq!(refused.0.to_string(), "550 5.1.1 The recipient's mail server refuses it: 550 5.1.1 No such user");
    }
}
