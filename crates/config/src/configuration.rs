//! The checked configuration. All times are in milliseconds and all sizes in octets, whatever unit the key has.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::IpNet;
use stentor_http_client::Url;
use stentor_lists::List;
use stentor_logs::settings::LogConfig;
use stentor_mail::address::Address;
use stentor_milter::protocol::MilterSettings;
use stentor_policy::{AliasInput, InjectorClasses, Policy, RateLimits};
use stentor_reputation::GreylistSettings;
use stentor_rules::{NextHop, Rulebook};
use stentor_sched::Backoff;

use super::acme::AcmeConfig;
use super::archives::ArchiveTarget;
use super::bounces::BouncesConfig;
use super::call_ahead::CallAheadConfig;
use super::diagnose::{Diagnostic, FilePosition};
use super::dkim::DkimConfig;
use super::domain_reports::{DmarcReportsConfig, ReportSenderConfig};
use super::endpoints::WebhookConfig;
use super::keys::ApiToken;
use super::links;
use super::listeners::ListenConfig;
use super::message_authentication::MessageAuthConfig;
use super::protection::ProtectionConfig;
use super::quarantine::QuarantineConfig;
use super::queue_only::QueueOnlyConfig;
use super::rule_sources::TableConfig;
use super::same_name::SameNameHosts;
use super::security::AuthConfig;
use super::sending::{FlowConfig, SendingConfig};
use super::settings::{ConfigKey, Settings};
use super::tls::TlsConfig;

/// The complete, consistent configuration; `docs/operate/configuration.md` explains each key.
#[derive(Debug)]
pub struct Config {
    /// The configuration file.
    pub file: Option<PathBuf>,
    /// Host name, as lower-case A-labels.
    pub hostname: String,
    /// Name under which this server writes Authentication-Results (RFC 8601).
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
    /// `[[milters]]`, in the order in which they run.
    pub milters: Vec<MilterSettings>,
    /// `[[dkim]]`
    pub dkim: Vec<DkimConfig>,
    /// `[message_authentication]`
    pub message_auth: MessageAuthConfig,
    /// `[greylist]`
    pub greylist: GreylistSettings,
    /// Lists, in the order of the file.
    pub lists: Vec<ListConfig>,
    /// Whether a list holds posts that large receivers would refuse.
    pub lists_hold_unfit: bool,
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
    /// `[tls_reports]`; without it no reports are sent.
    pub tls_reports: Option<ReportSenderConfig>,
    /// `[dmarc_reports]`
    pub dmarc_reports: DmarcReportsConfig,
    pub retry: RetryConfig,
    pub journal: JournalConfig,
    pub log: LogConfig,
    pub history: HistoryConfig,
    /// `[bounces]`
    pub bounces: BouncesConfig,
    pub control: ControlConfig,
    pub submission: SubmissionConfig,
    pub tls: TlsConfig,
    pub acme: AcmeConfig,
    pub http: HttpConfig,
    pub webhooks: Vec<WebhookConfig>,
    pub telemetry: TelemetryConfig,
    /// Policy built from networks, domains, lists and aliases.
    pub policy: Arc<Policy>,
    /// Rules, routes and hops, which the policy does not hold.
    pub rules: Arc<Rulebook>,
    /// Tables of the rules; a table's number is its index.
    pub tables: Vec<TableConfig>,
    /// Doubtful settings that are not errors.
    pub warnings: Vec<Diagnostic>,
    /// Keys that need a restart, with their values in force; empty if the configuration was only checked.
    pub settings: Settings,
    /// Those keys whose value in the file differs from the one in force, as `[dns] attempts`.
    pub restart_pending: Vec<String>,
}

impl Config {
    /// `file:line` of a key, for explanations; empty if the file does not set it or positions were not recorded
    /// ([`super::check_noting`]).
    pub fn place(&self, section: &str, key: &str) -> String {
        let (Some(file), Some(FilePosition { line, .. })) = (&self.file, self.settings.position(section, key)) else {
            return String::new();
        };
        format!("{}:{line}", file.file_name().unwrap_or(file.as_os_str()).display())
    }

    /// All listening addresses, each with its key.
    pub fn listening(&self) -> impl Iterator<Item = (ConfigKey<'static>, SocketAddr)> {
        let of = |section, key, all: &'_ Vec<SocketAddr>| {
            all.iter().map(|address| (ConfigKey::new(section, key), *address)).collect::<Vec<_>>()
        };
        let of_mail = self
            .listen
            .listeners()
            .map(|(service, listener)| (ConfigKey::new("listen", service.name()), listener.address));
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

/// Settings of `[submission]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmissionConfig {
    /// Folder where local programs submit mail; `None`: local submission is off.
    pub folder: Option<PathBuf>,
    /// Group of the folder and of `stentor-sendmail`.
    pub group: String,
    /// Mail with another user's sender is refused; otherwise the header names the real user.
    pub strict: bool,
    /// Login names or user IDs that may send as anyone.
    pub trusted_users: Vec<String>,
    /// Permitted addresses, or `@domain`, by login name or user ID.
    pub senders: BTreeMap<String, Vec<String>>,
    pub recipients_max: u32,
}

/// Settings of `[domains]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainsConfig {
    /// Local domains as configured; the list domains and the host name are local too ([`Policy::is_local_domain`]).
    pub local: Vec<String>,
    /// Local domains whose addresses are all in tables of virtual users.
    pub virtuals: Vec<String>,
    pub postmaster: Option<Address>,
}

