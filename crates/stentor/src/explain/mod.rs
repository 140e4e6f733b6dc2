//! `stentor explain`: what the configuration would do with one recipient of one message, and every look-up on the way.
//!
//! It evaluates the file, not the running server, so `--config` can test a configuration before it is loaded. Tables in
//! files are read, tables behind sockets are queried.

mod changes;
mod forwards;
mod message;
mod queue_reasons;
pub(crate) mod replay;
mod suppressed;
mod targets;
mod words;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::json;
use stentor_addresses::AddressRole;
use stentor_config::Config;
use stentor_control::format::line;
use stentor_core::Settings;
use stentor_core::call_ahead::CallAheadResult;
use stentor_core::clock::Clock;
use stentor_core::next_hops::own_hop;
use stentor_core::route::Route;
use stentor_delivery::call_ahead::{self, RoutedRcpt};
use stentor_lists::PostingPolicy;
use stentor_mail::address::{Address, AddressError};
use stentor_mail::reply::Reply;
use stentor_policy::AddressClass;
use stentor_reputation::{ClientBehaviour, ClientName, RateOver};
use stentor_resolve::{Asker, Resolver, ResolverError};
use stentor_rules::{Decision, DecisionReason, Marks, NextHop, Outcome, Rulebook, Step};
use stentor_sessions::{ClientProof, Decider, Speaker, Stranger, calls_ahead, canonical};

use self::forwards::Forward;
use self::suppressed::SuppressionFacts;
use self::targets::{Target, Targets, targets};
use self::words::{also, also_without_places, because_of, by_srs, class_of, headline, logged, unknown};
use crate::asking::{ServerState, fail, load_noting, locate, server_at, usage};
use crate::hints::ServerReference;
use crate::output::{done, print};

/// Exit codes of sysexits(3) for the server's reply to RCPT or, with `--message`, to the data.
const REFUSED: u8 = 69;
const DEFERRED: u8 = 75;
const POSTMASTER: &str = "postmaster";
/// The name that rules see for a client without one.
const NAMELESS: &str = stentor_rules::UNKNOWN;

#[derive(Args)]
#[command(after_long_help = "Suppressions are considered while the server runs. Changes made by command (queue-only, \
        suspend, standing bounces) are not: see `stentor status`.\n\nExit codes: 0 accepted (also discarded or quarantined), 69 refused, 75 deferred, 2 wrong \
        arguments, 1 any other failure.")]
pub struct Options {
    /// The envelope sender; "" or "<>" for the null sender. For trusted clients, a name without a domain gets
    /// `[addresses] origin`.
    #[arg(long, value_name = "ADDRESS")]
    from: String,
    /// The recipient; `postmaster` without a domain is this server's, other names as in --from.
    #[arg(long, value_name = "ADDRESS")]
    to: String,
    /// The client's address; the first step shows whether it may relay.
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    client: IpAddr,
    /// The client's name, confirmed by reverse and forward DNS; `unknown` if it has none [default: conditions on it are
    /// reported as unknown].
    #[arg(long, value_name = "NAME")]
    client_name: Option<String>,
    /// Whether the client speaks before the greeting.
    #[arg(long, value_name = "WHETHER")]
    early_talker: Option<YesNo>,
    /// The client's rate: `40 connections/minute`; also messages or recipients, and hour. May be given several times.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Vec<RateOver>,
    /// Whether the greylist defers the mail.
    #[arg(long, value_name = "WHETHER")]
    greylisted: Option<YesNo>,
    /// The client's name in HELO or EHLO.
    #[arg(long, value_name = "NAME", default_value = "")]
    helo: String,
    /// A message file, with CRLF or LF line ends: also evaluate its header, text and size. Its Authentication-Results
    /// of this server count as if its milters had added them.
    #[arg(long, value_name = "FILE")]
    message: Option<PathBuf>,
    /// The client has logged in.
    #[arg(long)]
    login: bool,
    /// Ask the next hop of a relay domain whether it accepts the recipient.
    #[arg(long)]
    call_ahead: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// The configuration [default: `$STENTOR_CONFIG`, else /etc/stentor/stentor.toml].
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum YesNo {
    Yes,
    No,
}

fn rate(text: &str) -> Result<RateOver, &'static str> {
    RateOver::parse(text).ok_or(
        "write, for instance, 40 connections/minute; connections, messages or recipients, per \
        minute or hour",
    )
}

