//! Applies rules and routes to a transaction's recipients, and collects what they require for its message.
//!
//! Promise: without rules, relay domains, or routes by sender or address, nothing is evaluated here and the policy
//! alone decides. Each recipient is decided once, when it is named, and never again for the same message.
//!
//! Failure: a table that cannot be asked is a 451 for that recipient.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use stentor_core::Settings;
use stentor_core::next_hops::own_hop;
use stentor_core::people::today;
use stentor_mail::address::Address;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_policy::{self as policy, AddressClass, Expansion, RelayReasons};
use stentor_queue::event::RcptParams;
use stentor_queue::ids::Ms;
use stentor_reputation::{ClientBehaviour, ClientName, Greylist};
use stentor_resolve::Asker;
use stentor_rules::{
    AUTHENTICATED, ActionRemark, CERTIFIED, Decision, DecisionReason, Facts, Key, NextHop, OpenRule, Outcome,
    RemarkRecipients, Rulebook, SessionFacts, SessionQuestion, Step, Wishes, decided_by,
};
use stentor_ruletables::Questions;
use stentor_smtp::server::{Notify, RcptTo};

/// Targets of an alias routed before other tasks get a turn.
const ROUTED_AT_ONCE: usize = 1_000;
/// Targets of an alias routed before the alias is accepted.
const REFUSED_TARGETS_MAX: usize = 100;
/// Describes the default next hop.
const TO_MX: &str = "to mx";
pub(super) const SLOW_TABLES: Reply = Reply::fixed(451, Enhanced::new(4, 3, 0), "Table lookup timed out");

/// Facts about a client that may be untrusted, with the services for finding out more if rules require it.
#[derive(Clone, Copy)]
pub struct Stranger<'a> {
    pub behaviour: ClientBehaviour,
    /// Asks the DNS about the client.
    pub asker: Option<&'a Arc<Asker>>,
    pub greylist: Option<&'a Mutex<Greylist>>,
}

impl Stranger<'static> {
    /// No facts: for trusted clients, and for mail without a client.
    pub const UNKNOWN: Stranger<'static> =
        Stranger { behaviour: ClientBehaviour::NOTHING, asker: None, greylist: None };
}

/// The client that sends the commands.
#[derive(Clone, Copy)]
pub struct Speaker<'a> {
    pub client: IpAddr,
    pub name: ClientName<&'a str>,
    pub helo: &'a str,
    /// The client is in the client networks, or logged in.
    pub may_relay: bool,
    pub proof: ClientProof<'a>,
    /// Facts about the session for policy services; `None`: they are not asked.
    pub session: Option<&'a SessionFacts<'a>>,
    pub stranger: Stranger<'a>,
}

/// How a client has proven its identity, for the log's reason why its mail is relayed or refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientProof<'a> {
    /// Neither login nor certificate: its address decides, or the caller has decided.
    None,
    Login(&'a str),
    /// The name in its certificate.
    Certificate(&'a str),
    /// Its certificate is not accepted, for this reason.
    Ignored(&'a str),
}

impl ClientProof<'_> {
    /// Returns the log's reason for a client that may relay by more than its address.
    fn words(self) -> String {
        match self {
            ClientProof::Login(user) => format!("{AUTHENTICATED} {user}"),
            ClientProof::Certificate(name) => format!("{CERTIFIED} {name}"),
            ClientProof::None | ClientProof::Ignored(_) => AUTHENTICATED.to_owned(),
        }
    }

    /// Appends why the client's certificate is ignored, if it has one.
    fn lacking(self, words: String) -> String {
        if let ClientProof::Ignored(why) = self { format!("{words}; {why}") } else { words }
    }
}

/// An accepted recipient, kept until the message has arrived.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct AcceptedRcpt {
    pub params: RcptParams,
    /// See [`stentor_core::route::Route::hop`].
    pub hop: Option<Arc<NextHop>>,
    /// Its next hop is decided, even if that is its domain's.
    pub is_routed: bool,
    /// Description of the rule that quarantines the message for it.
    pub quarantine: Option<Arc<str>>,
    /// The alias named by a rule that resolved to this recipient.
    pub via: Option<Arc<Address>>,
    /// Owner of that alias, and reader of its bounces.
    pub owner: Option<Address>,
    /// For an alias: the next hop that a rule names for its targets.
    pub route: Option<Arc<(NextHop, DecisionReason)>>,
}

