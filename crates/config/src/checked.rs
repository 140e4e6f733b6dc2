//! The checked configuration. Every time is in milliseconds, every size in octets, whatever unit its key has.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::IpNet;
use stentor_lists::List;
use stentor_mail::address::Address;
use stentor_milter::MilterSettings;
use stentor_policy::{AliasInput, InjectorClasses, Policy, RateLimits};
use stentor_rules::Rulebook;
use stentor_strangers::GreylistSettings;

use super::acme::AcmeConfig;
use super::call_ahead::CallAheadConfig;
use super::diagnose::Diagnostic;
use super::endpoints::WebhookConfig;
use super::keys::Token;
use super::listeners::ListenConfig;
use super::protection::ProtectionConfig;
use super::quarantine::QuarantineConfig;
use super::queue_only::QueueOnlyConfig;
use super::rule_sources::TableConfig;
use super::same_name::SameNameHosts;
use super::security::AuthConfig;
use super::sending::{FlowConfig, SendingConfig};
use super::settings::Settings;
use super::tls::TlsConfig;
use super::tls_reports::TlsReportsConfig;
use super::url::Url;

/// The whole configuration, consistent; see `docs/operate/configuration.md` for what each key means.
#[derive(Debug)]
pub struct Config {
    /// The file it came from.
    pub file: Option<PathBuf>,
    /// Lower-case A-labels.
    pub hostname: String,
    /// Whose results of authentication in headers are ours (RFC 8601).
    pub authserv_id: String,
    pub data_dir: PathBuf,
    pub client_networks: Vec<IpNet>,
    pub message_size_bytes_max: u64,
    pub received_max: u32,
    pub listen: ListenConfig,
    /// `[auth]`
    pub auth: AuthConfig,
    pub domains: DomainsConfig,
    /// `[quarantine]`
    pub quarantine: QuarantineConfig,
    /// `[call_ahead]`
    pub call_ahead: CallAheadConfig,
    /// `[[milters]]`, in the order in which they are asked.
    pub milters: Vec<MilterSettings>,
    /// `[greylist]`
    pub greylist: GreylistSettings,
    /// In the order of the file.
    pub lists: Vec<ListConfig>,
    pub aliases: Vec<AliasInput>,
    pub classes: ClassesConfig,
    /// `[sources]`, `[sites]`, `[senders]`
    pub sending: SendingConfig,
    /// `[queue_only]`
    pub queue_only: Vec<QueueOnlyConfig>,
    pub dns: DnsConfig,
    pub delivery: DeliveryConfig,
    /// `[delivery] tls`, `[[tls_policy]]`, `[smart_hosts]`
    pub protection: ProtectionConfig,
    /// `[tls_reports]`; none are sent without it.
    pub tls_reports: Option<TlsReportsConfig>,
    pub retry: RetryConfig,
    pub journal: JournalConfig,
    pub log: LogConfig,
    pub history: HistoryConfig,
    pub control: ControlConfig,
    pub submission: SubmissionConfig,
    pub tls: TlsConfig,
    pub acme: AcmeConfig,
    pub http: HttpConfig,
    pub webhooks: Vec<WebhookConfig>,
    pub telemetry: TelemetryConfig,
    /// Built out of networks, domains, lists and aliases.
    pub policy: Arc<Policy>,
    /// Rules, routes and hops, beside the policy.
    pub rules: Arc<Rulebook>,
    /// What the rules' tables are, in the order of their numbers.
    pub tables: Vec<TableConfig>,
    /// Doubtful settings that are not errors.
    pub warnings: Vec<Diagnostic>,
    /// Keys that take a restart, with their values in force; empty where the configuration was only checked.
    pub settings: Settings,
    /// Of those, the ones that the file has otherwise: `[dns] attempts`.
    pub restart_pending: Vec<String>,
}

impl Config {
    /// `file:line` of a key, for explanations; empty if the file does not have it, or places were not noted ([`super::check_noting`]).
    pub fn place(&self, section: &str, key: &str) -> String {
        let (Some(file), Some((line, _))) = (&self.file, self.settings.place(section, key)) else {
            return String::new();
        };
        format!("{}:{line}", file.file_name().unwrap_or(file.as_os_str()).display())
    }