pub fn run(options: &Options) -> ExitCode {
    let config = match load_noting(options.config.as_deref()) {
        Ok(config) => config,
        Err(code) => {
            if let Some(file) = served_file(options.config.as_deref()) {
                let why = format!(
                    "cannot explain {}, which has errors; the running server still uses the previous version, and a \
                     restart would \
                     fail: correct the file, then `stentor reload`",
                    file.display()
                );
                fail(&ServerReference::config(options.config.as_deref()).complete(&why));
            }
            return code;
        }
    };
    // RFC 5321 section 4.5.1: `postmaster` without a domain is valid.
    let is_bare = options.to.eq_ignore_ascii_case(POSTMASTER);
    let to = if is_bare { format!("{POSTMASTER}@{}", config.hostname) } else { options.to.clone() };
    let is_trusted = options.login || network_of(&config, options.client).is_some();
    let origin = Some(&*config.rules.addresses.origin).filter(|origin| is_trusted && !origin.is_empty());
    // As in a session: without needless quotes, the domain in ASCII.
    let from = match options.from.as_str() {
        "" | "<>" => Ok(None),
        text => address_of(text, origin).map(Some),
    };
    let (from, to) = match (from, address_of(&to, origin)) {
        (Ok(from), Ok(to)) => (from, to),
        (Err(why), _) | (_, Err(why)) => return usage(&why),
    };
    let from = from.as_ref().map_or("", Address::as_str);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(explain(options, config, from, &to)),
        Err(error) => fail(&format!("cannot start: {error}")),
    }
}

/// Parses an address as MAIL and RCPT do: for a trusted client, an address without a domain gets `origin`.
fn address_of(text: &str, origin: Option<&str>) -> Result<Address, String> {
    let parsed = match (text.parse(), origin) {
        (Err(AddressError::NoDomain), Some(origin)) => format!("{text}@{origin}").parse(),
        (Err(AddressError::NoDomain), None) => {
            return Err(format!(
                "{text:?} has no domain; `[addresses] origin` is added for trusted clients only (use --login, or --client in \
                 client_networks)"
            ));
        }
        (parsed, _) => parsed,
    };
    parsed.map_err(|error| format!("{text:?} is not a valid mail address: {error}"))
}

/// The configuration's file, if a server is running with an earlier version of it.
fn served_file(config: Option<&Path>) -> Option<PathBuf> {
    let path = locate(config).ok()?;
    let places = stentor_config::places(&path)?;
    (server_at(&places.socket) == ServerState::Running).then_some(path)
}

/// The network that makes the client trusted.
fn network_of(config: &Config, client: IpAddr) -> Option<impl std::fmt::Display + '_> {
    config.client_networks.iter().find(|network| network.contains(&client.to_canonical()))
}

/// The steps for addresses given without a domain.
fn origin_steps(settings: &Settings, options: &Options, from: &str, to: &Address) -> Vec<Step> {
    let place = settings.config.place("addresses", "origin");
    let is_completed = |(given, full): &(&str, &str)| !given.contains('@') && full.contains('@');
    let pairs = [(options.from.as_str(), from), (options.to.as_str(), to.as_str())];
    let step = |(given, full): (&str, &str)| {
        let place = if given.eq_ignore_ascii_case(POSTMASTER) { "" } else { place.as_str() };
        Step::new(format!("name {given}"), place, format!("read as {full}"))
    };
    pairs.into_iter().filter(is_completed).map(step).collect()
}

