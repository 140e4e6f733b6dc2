//! The checked configuration in the forms that its users need; replaced as a whole by a reload.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use hashbrown::{HashMap, HashSet};
use stentor_bounces::BounceRules;
use stentor_config::{
    Config, Diagnostic, EightBit, FlowConfig, InForce, InetProtocols, ListConfig, QueueOnlyConfig, ReportConfig,
    SourceSettings,
};
use stentor_journal::Options;
use stentor_lists::List;
use stentor_mail::Class;
use stentor_milter::Milters;
use stentor_policy::Policy;
use stentor_queue::ids::Ms;
use stentor_queue::message::Message;
use stentor_queue::site::{SiteLimits, SitePlan, Target};
use stentor_resolve::ResolverConfig;
use stentor_rules::Rulebook;
use stentor_ruletables::RuleTables;
use stentor_sched::{Backoff, FlowKey, FlowRules, SchedConfig, Scheduler, SourceConfig, SourceNo, SourceSet};
use stentor_smtp::client::ClientConfig;
use stentor_smtp::server::ServerConfig;
use stentor_tls::{ClientSettings, Connector, Roots, SystemRoots};
use stentor_tls_policy::{HostPattern, PeerName, Posture, PostureQuery, Requirement, Strength, Wish};

use crate::archives::ListArchives;
use crate::clock::Clock;
use crate::copies::{CopyKeyError, CopyRules};
use crate::dkim::DkimDomains;
use crate::memory::PIECE_BYTES;

/// Silent connections kept in addition to the budget, as a share of it.
const SLOW_CONNECTIONS_PART: usize = 2;

/// The history stops writing well before new mail is refused: when free space is below this multiple of the journal's
/// reserve.
const HISTORY_RESERVES: u64 = 2;
/// The latest history that a power cut may lose.
const HISTORY_SYNC_MS: u64 = 5_000;

pub struct ListEntry {
    pub list: Arc<List>,
    /// `None`: its members are in the registry.
    pub subscribers: Option<std::path::PathBuf>,
    pub report: ReportConfig,
    archives: ListArchives,
    /// How long posts are kept; 0: only while they are queued.
    pub keep_posts_ms: u64,
}

pub struct Settings {
    pub config: Config,
    pub policy: Arc<Policy>,
    pub rules: Arc<Rulebook>,
    pub tables: RuleTables,
    pub milters: Milters,
    pub smtp: Arc<ServerConfig>,
    /// SMTP and LMTP settings of each source (at least one).
    clients: Vec<[Arc<ClientConfig>; 2]>,
    /// TLS clients for hosts, created at first use: the second serves while the system has no CAs.
    client_with_cas: OnceLock<Arc<Connector>>,
    client_without_cas: OnceLock<Arc<Connector>>,
    /// The CAs of `tls_ca_file`, which replace the system's.
    roots: OnceLock<Roots>,
    system_roots: SystemRoots,
    /// Empty until the keys are read.
    dkim: DkimDomains,
    /// Without a key until it is read.
    pub copies: CopyRules,
    /// Domains of senders whose mail bypasses suppressions for a list or a sender.
    transactional: HashSet<Box<str>, foldhash::fast::FixedState>,
    /// The rules of `[bounces] rules_file`; without one the built-in rules are used.
    bounce_rules: Option<BounceRules>,
    pub sched: SchedConfig,
    pub converts_eight_bit: bool,
    /// Whether any list takes commands.
    pub takes_list_commands: bool,
    lists: HashMap<Arc<str>, ListEntry, foldhash::fast::FixedState>,
    has_archives: bool,
    /// Whether some list is archived, so that posts need a Message-ID.
    pub completes_posts: bool,
}