    /// All addresses to listen on, each with its section and key.
    pub fn listening(&self) -> impl Iterator<Item = ((&'static str, &'static str), SocketAddr)> {
        let of = |section, key, all: &'_ Vec<SocketAddr>| {
            all.iter().map(|address| ((section, key), *address)).collect::<Vec<_>>()
        };
        let of_mail = self.listen.listeners().map(|(service, listener)| (("listen", service.name()), listener.address));
        [
            of_mail.collect(),
            of("http", "listen", &self.http.listen),
            of("acme", "http_listen", &self.acme.http_listen),
            of("acme", "tls_listen", &self.acme.tls_listen),
        ]
        .into_iter()
        .flatten()
    }
}

/// `[submission]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmissionConfig {
    /// Where local programs leave their mail; `None`: nowhere.
    pub folder: Option<PathBuf>,
    /// The group of the folder and of `stentor-sendmail`.
    pub group: String,
    /// Others' senders are refused; else they are noted in the header.
    pub strict: bool,
    /// Login names or user ids of those who send as anyone.
    pub trusted_users: Vec<String>,
    /// Addresses, or `@domain`, by login name or user id.
    pub senders: BTreeMap<String, Vec<String>>,
    pub recipients_max: u32,
}

/// `[domains]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainsConfig {
    /// As configured; the domains of lists and the own name are local too ([`Policy::is_local_domain`]).
    pub local: Vec<String>,
    /// Local ones whose addresses are all in tables of virtual users.
    pub virtuals: Vec<String>,
    pub postmaster: Option<Address>,
}

/// `[lists.NAME]`
#[derive(Debug, Clone)]
pub struct ListConfig {
    pub list: Arc<List>,
    /// It was a readable file when the configuration was checked.
    pub subscribers: PathBuf,
    pub flow: FlowConfig,
    pub report: ReportConfig,
}

/// Who gets a delivery report of each post.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReportTo {
    #[default]
    None,
    Owner,
    /// The reverse-path that the post came with.
    Poster,
    Both,
}

impl ReportTo {
    pub fn owner(self) -> bool {
        matches!(self, ReportTo::Owner | ReportTo::Both)
    }

    pub fn poster(self) -> bool {
        matches!(self, ReportTo::Poster | ReportTo::Both)
    }
}

/// A list's delivery reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReportConfig {
    pub to: ReportTo,
    /// From acceptance; `None`: when the fast lane is done with the post.
    pub after_ms: Option<u64>,
}

impl ReportConfig {
    pub fn is_wanted(self) -> bool {
        self.to != ReportTo::None
    }
}

/// `[classes]`: what makes relayed mail bulk, beside its List-* and Precedence fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassesConfig {
    pub injectors: InjectorClasses,
    pub sender_rate: RateLimits,
}

/// `[dns]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsConfig {
    /// Never empty.
    pub servers: Vec<SocketAddr>,
    pub timeout_ms: u64,
    pub attempts: u32,
    pub cache_entries_max: u64,
    pub negative_ttl_ms_max: u64,
    /// Loopback addresses out of the DNS are used; for labs.
    pub loopback_allowed: bool,
    pub inet_protocols: InetProtocols,
}

/// Families of addresses by which hosts are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InetProtocols {
    All,
    Ipv4,
    Ipv6,
}

/// What to do with 8-bit content for a host without 8BITMIME (RFC 6152).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EightBit {
    Convert,
    Bounce,
}

/// `[delivery]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryConfig {
    pub connections_max: u32,
    pub connections_per_site_max: u32,
    pub recipients_per_transaction_max: u32,
    pub transactions_per_connection_max: u32,
    /// How long an unused connection is kept.
    pub idle_ms: u64,
    /// Port of hosts found by MX, and of routes that name none.
    pub smtp_port: u16,
    pub connect_timeout_ms: u64,
    pub greeting_timeout_ms: u64,
    pub ehlo_timeout_ms: u64,
    pub mail_timeout_ms: u64,
    pub rcpt_timeout_ms: u64,
    pub data_init_timeout_ms: u64,
    pub data_block_timeout_ms: u64,
    pub data_done_timeout_ms: u64,
    pub eight_bit: EightBit,
    /// BDAT where it is offered.
    pub chunking: bool,
    /// Other servers that have our `hostname`.
    pub same_name_hosts: SameNameHosts,
    /// Apply the built-in profiles of large providers.
    pub profiles: bool,
    /// Lookups of domains at a time.
    pub resolves_max: u32,
}

/// Who gets a delay notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DelayWarning {
    /// Also senders without a NOTIFY.
    All,
    /// Senders who asked for it: NOTIFY=DELAY (RFC 3461).
    Asked,
}