async fn explain(options: &Options, config: Config, from: &str, to: &Address) -> ExitCode {
    let settings = Settings::new(config, None);
    let helo = options.helo.trim_end_matches('.').to_lowercase();
    let name = options.client_name.as_ref().map(|name| name.trim_end_matches('.').to_lowercase());
    let asker = match asker(&settings) {
        Ok(asker) => asker,
        Err(error) => return fail(&error.to_string()),
    };
    let stranger = Stranger { behaviour: behaviour(options), asker: asker.as_ref(), greylist: None };
    let name = match name.as_deref() {
        None => ClientName::Unknown,
        Some(NAMELESS) => ClientName::Nameless,
        Some(name) => ClientName::Is(name),
    };
    let speaker = Speaker {
        client: options.client,
        name,
        helo: &helo,
        may_relay: options.login,
        proof: ClientProof::None,
        session: None,
        stranger,
    };
    let mut explanation = decide(&settings, speaker, from, to).await;
    let completed = origin_steps(&settings, options, from, to);
    explanation.steps.splice(0..0, std::iter::once(client(&settings, options)).chain(completed));
    if let Some(recipient) = explanation.ask.take() {
        ask_ahead(&settings, &recipient, options.call_ahead, &mut explanation).await;
    }
    if let Some(file) = &options.message
        && let Err(why) = message::judge(&settings, options, &mut explanation, file).await
    {
        return fail(&format!("{}: {why}", file.display()));
    }
    let entries = suppressed::entries(&settings, explanation.to.as_str());
    let is_trusted = options.login || network_of(&settings.config, options.client).is_some();
    suppressed::judge(&settings, SuppressionFacts { is_trusted, entries }, &mut explanation);
    forwards::follow(&settings, &mut explanation, options.message.is_some()).await;
    if options.message.is_none() {
        posts(&settings, &mut explanation);
    }
    add_words(&settings, &mut explanation, options.message.is_some());
    let targets = targets(&settings, speaker, &mut explanation).await;
    explanation.kept = queue_reasons::lines(&settings, options, &explanation, &targets);
    let refusal = explanation.decision.refusal().map(Reply::is_temporary);
    let shown = if options.json { as_json } else { as_text };
    let printed = done(print(&shown(&settings.rules, &explanation, &targets)));
    match refusal {
        Some(is_temporary) if printed == ExitCode::SUCCESS => {
            ExitCode::from(if is_temporary { DEFERRED } else { REFUSED })
        }
        _ => printed,
    }
}

/// The step that says how the client is classified.
fn client(settings: &Settings, options: &Options) -> Step {
    let network = network_of(&settings.config, options.client);
    let (place, answer) = match network {
        _ if options.login => (String::new(), "trusted: it is logged in".to_owned()),
        Some(network) => {
            (settings.config.place("", "client_networks"), format!("trusted: in client network {network}"))
        }
        None => (String::new(), "untrusted: not in a client network and not logged in (--client, --login)".to_owned()),
    };
    Step::new(format!("client {}", options.client), place, answer)
}

/// The lists that get the mail as a post.
fn lists(decision: &Decision) -> &[Arc<str>] {
    let Outcome::Local(verdict) = &decision.outcome else { return &[] };
    match verdict {
        _ if decision.marks.redirect.is_some() => &[],
        AddressClass::List(list) => std::slice::from_ref(list),
        AddressClass::Alias(expansion) => &expansion.lists[..],
        AddressClass::Relay | AddressClass::Bounces(_) | AddressClass::Command { .. } | AddressClass::Refuse(_) => &[],
    }
}