impl Settings {
    /// Opens the rules' tables, which blocks; unchanged tables of `before` stay open.
    pub fn new(config: Config, before: Option<&Settings>) -> Settings {
        let own = std::iter::once(config.hostname.as_str()).filter(|_| config.sending.sources.is_empty());
        let names = config.sending.sources.iter().map(|source| source.ehlo_name.as_str()).chain(own);
        let clients = names.map(|name| [false, true].map(|lmtp| Arc::new(client(&config, name, lmtp)))).collect();
        let lists = config.lists.iter().map(|entry| {
            let list = ListEntry {
                list: entry.list.clone(),
                subscribers: entry.subscribers.clone(),
                report: entry.report,
                archives: ListArchives::new(entry),
                keep_posts_ms: entry.keep_posts_ms,
            };
            (entry.list.name().clone(), list)
        });
        Settings {
            has_archives: config.lists.iter().any(|list| !list.archives.is_empty()),
            completes_posts: config.lists.iter().any(ListConfig::is_archived),
            policy: config.policy.clone(),
            rules: config.rules.clone(),
            tables: RuleTables::open(&config.tables, before.map(|before| &before.tables)),
            milters: Milters::new(&config.hostname, &config.milters, before.map(|before| &before.milters)),
            smtp: Arc::new(server(&config)),
            clients,
            client_with_cas: OnceLock::new(),
            client_without_cas: OnceLock::new(),
            roots: OnceLock::new(),
            system_roots: SystemRoots::default(),
            dkim: DkimDomains::default(),
            copies: CopyRules::new(&config),
            transactional: transactional(&config),
            bounce_rules: None,
            sched: sched(&config),
            converts_eight_bit: config.delivery.eight_bit == EightBit::Convert,
            takes_list_commands: config.lists.iter().any(|entry| entry.list.settings().commands.is_some()),
            lists: lists.collect(),
            config,
        }
    }

    pub fn list(&self, name: &str) -> Option<&Arc<List>> {
        self.lists.get(name).map(|entry| &entry.list)
    }

    /// Whether a message with this origin came from a client outside the networks, without a login or trusted
    /// certificate.
    pub fn is_strangers(&self, origin: &str) -> bool {
        origin.parse().is_ok_and(|client| !self.policy.is_trusted(client))
    }

    /// Whether mail is exempt from suppressions for a list or sender: marked so, or of a configured sender and handed
    /// in by a trusted client.
    pub fn is_transactional(&self, is_marked: bool, sender: &str, is_trusted: bool) -> bool {
        let domain = || sender.rsplit_once('@').map(|(_, domain)| domain);
        let is_of_sender = || domain().is_some_and(|domain| self.transactional.contains(domain));
        is_marked || is_trusted && !self.transactional.is_empty() && is_of_sender()
    }

    /// Returns a list's subscribers file, if it has one.
    pub fn subscribers(&self, name: &str) -> Option<&Path> {
        self.lists.get(name).and_then(|entry| entry.subscribers.as_deref())
    }

    /// Whether the members of this list are in the registry.
    pub fn has_members_in_registry(&self, list: &str) -> bool {
        self.lists.get(list).is_some_and(|entry| entry.subscribers.is_none())
    }

    pub fn list_names(&self) -> Vec<Arc<str>> {
        self.lists.keys().cloned().collect()
    }

    /// Returns the client settings for a host. A source that a reload removed uses the first one's.
    pub fn client_for(&self, source: SourceNo, target: &Target) -> Arc<ClientConfig> {
        let both = self.clients.get(usize::from(source)).unwrap_or(&self.clients[0]);
        both[usize::from(target.lmtp)].clone()
    }

    /// Returns the TLS client for hosts. Once CAs appear, the client without them is no longer used: it could resume
    /// sessions whose host was never proven.
    pub fn tls_client(&self) -> &Connector {
        let roots = self.roots();
        let client = if roots.is_empty() { &self.client_without_cas } else { &self.client_with_cas };
        client.get_or_init(|| Connector::new(ClientSettings { roots, ..ClientSettings::default() }))
    }