impl policy::RecipientPath for AcceptedRcpt {
    fn unite(&mut self, more: &AcceptedRcpt) -> bool {
        let mut params = std::mem::take(&mut self.params);
        params.unite(more.params.clone());
        let is_replaced = self.quarantine.is_some() && more.quarantine.is_none();
        if is_replaced {
            *self = more.clone();
        }
        self.params = params;
        is_replaced
    }
}

/// The decision on one recipient.
pub(super) struct Judged {
    pub class: AddressClass,
    pub hop: Option<Arc<NextHop>>,
    /// See [`AcceptedRcpt::quarantine`].
    pub quarantine: Option<Arc<str>>,
    /// Other next hops that get a copy.
    pub copies: Vec<Arc<NextHop>>,
    /// The next hop that a rule names for the targets of the recipient.
    pub route: Option<(NextHop, DecisionReason)>,
    /// Its next hop, if that must be asked whether it accepts the recipient.
    pub ask: Option<NextHop>,
    /// Its rules that wait for the content.
    pub open: Vec<OpenRule>,
    /// Attributes for policy services at the end of the data.
    pub question: Option<SessionQuestion>,
    pub why: RelayReason,
}

impl Judged {
    /// The recipient as it is kept, with the parameters that the client gave.
    pub fn accepted(&self, rcpt: &RcptTo) -> AcceptedRcpt {
        AcceptedRcpt {
            params: RcptParams { notify: rcpt.notify.map(Notify::bits), orcpt: rcpt.orcpt.clone() },
            hop: self.hop.clone(),
            is_routed: matches!(self.class, AddressClass::Relay),
            quarantine: self.quarantine.clone(),
            route: self.route.clone().map(Arc::new),
            ..AcceptedRcpt::default()
        }
    }

    fn of(class: AddressClass, why: RelayReason) -> Judged {
        let (copies, open) = (Vec::new(), Vec::new());
        Judged { class, hop: None, quarantine: None, copies, route: None, ask: None, open, question: None, why }
    }
}

/// Why a recipient is relayed. Put in words only once for a message, not for each recipient.
pub(super) enum RelayReason {
    Policy(policy::PolicyReason),
    /// It is not relayed: nothing permits it for the client.
    Outside,
    Rules(String),
}

impl RelayReason {
    pub fn words(self, proof: ClientProof<'_>) -> String {
        match (self, proof) {
            // On users' listeners, networks have no effect.
            (
                RelayReason::Policy(policy::PolicyReason::ClientNetwork(network)),
                ClientProof::None | ClientProof::Ignored(_),
            ) => {
                format!("client network {network}")
            }
            (RelayReason::Policy(policy::PolicyReason::ClientNetwork(_) | policy::PolicyReason::ClientOutside), _) => {
                proof.words()
            }
            (RelayReason::Outside, _) => proof.lacking("no client network, login or certificate".to_owned()),
            (RelayReason::Policy(_), _) => String::new(),
            (RelayReason::Rules(words), _) => words,
        }
    }
}

/// What the decisions about a transaction's recipients have in common.
#[derive(Clone, Copy)]
pub struct Decider<'a> {
    pub settings: &'a Settings,
    pub speaker: Speaker<'a>,
    /// The envelope's sender as [`Rulebook::key_of`] returns it.
    pub sender: &'a Key,
    pub now: Ms,
}