/// Who gets the mail from a list: the file with its subscribers, and its archives.
fn list_readers(settings: &Settings, name: &str) -> Vec<String> {
    let place = |key| settings.config.place(&format!("lists.{name}"), key);
    let archives = settings.config.lists.iter().find(|list| **list.list.name() == *name).map(|list| &list.archives);
    let archives = archives.into_iter().flatten();
    let archives = archives.map(|archive| format!("archive of list {name}: {archive} ({})", place("archive_to")));
    let file = settings.subscribers(name).map(|file| {
        let state = match std::fs::metadata(file) {
            Ok(_) => "",
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => ", which does not exist",
            Err(_) => ", which this user cannot read",
        };
        format!("subscribers of list {name} in {}{state} ({})", file.display(), place("subscribers"))
    });
    let in_registry = || format!("members of list {name} in the registry (`stentor member list {name}`)");
    std::iter::once(file.unwrap_or_else(in_registry)).chain(archives).collect()
}

/// Applies what the content decides about posts.
fn posts(settings: &Settings, explanation: &mut Explanation) {
    let lists = lists(&explanation.decision);
    let demands =
        |name: &&Arc<str>| settings.list(name).is_some_and(|list| list.settings().post != PostingPolicy::Anyone);
    let words = lists.iter().filter(demands).map(|name| {
        format!("if the sender or author may post to list {name}; this depends on the content, see --message")
    });
    explanation.also.extend(words);
}

/// The stated facts about the client; everything else is unknown.
fn behaviour(options: &Options) -> ClientBehaviour {
    let is = |stated: Option<YesNo>| stated.map(|stated| stated == YesNo::Yes);
    let mut seen = ClientBehaviour {
        is_early: is(options.early_talker),
        is_greylisted: is(options.greylisted),
        ..ClientBehaviour::UNKNOWN
    };
    options.rate.iter().for_each(|rate| seen.counts.state(rate));
    seen
}

/// Adds what else is done with the message, in words, and which facts are missing. `has_content`: the message is known.
fn add_words(settings: &Settings, explanation: &mut Explanation, has_content: bool) {
    let decision = &explanation.decision;
    let mut all = Vec::new();
    if decision.refusal().is_some() {
        all.extend(logged(&settings.rules, decision));
    } else {
        // Nobody gets a discarded message, so nothing in it is changed.
        if matches!(decision.outcome, Outcome::Discard(_)) {
            all.extend(logged(&settings.rules, decision));
        } else {
            all.extend(explanation.srs.take());
            all.extend(also(&settings.rules, decision, has_content));
            all.extend(explanation.changes.take());
            all.extend(explanation.class.take());
            all.append(&mut explanation.also);
            let redirected = explanation.forwards.iter().filter(|forward| !forward.is_copy);
            let named = lists(decision).iter().chain(redirected.flat_map(|forward| &forward.found.lists));
            all.extend(named.flat_map(|list| list_readers(settings, list)));
        }
        let asked = settings.milters.iter().map(|milter| &milter.settings).filter(|milter| milter.scope.smtp);
        let asked: Vec<String> = asked.map(|milter| format!("{} ({})", milter.name, milter.place)).collect();
        if !asked.is_empty() {
            all.push(format!("if its milters accept it; they were not asked: {}", asked.join(", ")));
        }
    }
    let rules = &settings.rules;
    let mut open: Vec<String> =
        explanation.steps.iter().filter_map(|step| step.unknown).map(|what| unknown(rules, what)).collect();
    open.dedup();
    if !open.is_empty() {
        all.push(format!("this result may change with unknown facts: {}", open.join(", ")));
    }
    explanation.also = all;
}

/// The DNS client, as the server's, if rules query the DNS.
fn asker(settings: &Settings) -> Result<Option<Arc<Asker>>, ResolverError> {
    if !settings.rules.asks_dns() {
        return Ok(None);
    }
    let limit = Duration::from_millis(settings.config.listen.dns_timeout_ms);
    Ok(Some(Arc::new(Resolver::new(settings.resolver(&[]))?.asker(limit))))
}