    /// Reads the configured file of CAs before a session needs it. Blocks.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn read_roots(&self) -> Result<(), Box<Diagnostic>> {
        if let Some(roots) = self.config.host_roots()? {
            let _ = self.roots.set(roots);
        }
        Ok(())
    }

    /// Reads the keys of `[[dkim]]`, and returns doubts about their files. Blocks. Until then nothing is signed.
    ///
    /// # Errors
    /// Keys that cannot be used.
    pub fn read_dkim_keys(&mut self) -> Result<Vec<Diagnostic>, Vec<Diagnostic>> {
        let keys = self.config.dkim_domains()?;
        self.dkim = DkimDomains::new(keys.domains);
        Ok(keys.warnings)
    }

    /// Reads the key of copies. Blocks. Until then all copies are equal.
    ///
    /// # Errors
    /// There is no usable key, and none can be created.
    pub fn read_copy_key(&mut self) -> Result<(), CopyKeyError> {
        self.copies.read_key(&self.config.data_dir)
    }

    /// Reads `[bounces] rules_file`. Blocks. Until then the built-in rules are used.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn read_bounce_rules(&mut self) -> Result<(), Box<Diagnostic>> {
        self.bounce_rules = self.config.bounce_rules()?;
        Ok(())
    }

    /// Returns the rules that name the causes of bounces.
    pub fn bounce_rules(&self) -> &BounceRules {
        self.bounce_rules.as_ref().unwrap_or_else(|| BounceRules::shared_built_in())
    }

    /// Returns the domains that sign.
    pub fn dkim(&self) -> &DkimDomains {
        &self.dkim
    }

    /// Returns the trusted CAs. Blocks while files are read: at first use, and at most once a second while the system
    /// has none.
    pub fn roots(&self) -> Roots {
        if let Some(roots) = self.roots.get() {
            return roots.clone();
        }
        match self.config.host_roots() {
            Ok(None) => self.system_roots.get(),
            Ok(Some(roots)) => self.roots.get_or_init(|| roots).clone(),
            Err(error) => {
                tracing::error!(%error, "CA roots could not be loaded; no host can be proven by a CA");
                Roots::none()
            }
        }
    }

    /// Returns the TLS requirements for mail to this domain at the plan's hosts, including its senders' wishes.
    pub fn posture(&self, plan: &SitePlan, domain: &str, wish: Wish) -> Posture {
        // Mail to a mailbox of this machine does not leave it.
        let is_here = |target: &Target| target.lmtp && target.addr.ip().is_none_or(|ip| ip.is_loopback());
        let wish = if plan.targets.iter().all(is_here) { Wish::default() } else { wish };
        let hosts: Vec<&str> = plan.targets.iter().map(|target| target.host.trim_end_matches('.')).collect();
        let question = PostureQuery { domain, hosts: &hosts, list: None, sender: "" };
        let mut posture = self.config.protection.policies.posture(&question).wished(wish);
        if let Requirement::Verify { names } = &posture.requirement {
            // Domains at the same hosts must not share a session if they require different names.
            let of_domain = |name: &PeerName| match name {
                PeerName::Nexthop => PeerName::Pattern(HostPattern::Exact(domain.to_owned())),
                PeerName::DotNexthop => PeerName::Pattern(HostPattern::Below(domain.to_owned())),
                name => name.clone(),
            };
            posture.requirement = Requirement::Verify { names: names.iter().map(of_domain).collect() };
        }
        posture
    }

    /// Returns the limits for the site with these hosts.
    pub fn site_limits(&self, targets: &[Target]) -> SiteLimits {
        let rule = self.config.sending.sites.limits(targets.iter().map(|target| &*target.host));
        SiteLimits {
            connections_max: rule.connections_max,
            transactions_per_connection_max: rule.transactions_per_connection_max,
            recipients_per_transaction_max: rule.recipients_per_transaction_max,
            per_second: rule.messages_per_second_max,
            per_minute: rule.messages_per_minute_max,
            per_hour: rule.messages_per_hour_max,
            mixes_domains: rule.mixes_domains.unwrap_or(false),
        }
    }

    /// Returns the scheduler's rules for the mail of lists and senders.
    pub fn flow_rules(&self) -> impl Iterator<Item = (FlowKey, FlowRules)> {
        let lists = self.config.lists.iter().map(|list| (FlowKey::List(list.list.name().clone()), &list.flow));
        let senders = self.config.sending.senders.iter();
        let senders = senders.map(|(domain, flow)| (FlowKey::Sender(domain.as_str().into()), flow));
        let archives = self.config.lists.iter().filter(|list| !list.archives.is_empty());
        let archives = archives.map(|list| {
            // Sent from the list's addresses, and otherwise like other bulk mail.
            let rules = FlowRules { sources: sources(&list.flow), ..FlowRules::default() };
            (FlowKey::Archive(list.list.name().clone()), rules)
        });
        lists.chain(senders).map(|(key, flow)| (key, rules(flow))).chain(archives)
    }

    /// Sets all rules in the scheduler, and withdraws those of `old` that are gone.
    pub fn give_rules(&self, old: Option<&Settings>, sched: &mut Scheduler) {
        let mut gone: Vec<FlowKey> = old.into_iter().flat_map(Settings::flow_rules).map(|(key, _)| key).collect();
        for (key, rules) in self.flow_rules() {
            gone.retain(|old| *old != key);
            sched.set_rules(key, Some(rules));
        }
        for key in gone {
            sched.set_rules(key, None);
        }
    }

    /// Returns the sections of the configuration that are queue-only at this time.
    pub fn queue_only(&self, now: Ms) -> impl Iterator<Item = (&QueueOnlyConfig, InForce)> {
        self.config.queue_only.iter().filter_map(move |section| Some((section, section.in_force(now)?)))
    }

    /// Whether all mail of a list, or else of this sender, goes out from the given source.
    pub fn goes_only_from(&self, source: &str, list: Option<&str>, sender: &str) -> bool {
        let sending = &self.config.sending;
        let of_sender = || {
            let (_, domain) = sender.rsplit_once('@')?;
            sending.senders.iter().find(|(name, _)| name == domain).map(|(_, flow)| flow)
        };
        let own = list.map_or_else(of_sender, |list| self.list_flow(list)).map_or(&[][..], |flow| &flow.sources);
        let name = |at: u8| sending.sources.get(usize::from(at)).map(|source| source.name.as_str());
        match own {
            [] => sending.sources.len() == 1 && name(0) == Some(source),
            own => own.iter().all(|at| name(*at) == Some(source)),
        }
    }

    /// Sets the queue-only sections in the scheduler.
    pub fn give_queue_only(&self, sched: &mut Scheduler, now: Ms) {
        let sections = self.queue_only(now).map(|(section, _)| (section.scope.clone(), section.reason.as_str()));
        sched.set_configured_queue_only(&sections.collect::<Vec<_>>());
    }

    /// Returns the configuration of delivery reports for a list's posts.
    pub fn list_report(&self, list: &str) -> Option<ReportConfig> {
        self.lists.get(list).map(|entry| entry.report)
    }

    /// Whether any list has archives.
    pub fn has_archives(&self) -> bool {
        self.has_archives
    }

    /// Returns the archives of a list.
    pub fn list_archives(&self, list: &str) -> Option<&ListArchives> {
        self.lists.get(list).map(|entry| &entry.archives)
    }

    /// Returns for how long a list's posts are kept; `None`: only while they are queued.
    pub fn keep_posts_ms(&self, list: &str) -> Option<Ms> {
        self.lists.get(list).map(|entry| entry.keep_posts_ms).filter(|keep_ms| *keep_ms > 0)
    }

    /// Returns a list's flow configuration.
    pub fn list_flow(&self, list: &str) -> Option<&FlowConfig> {
        self.config.lists.iter().find(|entry| **entry.list.name() == *list).map(|entry| &entry.flow)
    }

    /// Returns the lifetime of a message, by the rules of its list or sender, or by its class.
    pub fn lifetime_ms(&self, message: &Message) -> u64 {
        let envelope = message.envelope();
        match envelope.list {
            Some(_) if envelope.is_archive => self.archive_lifetime_ms(),
            list => self.lifetime_ms_of(list, envelope.sender, message.class()),
        }
    }

    /// Returns the lifetime of copies for archives: that of bulk mail.
    pub fn archive_lifetime_ms(&self) -> u64 {
        self.config.retry.bulk_lifetime_ms.unwrap_or(self.config.retry.lifetime_ms)
    }

    /// Returns the lifetime of mail of a list, or else from a sender, of this class.
    pub fn lifetime_ms_of(&self, list: Option<&str>, sender: &str, class: Class) -> u64 {
        let config = &self.config;
        let domain = sender.rsplit_once('@').map_or("", |(_, domain)| domain);
        let of_sender = || config.sending.senders.iter().find(|(name, _)| name == domain).map(|(_, flow)| flow);
        let flow = list.map_or_else(of_sender, |list| self.list_flow(list));
        let of_class = config.retry.bulk_lifetime_ms.filter(|_| class == Class::Bulk);
        let of_bounce = config.retry.bounce_lifetime_ms.filter(|_| sender.is_empty());
        flow.and_then(|flow| flow.expire_ms).or(of_bounce).or(of_class).unwrap_or(config.retry.lifetime_ms)
    }

    /// Returns the longest lifetime that any message has.
    pub fn lifetime_ms_max(&self) -> u64 {
        let config = &self.config;
        let lists = config.lists.iter().map(|entry| &entry.flow);
        let flows = config.sending.senders.iter().map(|(_, flow)| flow).chain(lists);
        let classes = [config.retry.bulk_lifetime_ms, config.retry.bounce_lifetime_ms];
        let others = flows.map(|flow| flow.expire_ms).chain(classes).flatten();
        others.fold(config.retry.lifetime_ms, u64::max)
    }

    /// `None` if the history is disabled.
    pub fn history(&self, clock: Clock) -> Option<stentor_history::Config> {
        let history = &self.config.history;
        (history.keep_days > 0).then(|| stentor_history::Config {
            dir: self.config.data_dir.join("history"),
            keep_ms: history.keep_days * 24 * 3_600_000,
            size_bytes_max: history.size_bytes_max,
            free_bytes_min: self.config.journal.reserve_bytes.saturating_mul(HISTORY_RESERVES),
            sync_ms: HISTORY_SYNC_MS,
            now: Box::new(move || clock.now()),
            complain: Box::new(|text| tracing::warn!("{text}")),
        })
    }

    pub fn resolver(&self, listeners: &[SocketAddr]) -> ResolverConfig {
        Settings::resolver_of(&self.config, listeners)
    }

    /// Returns the resolver's configuration when no tables have been opened.
    pub fn resolver_of(config: &Config, listeners: &[SocketAddr]) -> ResolverConfig {
        let dns = &config.dns;
        ResolverConfig {
            name_servers: dns.servers.clone(),
            port: config.delivery.smtp_port,
            zone_port: stentor_resolve::ZONE_PORT,
            hostname: config.hostname.clone(),
            listeners: listeners.to_vec(),
            loopback_allowed: dns.loopback_allowed,
            timeout_ms: dns.timeout_ms,
            retries: dns.attempts.saturating_sub(1) as usize,
            cache_entries_max: dns.cache_entries_max,
            negative_ttl_ms_max: dns.negative_ttl_ms_max,
            ipv4: dns.inet_protocols != InetProtocols::Ipv6,
            ipv6: dns.inet_protocols != InetProtocols::Ipv4,
            // `sts` by default is DANE where that can be had.
            dane_required: config
                .protection
                .policies
                .requirements()
                .any(|requirement| matches!(requirement.strength(), Strength::Dane | Strength::DaneOnly)),
        }
    }

    pub fn journal(&self, seed: u64) -> Options {
        let journal = &self.config.journal;
        let defaults = Options::default();
        Options {
            segment_bytes: journal.segment_bytes,
            // Outcomes, checkpoint slices and moved content share a batch with a full load of new mail.
            batch_bytes_max: (journal.segment_bytes as usize).min(journal.batch_bytes_max as usize * 2),
            reserve_segments: journal.reserve_bytes.div_ceil(journal.segment_bytes).max(defaults.reserve_segments),
            seed,
            ..defaults
        }
    }
}