impl<'a> Decider<'a> {
    /// Decides about a recipient that a client names.
    pub(super) async fn judge(self, address: &Address, wishes: &mut Wishes) -> Judged {
        let Decider { settings, speaker, .. } = self;
        if settings.rules.is_plain() {
            let policy::AddressDecision { class, why } = settings.policy.decide(speaker.client, address);
            let is_ours = why == policy::PolicyReason::ClientOutside && speaker.may_relay;
            if why == policy::PolicyReason::ClientOutside && !is_ours {
                return Judged::of(class, RelayReason::Outside);
            }
            let class = if is_ours { AddressClass::Relay } else { class };
            return Judged::of(class, RelayReason::Policy(why));
        }
        // Sessions without rules do not pay for the size of its future.
        Box::pin(self.judge_by_rules(address, wishes)).await
    }

    async fn judge_by_rules(self, address: &Address, wishes: &mut Wishes) -> Judged {
        let Decider { settings, speaker, sender, now } = self;
        let rules = &settings.rules;
        let helo = speaker.helo.trim_end_matches('.').to_ascii_lowercase();
        let speaker = Speaker { helo: &helo, ..speaker };
        let (sender, recipient) = (rules.mark_local(sender.clone()), rules.key_of(address.as_str()));
        let decider = Decider { speaker, sender: &sender, ..self };
        let facts = decider.facts(&recipient, address);
        let greylist = speaker.stranger.greylist.map(|greylist| (greylist, settings.config.greylist, now));
        let tables = settings.tables.questions_about(speaker.stranger.asker, greylist);
        let tables = tables.of_stranger((!facts.is_trusted).then_some(facts.client));
        let decision = tables.settle(|tables| rules.decide(&facts, tables, None)).await;
        decider.apply(&facts, decision, wishes)
    }