/// A decision with its steps, and what else is done with the message, in words.
struct Explanation {
    decision: Decision,
    steps: Vec<Step>,
    also: Vec<String>,
    /// The sender shown to an alias's targets, and the class, in words.
    srs: Option<String>,
    class: Option<String>,
    /// Why the configuration keeps the message in the queue, in words.
    kept: Vec<String>,
    /// Result of a conversion of transfer encodings, in words.
    changes: Option<String>,
    /// The next hop named by a rule on the content.
    by_content: Option<(NextHop, DecisionReason)>,
    /// Sender and recipient as the rules saw them.
    from: String,
    to: Address,
    /// The recipient to verify with its next hop.
    ask: Option<RoutedRcpt>,
    /// Recipients that rules add or substitute.
    forwards: Vec<Forward>,
}

impl Explanation {
    fn of(decision: Decision, steps: Vec<Step>, from: String, to: Address) -> Explanation {
        Explanation {
            decision,
            steps,
            also: Vec::new(),
            srs: None,
            class: None,
            kept: Vec::new(),
            changes: None,
            by_content: None,
            from,
            to,
            ask: None,
            forwards: Vec::new(),
        }
    }

    /// Records that the last step refuses the message.
    fn refuse(&mut self, reply: Reply) {
        let why = self.steps.last().map(|step| {
            if step.place.is_empty() { step.asked.clone() } else { format!("{} ({})", step.asked, step.place) }
        });
        let marks = std::mem::take(&mut self.decision.marks);
        let why = DecisionReason::Address(why.unwrap_or_default().into());
        self.decision = Decision { outcome: Outcome::Refuse(reply), why, route: None, marks };
        self.forwards.clear();
    }

    /// Further effects on the message, in words that can be compared between two configurations.
    fn words(&self, rules: &Rulebook) -> Vec<String> {
        if self.decision.refusal().is_some() || matches!(self.decision.outcome, Outcome::Discard(_)) {
            return logged(rules, &self.decision);
        }
        self.srs
            .clone()
            .into_iter()
            .chain(also_without_places(rules, &self.decision))
            .chain(self.class.clone())
            .collect()
    }
}

/// Verifies the recipient with the next hop, or says that a server would.
async fn ask_ahead(settings: &Settings, recipient: &RoutedRcpt, is_wanted: bool, explanation: &mut Explanation) {
    if !is_wanted {
        explanation.also.push(
            "if the next hop accepts the recipient; a server asks it at RCPT ([call_ahead]), see --call-ahead"
                .to_owned(),
        );
        return;
    }
    let answer = call_ahead::once(settings, &Clock::start(), recipient).await;
    let said = match &answer {
        CallAheadResult::Exists => "the next hop accepts the recipient".to_owned(),
        CallAheadResult::Refused(_, log) => format!("refused: {log}"),
        CallAheadResult::Undecided(words) => format!("undecided: {}", words.log),
    };
    explanation.steps.push(Step::new("call-ahead", "", said));
    if let Some((reply, _)) = call_ahead::refusal(answer, settings.config.call_ahead.on_failure) {
        explanation.decision.outcome = Outcome::Refuse(reply);
        explanation.decision.why = DecisionReason::Address("call-ahead".into());
    }
}

/// Decides about a recipient under a configuration.
async fn decide(settings: &Settings, speaker: Speaker<'_>, from: &str, to: &Address) -> Explanation {
    let mut rewritten = Vec::new();
    let (from, to) = match canonical_pair(settings, from, to, &mut rewritten).await {
        Ok(pair) => pair,
        Err(reply) => {
            let (outcome, why) = (Outcome::Refuse(reply), DecisionReason::Address("a canonical table".into()));
            let decision = Decision { outcome, why, route: None, marks: Marks::default() };
            return Explanation::of(decision, rewritten, from.to_owned(), to.clone());
        }
    };
    let (sender, recipient) = (settings.rules.key_of(&from), settings.rules.key_of(to.as_str()));
    let decider = Decider { settings, speaker, sender: &sender, now: Clock::start().now() };
    let facts = decider.facts(&recipient, &to);
    let tables = settings.tables.questions_about(speaker.stranger.asker, None);
    let mut steps = Vec::new();
    let decided = tables.settle(|tables| {
        steps.clone_from(&rewritten);
        settings.rules.decide(&facts, tables, Some(&mut steps))
    });
    let decision = decided.await;
    let srs = by_srs(&settings.rules, &decision, &facts);
    let ask = match &decision.outcome {
        Outcome::Relay(hop) if calls_ahead(settings, &facts, &decision) => {
            let own = own_hop(settings, to.domain(), hop, decision.route.as_ref());
            let route = Route { hop: own, ..Route::default() };
            Some(RoutedRcpt { address: to.clone(), hop: hop.clone(), route })
        }
        _ => None,
    };
    drop(facts);
    let decision = Box::pin(with_targets(decider, decision)).await;
    let class = class_of(&decision);
    Explanation { srs, class, ask, ..Explanation::of(decision, steps, from, to) }
}