fn server(config: &Config) -> ServerConfig {
    let listen = &config.listen;
    ServerConfig {
        hostname: config.hostname.clone(),
        xverp: true,
        trusted_origin: Some(config.rules.addresses.origin.to_string()).filter(|origin| !origin.is_empty()),
        size_max: config.message_size_bytes_max,
        piece_bytes_max: PIECE_BYTES as usize,
        recipients_max: listen.recipients_per_message_max,
        errors_max: listen.errors_max,
        command_timeout_ms: listen.command_timeout_ms,
        data_timeout_ms: listen.data_timeout_ms,
        session_timeout_ms: listen.session_timeout_ms,
        ..ServerConfig::default()
    }
}

fn transactional(config: &Config) -> HashSet<Box<str>, foldhash::fast::FixedState> {
    let senders = config.sending.senders.iter().filter(|(_, flow)| flow.is_transactional);
    senders.map(|(domain, _)| domain.as_str().into()).collect()
}

fn sources(flow: &FlowConfig) -> SourceSet {
    match flow.sources.as_slice() {
        [] => SourceSet::ALL,
        some => SourceSet(some.iter().fold(0, |set, source| set | 1 << source)),
    }
}

fn rules(flow: &FlowConfig) -> FlowRules {
    FlowRules {
        sources: sources(flow),
        weight: flow.share.max(1),
        lifetime_ms: flow.expire_ms,
        warn_ms: None,
        coalesce_over: flow.coalesce_over,
        suspend_posts: flow.suspend_posts,
        suspend_ms: flow.suspend_ms,
        // A copy of its own is a transaction of its own.
        recipients_max: (!flow.copies.is_empty()).then_some(1),
    }
}