/// `[retry]`: first and longest back-off of each clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryConfig {
    pub host_ms_min: u64,
    pub host_ms_max: u64,
    pub site_ms_min: u64,
    pub site_ms_max: u64,
    pub mailbox_ms_min: u64,
    pub mailbox_ms_max: u64,
    pub recipient_ms_min: u64,
    pub recipient_ms_max: u64,
    /// Age at which undelivered recipients are bounced.
    pub lifetime_ms: u64,
    /// Of bulk mail, where it is another.
    pub bulk_lifetime_ms: Option<u64>,
    /// Of mail from the null sender, where it is another.
    pub bounce_lifetime_ms: Option<u64>,
    /// First and longest back-off of bulk mail's sites and recipients, where they are others.
    pub bulk_site_ms: Option<(u64, u64)>,
    pub bulk_recipient_ms: Option<(u64, u64)>,
    /// Age at which the sender gets a delay notice; 0: never.
    pub delay_warning_ms: u64,
    pub delay_warning_to: DelayWarning,
    /// How long failures of one message are gathered for one DSN.
    pub bounce_gather_ms: u64,
}

/// `[journal]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalConfig {
    /// A multiple of 4096.
    pub segment_bytes: u64,
    pub commit_delay_us: u64,
    pub completion_sync_ms_max: u64,
    /// At most half a segment.
    pub batch_bytes_max: u64,
    pub addresses_max: u32,
    /// How long an unused address is remembered after it was last seen.
    pub address_unseen_ms: u64,
    /// Free space on the medium below which new mail gets 452.
    pub reserve_bytes: u64,
}

/// When a log file is rotated, and how many old ones are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rotation {
    /// 0: by no size.
    pub bytes_max: u64,
    /// 0: by no age.
    pub age_ms_max: u64,
    /// Files with a number behind their name, `.1` the newest.
    pub keep: u32,
}

impl Rotation {
    pub const NEVER: Rotation = Rotation { bytes_max: 0, age_ms_max: 0, keep: 0 };
}

/// Where a syslog daemon listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SyslogTo {
    Unix(PathBuf),
    Udp(SocketAddr),
}

/// Where lines go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogTarget {
    Stderr,
    Stdout,
    Off,
    /// Appended to, created with mode 0640, put aside as [`Rotation`] says.
    File(PathBuf),
    Syslog(SyslogTo),
    /// The socket of systemd's journal.
    Journald(PathBuf),
}

/// The format of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// `Nov 21 10:54:25 host stentor[123]: QUEUEID: to=<a@b>, ...`
    Sendmail,
    /// One object a line, with the same fields, times in milliseconds.
    Json,
}

/// How much the server says about itself on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// `[log]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    pub attempts: LogTarget,
    /// As `attempts` where there is none; so are those below.
    pub deliveries: Option<LogTarget>,
    pub acceptances: Option<LogTarget>,
    pub refusals: Option<LogTarget>,
    pub policy: Option<LogTarget>,
    pub audit: Option<LogTarget>,
    /// Instead of its purpose's, for acceptances and deliveries of this class, and of a list's posts.
    pub ordinary: Option<LogTarget>,
    pub bulk: Option<LogTarget>,
    pub lists: Vec<(String, LogTarget)>,
    pub format: LogFormat,
    pub level: LogLevel,
    pub by_line: bool,
    pub rotation: Rotation,
    /// RFC 5424 syslog lines instead of RFC 3164.
    pub rfc5424: bool,
}

/// `[history]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryConfig {
    /// 0: nothing is kept.
    pub keep_days: u64,
    pub size_bytes_max: u64,
}

/// `[control]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlConfig {
    pub socket: PathBuf,
}

/// Whether reading over HTTP needs a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reading {
    #[default]
    Open,
    Login,
}

/// `[http]`
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HttpConfig {
    /// Empty: no listener.
    pub listen: Vec<SocketAddr>,
    /// HTTPS, and nothing but redirects in clear.
    pub tls: bool,
    pub reading: Reading,
    /// Names of this server, besides addresses, `localhost` and its host name.
    pub host_names: Vec<String>,
    pub connections_max: u32,
    pub session_ms: u64,
    /// Names with argon2id hashes.
    pub users: Vec<(String, String)>,
    pub tokens: Vec<Token>,
}

/// `[telemetry]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TelemetryConfig {
    /// OTLP endpoint; tracing is off when unset.
    pub endpoint: Option<Url>,
    /// One in this many messages is traced.
    pub sample_one_in: u64,
}