/// The decision, which is a refusal if all that an alias stands for is refused.
async fn with_targets(decider: Decider<'_>, decision: Decision) -> Decision {
    let Decision { outcome: Outcome::Local(AddressClass::Alias(expansion)), marks, .. } = &decision else {
        return decision;
    };
    if !marks.open.is_empty() || marks.quarantine.is_some() || marks.redirect.is_some() {
        return decision;
    }
    let tables = decider.settings.tables.questions_about(decider.speaker.stranger.asker, None);
    let refused = decider.refused_targets(&tables, expansion, marks.route.as_ref()).await;
    match refused {
        Some((reply, why)) => Decision { outcome: Outcome::Refuse(reply), why, ..decision },
        None => decision,
    }
}

/// Sender and recipient after canonical rewriting, as rules see them.
async fn canonical_pair(
    settings: &Settings,
    from: &str,
    to: &Address,
    steps: &mut Vec<Step>,
) -> Result<(String, Address), Reply> {
    if settings.rules.addresses.rewriting.is_empty() {
        return Ok((from.to_owned(), to.clone()));
    }
    let sender = match from.parse::<Address>() {
        Ok(sender) => canonical(settings, &sender, AddressRole::Sender, None, Some(steps)).await?,
        Err(_) => None,
    };
    let recipient = canonical(settings, to, AddressRole::Recipient, None, Some(steps)).await?;
    let from = sender.map_or_else(|| from.to_owned(), |sender| sender.as_str().to_owned());
    Ok((from, recipient.unwrap_or_else(|| to.clone())))
}

fn as_text(
    rules: &Rulebook,
    Explanation { decision, steps, also, kept, .. }: &Explanation,
    targets: &Targets,
) -> String {
    let mut out = String::new();
    for step in steps {
        line(&mut out, format_args!("{step}"));
    }
    line(&mut out, format_args!("=> {}", headline(rules, decision)));
    line(&mut out, format_args!("   {}", because_of(rules, &decision.why)));
    for also in also {
        line(&mut out, format_args!("   {also}"));
    }
    for text in targets.shown.iter().flat_map(Target::lines) {
        line(&mut out, format_args!("   {text}"));
    }
    if targets.left > 0 {
        line(&mut out, format_args!("   ... and {} more", targets.left));
    }
    for text in kept {
        line(&mut out, format_args!("   {text}"));
    }
    out
}

fn as_json(
    rules: &Rulebook,
    Explanation { decision, steps, also, kept, .. }: &Explanation,
    targets: &Targets,
) -> String {
    let steps: Vec<_> =
        steps.iter().map(|step| json!({"asked": step.asked, "place": step.place, "answer": step.answer})).collect();
    let route = decision.route.as_ref().map(|why| rules.shown(why));
    let all = json!({
        "decision": headline(rules, decision),
        "because": rules.shown(&decision.why),
        "route_because": route,
        "also": also,
        "kept": kept,
        "targets": targets.shown.iter().map(Target::json).collect::<Vec<_>>(),
        "steps": steps,
    });
    format!("{all}\n")
}