    /// What rules may ask about a recipient. `recipient`: its address as [`Rulebook::key_of`] returns it.
    pub fn facts(self, recipient: &'a Key, address: &'a Address) -> Facts<'a> {
        let Decider { settings, speaker, sender, now } = self;
        let list = match settings.policy.rcpt(speaker.client, address) {
            AddressClass::List(name) => settings.list(&name).map(|list| list.name().clone()),
            _ => None,
        };
        Facts {
            client: speaker.client.to_canonical(),
            client_name: speaker.name,
            helo: speaker.helo,
            sender,
            recipient,
            address,
            list,
            class: settings.config.classes.injectors.of(speaker.client),
            today: today(now),
            session: speaker.session.copied(),
            is_trusted: speaker.may_relay || settings.policy.is_trusted(speaker.client),
            is_own: false,
            behaviour: speaker.stranger.behaviour,
        }
    }

    /// Applies the rules' decision to the recipient, and adds to the message's wishes.
    fn apply(self, facts: &Facts<'_>, decision: Decision, wishes: &mut Wishes) -> Judged {
        let (settings, proof) = (self.settings, self.speaker.proof);
        let calls_ahead = calls_ahead(settings, facts, &decision);
        let Decision { outcome, why, route, mut marks } = decision;
        for text in marks.warnings(&settings.rules) {
            let (from, to) = (facts.sender.as_str(), facts.recipient.as_str());
            tracing::warn!(client = %facts.client, from, to, "a rule warns: {text}");
        }
        for to in std::mem::take(&mut marks.left_out) {
            let of = facts.recipient.as_str();
            tracing::warn!(recipient = of, "unknown alias target {to} skipped");
        }
        let mut words = match (&outcome, &why) {
            // That it is an alias is said anyway.
            (Outcome::Local(AddressClass::Alias(_)), DecisionReason::Base(_)) => String::new(),
            (Outcome::Local(AddressClass::Alias(_)), DecisionReason::Address(by)) if by.starts_with("alias ") => {
                String::new()
            }
            (_, DecisionReason::Authenticated) => proof.words(),
            (_, DecisionReason::Base(policy::PolicyReason::ClientOutside)) => proof.lacking(settings.rules.shown(&why)),
            _ => settings.rules.shown(&why),
        };
        if let (Outcome::Relay(hop), Some(by)) = (&outcome, route.as_ref().filter(|by| **by != DecisionReason::Mx)) {
            let _ = write!(words, "; {}", routed_to(&settings.rules, hop, by));
        }
        let copies = marks.copies.iter().map(|(hop, _)| Arc::new(hop.clone())).collect();
        let quarantine = marks.quarantine.as_ref();
        let quarantine: Option<Arc<str>> = quarantine.map(|(text, by)| decided_by(&settings.rules, text, by).into());
        let add = |wishes: &mut Wishes, marks| {
            wishes.add(&settings.rules, marks, &RemarkRecipients::one(facts.recipient.as_str()));
        };
        let (route_of_others, open) = (marks.route.take(), std::mem::take(&mut marks.open));
        let question = (settings.rules.asks_service_at_end_of_data() && !open.is_empty())
            .then(|| SessionQuestion::new(facts))
            .flatten();
        match outcome {
            Outcome::Refuse(reply) => Judged::of(AddressClass::Refuse(reply), RelayReason::Rules(words)),
            Outcome::Discard(text) => {
                let by = if text.is_empty() { words.clone() } else { format!("{words}: {text}") };
                wishes.discard(ActionRemark::Discarded { by }, &RemarkRecipients::one(facts.recipient.as_str()));
                add(wishes, marks);
                // It stands for a recipient, so that the message is taken; nobody gets it.
                Judged { open, question, ..Judged::of(AddressClass::Relay, RelayReason::Rules(words)) }
            }
            Outcome::Local(class) => {
                add(wishes, marks);
                let route = route_of_others;
                Judged { quarantine, copies, route, open, question, ..Judged::of(class, RelayReason::Rules(words)) }
            }
            Outcome::Relay(hop) => {
                let hop_kept = own_hop(settings, facts.recipient.domain(), &hop, route.as_ref());
                add(wishes, marks);
                let ask = calls_ahead.then_some(hop);
                let why = RelayReason::Rules(words);
                Judged {
                    hop: hop_kept,
                    quarantine,
                    copies,
                    ask,
                    open,
                    question,
                    ..Judged::of(AddressClass::Relay, why)
                }
            }
        }
    }

    /// Returns the next hop of an address that no client named, and what named it. `tables` keep their answers from one
    /// address to the next; `of_alias` is what a rule has named for the alias that stands for the address. `steps`
    /// receives the trace.
    ///
    /// # Errors
    /// A table cannot be asked: the message is deferred.
    pub async fn route_of(
        self,
        tables: &Questions<'_>,
        to: &Address,
        of_alias: Option<&(NextHop, DecisionReason)>,
        mut steps: Option<&mut Vec<Step>>,
    ) -> Result<(NextHop, DecisionReason), Reply> {
        let rules = &self.settings.rules;
        let recipient = rules.key_of(to.as_str());
        let facts = self.facts(&recipient, to);
        let route = |tables: &Questions<'_>| {
            // It may be called again, with more answers.
            if let Some(steps) = &mut steps {
                steps.clear();
            }
            rules.route(&facts, tables, of_alias, steps.as_deref_mut())
        };
        tables.settle(route).await
    }

    /// Returns the refusal of a recipient that stands only for addresses whose next hop is `error:`: the first one's,
    /// and what named it. It is sent at RCPT, since a later report would go to a sender who may be forged. If a table
    /// cannot answer now, the message decides.
    pub async fn refused_targets(
        self,
        tables: &Questions<'_>,
        expansion: &Expansion,
        of_alias: Option<&(NextHop, DecisionReason)>,
    ) -> Option<(Reply, DecisionReason)> {
        let Expansion { addresses, lists, owned, programs, has_null } = expansion;
        let is_taken = !lists.is_empty() || !owned.is_empty() || !programs.is_empty() || *has_null;
        if is_taken || addresses.len() > REFUSED_TARGETS_MAX || !self.settings.rules.refuses_hops() {
            return None;
        }
        let mut first = None;
        for to in addresses {
            match self.route_of(tables, to, of_alias, None).await {
                Ok((NextHop::Refuse(reply), why)) => first = first.or(Some((reply, why))),
                Ok(_) | Err(_) => return None,
            }
        }
        first
    }

    /// Finds the next hops of recipients that no client named: targets of aliases, copies, the new recipients of a
    /// redirected message. Returns what named them, in words; empty where nothing did.
    pub(super) async fn route_others(self, all: &mut [(Address, AcceptedRcpt)]) -> Result<String, Reply> {
        let Decider { settings, speaker, .. } = self;
        let rules = &settings.rules;
        let sender = rules.mark_local(self.sender.clone());
        let decider = Decider { sender: &sender, ..self };
        let is_trusted = speaker.may_relay || settings.policy.is_trusted(speaker.client);
        let tables = settings.tables.questions_about(speaker.stranger.asker, None);
        let tables = tables.of_stranger((!is_trusted).then_some(speaker.client));
        let mut ways = RelayReasons::default();
        for (n, (address, asked)) in all.iter_mut().enumerate() {
            if asked.hop.is_some() || asked.is_routed {
                continue;
            }
            if n % ROUTED_AT_ONCE == ROUTED_AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
            let of_alias = asked.route.as_deref();
            let (hop, why) = if rules.has_own_hops() {
                decider.route_of(&tables, address, of_alias, None).await?
            } else {
                rules.hop_of_domain(address.domain())
            };
            ways.add(address, routed_to(rules, &hop, &why));
            asked.hop = own_hop(settings, address.domain(), &hop, Some(&why));
        }
        let is_by_nothing = ways.is_empty() || ways.are_all(TO_MX);
        Ok(if is_by_nothing { String::new() } else { format!("; {ways}") })
    }
}