fn client(config: &Config, ehlo_name: &str, lmtp: bool) -> ClientConfig {
    let delivery = &config.delivery;
    ClientConfig {
        ehlo_name: ehlo_name.to_owned(),
        lmtp,
        use_chunking: delivery.chunking,
        greeting_ms: delivery.greeting_timeout_ms,
        ehlo_ms: delivery.ehlo_timeout_ms,
        starttls_ms: config.protection.handshake_timeout_ms,
        handshake_ms: config.protection.handshake_timeout_ms,
        mail_ms: delivery.mail_timeout_ms,
        rcpt_ms: delivery.rcpt_timeout_ms,
        data_init_ms: delivery.data_init_timeout_ms,
        data_block_ms: delivery.data_block_timeout_ms,
        data_done_ms: delivery.data_done_timeout_ms,
        ..ClientConfig::default()
    }
}

fn source(source: &SourceSettings) -> SourceConfig {
    SourceConfig {
        name: source.name.clone(),
        warm_up_per_day: source.warm_up_per_day.clone(),
        since: source.warm_up_since_ms,
    }
}

fn sched(config: &Config) -> SchedConfig {
    let (delivery, retry) = (&config.delivery, &config.retry);
    let connections_max = delivery.connections_max as usize;
    SchedConfig {
        connections_max,
        slow_connections_max: connections_max / SLOW_CONNECTIONS_PART,
        connections_per_site_max: delivery.connections_per_site_max as usize,
        recipients_per_transaction_max: delivery.recipients_per_transaction_max as usize,
        transactions_per_connection_max: delivery.transactions_per_connection_max,
        idle_ms: delivery.idle_ms,
        resolves_max: delivery.resolves_max as usize,
        host_retry: Backoff::new(retry.host_ms_min, retry.host_ms_max),
        site_retry: Backoff::new(retry.site_ms_min, retry.site_ms_max),
        mailbox_retry: Backoff::new(retry.mailbox_ms_min, retry.mailbox_ms_max),
        recipient_retry: Backoff::new(retry.recipient_ms_min, retry.recipient_ms_max),
        lifetime_ms: retry.lifetime_ms,
        bulk_lifetime_ms: retry.bulk_lifetime_ms,
        bounce_lifetime_ms: retry.bounce_lifetime_ms,
        bulk_site_retry: retry.bulk_site,
        bulk_recipient_retry: retry.bulk_recipient,
        warn_ms: Some(retry.delay_warning_ms).filter(|ms| *ms > 0),
        bounce_gather_ms: retry.bounce_gather_ms,
        bounce_failures_max: stentor_mail::dsn::RECIPIENTS_MAX,
        sources: config.sending.sources.iter().map(source).collect(),
        ..SchedConfig::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use stentor_tls::{Identities, SELF_SIGNED_FILE};

    use super::*;

    /// The simulator measures the settings that are shipped.
    #[test]
    fn the_server_schedules_with_the_schedulers_own_defaults() {
        let config = stentor_config::without_file().unwrap();
        assert_eq!(sched(&config), SchedConfig::DEFAULT);
    }

    /// CAs of a system whose bundle appears after the first look.
    fn late_roots() -> Roots {
        static READS: AtomicUsize = AtomicUsize::new(0);
        if READS.fetch_add(1, Ordering::Relaxed) == 0 {
            return Roots::none();
        }
        let folder = tempfile::tempdir().unwrap();
        Identities::self_signed(folder.path(), "ca.example", 0).unwrap();
        Roots::from_file(&folder.path().join(SELF_SIGNED_FILE)).unwrap()
    }

    #[test]
    fn cas_that_appear_later_are_used_without_a_reload() {
        let mut settings = Settings::new(stentor_config::without_file().unwrap(), None);
        settings.system_roots = SystemRoots::with_reader(late_roots, Duration::ZERO);
        let without: *const Connector = settings.tls_client();
        assert!(!settings.roots().is_empty());
        let with: *const Connector = settings.tls_client();
        assert_ne!(without, with, "a session that was not proven would be resumed");
        assert_eq!(with, std::ptr::from_ref(settings.tls_client()), "sessions are resumed");
    }
}