/// Settings of `[lists.NAME]`.
#[derive(Debug, Clone)]
pub struct ListConfig {
    pub list: Arc<List>,
    /// Subscriber file; it was readable when the configuration was checked. `None`: its members are in the registry.
    pub subscribers: Option<PathBuf>,
    /// Who archives its posts.
    pub archives: Vec<ArchiveTarget>,
    pub flow: FlowConfig,
    pub report: ReportConfig,
    /// How long posts are kept; 0: only while they are queued.
    pub keep_posts_ms: u64,
}

impl ListConfig {
    /// The next hops among its archives.
    pub fn archive_hops(&self) -> impl Iterator<Item = &NextHop> {
        self.archives.iter().filter_map(|archive| match archive {
            ArchiveTarget::Hop(hop) => Some(hop),
            ArchiveTarget::Address(_) => None,
        })
    }

    /// Whether its posts are archived, here or by a subscriber.
    pub fn is_archived(&self) -> bool {
        !self.archives.is_empty() || self.list.settings().archived_at.is_some()
    }
}

/// Who gets a delivery report of each post.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReportTo {
    #[default]
    None,
    Owner,
    /// The reverse-path of the post.
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

/// Settings of a list's delivery reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReportConfig {
    pub to: ReportTo,
    /// Delay from acceptance; `None`: the report is sent when the fast lane has finished the post.
    pub after_ms: Option<u64>,
}

impl ReportConfig {
    pub fn is_wanted(self) -> bool {
        self.to != ReportTo::None
    }
}

/// `[classes]`: criteria for bulk mail, in addition to List-* and Precedence fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassesConfig {
    pub injectors: InjectorClasses,
    pub sender_rate: RateLimits,
}

/// Settings of `[dns]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsConfig {
    /// Name servers; never empty.
    pub servers: Vec<SocketAddr>,
    /// Whether the name servers are the system's, because the configuration names none.
    pub is_from_system: bool,
    pub timeout_ms: u64,
    pub attempts: u32,
    pub cache_entries_max: u64,
    pub negative_ttl_ms_max: u64,
    /// Loopback addresses in DNS answers are used; for labs.
    pub loopback_allowed: bool,
    pub inet_protocols: InetProtocols,
}

/// Address families used to connect to hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InetProtocols {
    All,
    Ipv4,
    Ipv6,
}

/// Treatment of 8-bit content for a host without 8BITMIME (RFC 6152).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EightBit {
    Convert,
    Bounce,
}

/// Settings of `[delivery]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryConfig {
    pub connections_max: u32,
    pub connections_per_site_max: u32,
    pub recipients_per_transaction_max: u32,
    pub transactions_per_connection_max: u32,
    /// How long an unused connection is kept.
    pub idle_ms: u64,
    /// Port for hosts found by MX and for routes without a port.
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
    /// Whether BDAT is used if the host offers it.
    pub chunking: bool,
    /// Other servers that use our `hostname`.
    pub same_name_hosts: SameNameHosts,
    /// Apply the built-in profiles of large providers.
    pub profiles: bool,
    /// Maximum domain lookups at a time.
    pub resolves_max: u32,
}

/// Who gets a delay notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DelayWarning {
    /// Senders that set no NOTIFY get one, too.
    All,
    /// Only senders that requested it by NOTIFY=DELAY (RFC 3461).
    Asked,
}

/// `[retry]`: first and longest backoff of each clock.
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
    /// Lifetime of bulk mail, if it differs.
    pub bulk_lifetime_ms: Option<u64>,
    /// Lifetime of mail from the null sender, if it differs.
    pub bounce_lifetime_ms: Option<u64>,
    /// First and longest backoff of bulk mail's sites and recipients, if they differ.
    pub bulk_site: Option<Backoff>,
    pub bulk_recipient: Option<Backoff>,
    /// Age at which the sender gets a delay notice; 0: never.
    pub delay_warning_ms: u64,
    pub delay_warning_to: DelayWarning,
    /// How long failures of one message are collected for one DSN.
    pub bounce_gather_ms: u64,
}

/// Settings of `[journal]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalConfig {
    /// Segment size; a multiple of 4096.
    pub segment_bytes: u64,
    pub commit_delay_us: u64,
    pub completion_sync_ms_max: u64,
    /// Maximum batch size; at most half a segment.
    pub batch_bytes_max: u64,
    pub addresses_max: u32,
    /// How long an unused address is remembered.
    pub address_unseen_ms: u64,
    /// Free disk space below which new mail gets 452.
    pub reserve_bytes: u64,
}

/// Settings of `[history]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryConfig {
    /// Days of history kept; 0: none.
    pub keep_days: u64,
    pub size_bytes_max: u64,
}

/// Settings of `[control]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlConfig {
    pub socket: PathBuf,
}

/// Whether reading over HTTP requires a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadAccess {
    #[default]
    Open,
    Login,
}

/// Settings of `[http]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HttpConfig {
    /// Listening addresses; empty: no listener.
    pub listen: Vec<SocketAddr>,
    /// The listener speaks HTTPS; plain HTTP only gets redirects.
    pub tls: bool,
    pub reading: ReadAccess,
    /// Names of this server besides its addresses, `localhost` and its host name.
    pub host_names: Vec<String>,
    /// HTTPS address of this server in links for subscribers, without a trailing slash.
    pub link_base: Option<String>,
    pub connections_max: u32,
    pub session_ms: u64,
    /// User names with argon2id hashes.
    pub users: Vec<(String, String)>,
    pub tokens: Vec<ApiToken>,
}

impl HttpConfig {
    /// Host name in links for subscribers.
    pub fn link_host(&self) -> Option<&str> {
        links::host(self.link_base.as_deref()?)
    }
}

/// Settings of `[telemetry]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TelemetryConfig {
    /// OTLP endpoint; unset: tracing is off.
    pub endpoint: Option<Url>,
    /// One in this many messages is traced.
    pub sample_one_in: u64,
}