/// Whether a recipient's next hop is asked for it: one of a relay domain, of a client that may not send anywhere else.
/// Rules that say `ok` or `relay` know better, and a redirected recipient gets no mail.
pub fn calls_ahead(settings: &Settings, facts: &Facts<'_>, decision: &Decision) -> bool {
    let is_of_relay_domain = decision.why == DecisionReason::RelayDomain && !facts.is_trusted;
    let is_known = decision.marks.accepted || decision.marks.redirect.is_some();
    is_of_relay_domain && !is_known && settings.config.call_ahead.asks(facts.recipient)
}

/// Where a recipient's copy goes, and what says so.
fn routed_to(rules: &Rulebook, hop: &NextHop, by: &DecisionReason) -> String {
    if *by == DecisionReason::Mx { TO_MX.to_owned() } else { format!("to {hop} by {}", rules.shown(by)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_shown_more_than_an_address_is_named() {
        let of_network = || RelayReason::Policy(policy::PolicyReason::ClientNetwork("127.0.0.1/32".parse().unwrap()));
        let outside = || RelayReason::Policy(policy::PolicyReason::ClientOutside);
        for (because, proof, words) in [
            (of_network(), ClientProof::None, "client network 127.0.0.1/32"),
            (of_network(), ClientProof::Ignored("x"), "client network 127.0.0.1/32"),
            (of_network(), ClientProof::Login("ann"), "authenticated client ann"),
            (outside(), ClientProof::Login("ann"), "authenticated client ann"),
            (of_network(), ClientProof::Certificate("a.test"), "client certificate a.test"),
            (outside(), ClientProof::None, "authenticated client"),
            (RelayReason::Outside, ClientProof::None, "no client network, login or certificate"),
            (RelayReason::Outside, ClientProof::Ignored("why"), "no client network, login or certificate; why"),
            (RelayReason::Rules("rule 1".to_owned()), ClientProof::Login("ann"), "rule 1"),
        ] {
            assert_eq!(because.words(proof), words);
        }
    }

    #[test]
    fn ways_to_one_recipient_ask_for_what_each_asks_for() {
        use stentor_policy::RecipientPath as _;
        let way = |by: Option<&str>, notify, orcpt: Option<&str>, hop: &str| AcceptedRcpt {
            params: RcptParams { notify, orcpt: orcpt.map(str::to_owned) },
            hop: Some(NextHop::Named(hop.into()).into()),
            quarantine: by.map(Into::into),
            ..AcceptedRcpt::default()
        };
        let (kept, free) = (way(Some("rule 1"), Some(1), Some("o"), "a"), way(None, Some(4), None, "b"));
        let (by_rule_2, united) = (way(Some("rule 2"), None, Some("p"), "c"), way(None, Some(4), Some("o"), "b"));
        let mut first = kept.clone();
        assert!(first.unite(&free) && first == united, "{first:?}");
        assert!(!first.unite(&kept) && first == united, "{first:?}");
        let mut both = kept.clone();
        assert!(!both.unite(&by_rule_2) && both == way(Some("rule 1"), None, Some("o"), "a"), "{both:?}");
    }

    const SPEAKER: Speaker<'_> = Speaker {
        client: IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
        name: ClientName::Is("client.test"),
        helo: "client.test",
        may_relay: true,
        proof: ClientProof::None,
        session: None,
        stranger: Stranger::UNKNOWN,
    };

    /// Entries for tables of routes, by owner.
    const ENTRIES: [(&str, [&str; 3]); 2] = [
        ("transport", ["smtp:[10.0.0.1]", "smtp:[10.0.0.2]", ":"]),
        ("own", ["route 10.0.0.3:25", "route mx", "dunno"]),
    ];
    const KEYS: [&str; 5] = ["vip@d.test", "d.test", "sub.d.test", ".d.test", "*"];
    const ORDERS: [&str; 3] =
        [r#""recipient", "default""#, r#""default", "recipient""#, r#""sender", "default", "recipient""#];

    /// Builds a configuration with tables of some of these entries, some routes, and an order.
    fn world(rng: &mut fastrand::Rng) -> String {
        let mut names = Vec::new();
        let mut text = String::new();
        for name in ["a", "b"].into_iter().take(rng.usize(0..3)) {
            let (dialect, values) = ENTRIES[rng.usize(..2)];
            let mut entries = Vec::new();
            for key in KEYS {
                if rng.bool() {
                    entries.push(format!("{key:?} = {:?}", values[rng.usize(..3)]));
                }
            }
            let _ = write!(text, "[tables.{name}]\nas = {dialect:?}\ninline = {{ {} }}\n", entries.join(", "));
            names.push(format!("{name:?}"));
        }
        let _ = write!(text, "[routing]\norder = [{}]\n", ORDERS[rng.usize(..3)]);
        let _ = write!(text, "tables = [{}]\n[routes]\n", names.join(", "));
        for (key, hop) in [("d.test", "10.1.0.1:25"), ("vip@d.test", "10.1.0.2:25"), ("*", "10.1.0.3:25")] {
            if rng.bool() {
                let _ = writeln!(text, "{key:?} = {hop:?}");
            }
        }
        text
    }

    #[tokio::test]
    async fn where_mail_goes_is_what_was_decided() {
        let mut rng = fastrand::Rng::with_seed(14);
        let mut kept = 0;
        for _ in 0..2_000 {
            let text = world(&mut rng);
            let config = stentor_config::check_text(std::path::Path::new("stentor.toml"), &text);
            let settings = Settings::new(config.unwrap_or_else(|found| panic!("{text}\n{found:?}")), None);
            let (tables, sender) = (settings.tables.questions(), settings.rules.key_of("ann@x.test"));
            for to in ["vip@d.test", "joe@d.test", "joe@sub.d.test", "joe@e.test"] {
                let to: Address = to.parse().unwrap();
                let decider = Decider { settings: &settings, speaker: SPEAKER, sender: &sender, now: 0 };
                let (hop, why) = decider.route_of(&tables, &to, None, None).await.unwrap();
                if !settings.rules.has_own_hops() {
                    assert_eq!(settings.rules.hop_of_domain(to.domain()).0, hop, "{to}\n{text}");
                }
                let own = own_hop(&settings, to.domain(), &hop, Some(&why));
                kept += u32::from(own.is_some());
                let goes_to = own.map_or_else(
                    || settings.rules.domain_hop(to.domain(), &tables).ok().unwrap().unwrap().to_string(),
                    |hop| hop.to_string(),
                );
                assert_eq!(hop.to_string(), goes_to, "{to} by {why:?}\n{text}");
            }
        }
        assert!((500..7_500).contains(&kept), "both ways: {kept}");
    }
}
