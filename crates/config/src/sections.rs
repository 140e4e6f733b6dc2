//! Sections with fixed keys: defaults, ranges, and consistency within a section.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use ipnet::IpNet;
use stentor_mail::Class;
use stentor_mail::address::normalise_domain;
use stentor_policy::{InjectorClasses, RateLimits};
use stentor_sched::{Backoff, SchedConfig};
use toml::de::DeTable;

use super::configuration::{
    ClassesConfig, Config, ControlConfig, DelayWarning, DeliveryConfig, DnsConfig, EightBit, InetProtocols,
    JournalConfig, RetryConfig,
};
use super::diagnose::Spot;
use super::listeners::{self, ListenConfig, Spans};
use super::name_servers::{LOCAL, RESOLV_CONF, system_name_servers};
use super::numbers::at_most;
use super::raw::{Context, DAY_S, Section};
use super::sending::{FlowContext, SendingSpot};
use super::settings::{self, Origin, Settings};
use super::{
    Places, acme, bounces, call_ahead, cross, dkim, dns_lists, domain_reports, http, log, message_authentication,
    milters, protection, quarantine, queue_only, same_name, security, sending, submission, tables, tls, webhooks,
};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;
/// Default data folder, next to the configuration file.
const DATA_DIR: &str = "stentor-data";
/// Seconds in a week.
const WEEK_S: f64 = 604_800.0;
/// Defaults of the scheduler, which are the server's: docs/design/scheduler-experiments.md measures the shipped values.
const SCHED: SchedConfig = SchedConfig::DEFAULT;
/// Longest path of a Unix socket (`sun_path` without its NUL).
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Reads the whole document. `None`: a required value is wrong; an error was reported.
#[allow(clippy::too_many_lines, reason = "one line for each section, then for each field")]
pub(super) fn read<'a>(context: &'a Context<'a>, document: &'a DeTable<'a>) -> Option<Config> {
    let top = Section::top(context, document);
    let mut hostname = hostname(&top);
    let data_dir = context.path(top.text("data_dir").map_or(DATA_DIR, |text| text.value));
    let shown = |path: &Path| settings::quoted(&path.display().to_string());
    top.effective("data_dir", Origin::Default, shown(&data_dir), shown(&context.path(DATA_DIR)));
    let client_networks = client_networks(&top);
    let message_size_bytes_max = top.number("message_size_bytes_max", 50 * MIB, KIB..=2 * GIB);
    let received_max = top.number("received_max", 50, 1..=1_000) as u32;
    let (listen, listener_spans) = listen(top.section("listen"));
    let auth = security::auth(top.section("auth"), networks);
    let tls = tls::read(top.section("tls"));
    listeners::check(context, &listen, &listener_spans, &auth, !tls.client_certificates.is_empty());
    let of_delivery = top.section("delivery");
    let mut delivery = delivery(&of_delivery);
    if let Some((name, port)) = &context.in_force {
        (hostname, delivery.smtp_port) = (name.clone(), *port);
    }
    let tls_reports = domain_reports::read_tls(top.section("tls_reports"));
    let authserv_id = authserv_id(&top, &hostname);
    let http = http::read(top.section("http"));
    let has_links = http.link_base.is_some();
    let SendingSpot { value: sending, linked } = sending::read(&top, &hostname, delivery.profiles, has_links);
    let flows = FlowContext { sources: &sending.sources, has_links };
    let tables = tables::read(&top, &hostname, delivery.smtp_port, flows);
    let call_ahead = call_ahead::read(top.section("call_ahead"), &tables.relay);
    let quarantine = quarantine::read(top.section("quarantine"), http.tls && !http.listen.is_empty());
    let listening: Vec<SocketAddr> = listen.listeners().map(|(_, listener)| listener.address).collect();
    let milters = milters::read(&top, &hostname, &listening);
    let dkim = dkim::read(&top);
    cross::check_links_signed(context, &tables, &linked, &dkim);
    let message_auth = message_authentication::read(top.section("message_authentication"));
    let is_evaluated = message_auth.is_on && message_auth.evaluates_dmarc();
    let dmarc_reports = domain_reports::read_dmarc(top.section("dmarc_reports"), is_evaluated);
    let greylist = dns_lists::greylist(top.section("greylist"));
    let classes = classes(top.section("classes"));
    let dns = dns(top.section("dns"));
    let retry = retry(top.section("retry"));
    let journal = journal(top.section("journal"));
    let log = log::log(top.section("log"), &tables);
    let history = log::history(top.section("history"));
    let bounces = bounces::read(top.section("bounces"));
    let control = control(top.section("control"), &data_dir);
    let submission = submission::read(top.section("submission"));
    let is_list = |name: &str| tables.lists.iter().any(|list| &**list.value.list.name() == name);
    let protection = protection::read(&top, &of_delivery, delivery.smtp_port, &is_list);
    of_delivery.finish();
    let acme =
        acme::read(top.section("acme"), http.tls && !http.listen.is_empty(), &[&listening[..], &http.listen].concat());
    let webhooks = webhooks::webhooks(&top.section("webhooks"), &is_list);
    let queue_only = queue_only::read(&top, &sending.sources, is_list);
    let telemetry = webhooks::telemetry(top.section("telemetry"));
    top.finish();
    let policy = cross::check(context, &hostname, &client_networks, &tables)?;
    let (rules, rule_tables) = tables.rules.book(policy.clone());
    cross::check_reports(context, &dmarc_reports, &rules, &dkim);
    Some(Config {
        file: None,
        hostname,
        authserv_id,
        data_dir,
        client_networks,
        message_size_bytes_max,
        received_max,
        listen,
        auth,
        domains: tables.domains.value,
        call_ahead,
        quarantine,
        milters,
        dkim,
        message_auth,
        greylist,
        lists_hold_unfit: tables.lists.iter().any(|list| list.value.flow.hold_unfit),
        lists: tables.lists.into_iter().map(|list| list.value).collect(),
        aliases: tables.aliases.into_iter().map(|alias| alias.value).collect(),
        classes,
        sending,
        queue_only,
        dns,
        delivery,
        protection,
        tls_reports,
        dmarc_reports: dmarc_reports.value,
        retry,
        journal,
        log,
        history,
        bounces,
        control,
        submission,
        tls,
        acme,
        http,
        webhooks,
        telemetry,
        policy,
        rules: Arc::new(rules),
        tables: rule_tables,
        warnings: Vec::new(),
        settings: Settings::default(),
        restart_pending: Vec::new(),
    })
}

fn hostname(top: &Section<'_>) -> String {
    let Some(text) = top.text("hostname") else {
        let uname = rustix::system::uname();
        let name = uname.nodename().to_str().ok().and_then(|name| normalise_domain(name).ok());
        let name = name.filter(|name| !name.starts_with('[')).unwrap_or_else(|| "localhost".to_owned());
        let shown = settings::quoted(&name);
        top.effective("hostname", Origin::System("the system's host name"), shown.clone(), shown);
        return name;
    };
    match normalise_domain(text.value) {
        Ok(name) if !name.starts_with('[') => name,
        _ => {
            let message = format!("`hostname` is {:?}; it must be a host name, such as \"mx.example.org\"", text.value);
            top.context.error(text.span, message);
            "localhost".to_owned()
        }
    }
}

/// Reads `authserv_id`: a token, or text that can be quoted (RFC 8601 section 2.2); usually a host name.
fn authserv_id(top: &Section<'_>, hostname: &str) -> String {
    let Some(text) = top.text("authserv_id") else { return hostname.to_owned() };
    if text.value.is_empty() || !text.value.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\();=".contains(&byte))
    {
        let message = format!("`authserv_id` is {:?}; write a name, such as \"mx.example.org\"", text.value);
        top.context.error(text.span, message);
    }
    text.value.to_owned()
}

/// Required value of `open_relay`, so that nobody becomes an open relay by a typo.
const OPEN_RELAY: &str = "yes, for everyone";

fn client_networks(top: &Section<'_>) -> Vec<IpNet> {
    let is_open = top.text("open_relay").is_some_and(|text| {
        let is_open = text.value == OPEN_RELAY;
        if !is_open {
            let message = format!("`open_relay` is {:?}; it can only be \"{OPEN_RELAY}\"", text.value);
            top.context.error(text.span, message);
        }
        is_open
    });
    let own = [IpNet::new_assert([127, 0, 0, 0].into(), 8), IpNet::new_assert(IpAddr::from(1_u128.to_be_bytes()), 128)];
    let Some(texts) = top.texts("client_networks") else {
        top.effective("client_networks", Origin::Default, settings::array(own), settings::array(own));
        return own.to_vec();
    };
    let mut networks = Vec::with_capacity(texts.len());
    for text in texts {
        let span = text.span.clone();
        let Some(network) = network(top, text) else { continue };
        if is_everyone(network) && !is_open {
            let message = format!(
                "client network {network} makes this server an open relay: anyone can send mail to anyone through it; \
                 if that is intended, confirm it with open_relay = \"{OPEN_RELAY}\""
            );
            top.context.error(span, message);
        }
        networks.push(network);
    }
    networks
}

/// Shortest prefix of a public network that one owner can have; a typo such as 192.0.0.0/8 or `2001::/16` is shorter.
const PUBLIC_V4_BITS_MIN: u8 = 16;
const PUBLIC_V6_BITS_MIN: u8 = 20;
/// IPv6 networks that embed all of IPv4: 6to4 (RFC 3056), Teredo (RFC 4380), NAT64 (RFC 6052), mapped.
const EMBEDDING: [&str; 4] = ["2002::/16", "2001::/32", "64:ff9b::/96", "::ffff:0:0/96"];

/// Whether the network is larger than any that one owner has; private ones may have any size.
fn is_everyone(network: IpNet) -> bool {
    const PRIVATE: [&str; 7] =
        ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "127.0.0.0/8", "fc00::/7", "fe80::/10"];
    let is_in = |all: &[&str]| all.iter().filter_map(|one| one.parse::<IpNet>().ok()).any(|one| one.contains(&network));
    if is_in(&PRIVATE) {
        return false;
    }
    let embeds = EMBEDDING.iter().filter_map(|one| one.parse::<IpNet>().ok());
    match network {
        IpNet::V4(network) => network.prefix_len() < PUBLIC_V4_BITS_MIN,
        IpNet::V6(v6) => v6.prefix_len() < PUBLIC_V6_BITS_MIN || embeds.into_iter().any(|one| one == network),
    }
}

fn network(section: &Section<'_>, text: Spot<&str>) -> Option<IpNet> {
    // Postfix's notation: `[::1]/128`.
    let bare = text.value.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let bare = bare.filter(|(_, rest)| rest.is_empty() || rest.starts_with('/'));
    let bare = bare.map_or_else(|| text.value.to_owned(), |(address, rest)| format!("{address}{rest}"));
    let single = || bare.parse::<IpAddr>().ok().map(IpNet::from);
    let Some(network) = bare.parse::<IpNet>().ok().or_else(single) else {
        section.context.error(
            text.span,
            format!("{:?} is not a network; write, for instance, \"10.0.0.0/8\" or \"2001:db8::/32\"", text.value),
        );
        return None;
    };
    if network != network.trunc() {
        let message = format!(
            "{:?} has host bits set; write \"{}\" for the network, or \"{}\" for this single address",
            text.value,
            network.trunc(),
            network.addr()
        );
        section.context.error(text.span, message);
    }
    Some(unmapped(network.trunc()))
}

/// Converts IPv4-mapped networks (`::ffff:127.0.0.0/104`) to IPv4, because clients are looked up by IPv4 address.
fn unmapped(network: IpNet) -> IpNet {
    const MAPPED_BITS: u8 = 96;
    let bits = network.prefix_len().checked_sub(MAPPED_BITS);
    match (network.addr().to_canonical(), bits) {
        (address @ IpAddr::V4(_), Some(bits)) if network.addr().is_ipv6() => {
            IpNet::new(address, bits).unwrap_or(network)
        }
        _ => network,
    }
}

fn classes(section: Section<'_>) -> ClassesConfig {
    let mut networks: Vec<(IpNet, Class)> = Vec::new();
    for (key, class) in [("ordinary_networks", Class::Ordinary), ("bulk_networks", Class::Bulk)] {
        for text in section.texts(key).unwrap_or_default() {
            let span = text.span.clone();
            let Some(network) = network(&section, text) else { continue };
            if networks.iter().any(|(other, _)| *other == network) {
                section.context.error(span, format!("network {network} already has a class"));
            }
            networks.push((network, class));
        }
    }
    let config = ClassesConfig {
        injectors: InjectorClasses::new(networks),
        sender_rate: RateLimits {
            messages_max: section.number("sender_messages_max", 100, 0..=1_000_000) as u32,
            recipients_max: section.number("sender_recipients_max", 1_000, 0..=100_000_000) as u32,
            window_ms: section.seconds("sender_window_s", 60, 1.0..=DAY_S),
        },
    };
    section.finish();
    config
}

fn listen(section: Section<'_>) -> (ListenConfig, Vec<Spans>) {
    let connections_max = section.number("connections_max", 2_000, 1..=1_000_000) as u32;
    let per_client_default = connections_max.min(100);
    let ([smtp, smtps, submission], spans) = listeners::read(&section);
    let config = ListenConfig {
        smtp,
        smtps,
        submission,
        proxy_clients: proxies(&section, "proxy_clients"),
        xclient_clients: proxies(&section, "xclient_clients"),
        connections_max,
        submission_connections_max: section.number("submission_connections_max", 2_000, 1..=1_000_000) as u32,
        connections_per_client_max: section.number(
            "connections_per_client_max",
            per_client_default.into(),
            1..=1_000_000,
        ) as u32,
        command_timeout_ms: section.seconds("command_timeout_s", 300, 1.0..=DAY_S),
        data_timeout_ms: section.seconds("data_timeout_s", 180, 1.0..=DAY_S),
        session_timeout_ms: section.seconds("session_timeout_s", 3_600, 1.0..=DAY_S),
        recipients_per_message_max: section.number("recipients_per_message_max", 1_000, 100..=1_000_000) as u32,
        submission_recipients_max: section.number("submission_recipients_max", 1_000, 100..=1_000_000) as u32,
        errors_max: section.number("errors_max", 20, 1..=10_000) as u32,
        body_bytes_max: section.number("body_bytes_max", 256 * MIB, MIB..=1_024 * GIB),
        streamed_bytes_max: section.number("streamed_bytes_max", GIB, MIB..=1_024 * GIB),
        greet_delay_ms: section.seconds("greet_delay_s", 0, 0.0..=30.0),
        dns_timeout_ms: section.seconds("dns_timeout_s", 5, 0.1..=60.0),
        adds_missing_headers: section.flag("add_missing_headers", true),
    };
    let per_client = config.connections_per_client_max;
    at_most(&section, "connections_per_client_max", per_client.into(), "connections_max", connections_max.into());
    section.finish();
    (config, spans)
}

fn networks(section: &Section<'_>, key: &'static str) -> Vec<IpNet> {
    section.texts(key).unwrap_or_default().into_iter().filter_map(|text| network(section, text)).collect()
}

/// Reads networks of proxies. A proxy there states the client's address and so whose mail is relayed.
fn proxies(section: &Section<'_>, key: &'static str) -> Vec<IpNet> {
    let mut networks = Vec::new();
    for text in section.texts(key).unwrap_or_default() {
        let span = text.span.clone();
        let Some(network) = network(section, text) else { continue };
        if is_everyone(network) {
            let message = format!(
                "{network} in `{key}` lets anyone pose as any client, and so relay mail to anyone; list only the \
                 proxies"
            );
            section.context.error(span, message);
        }
        networks.push(network);
    }
    networks
}

fn delivery(section: &Section<'_>) -> DeliveryConfig {
    let connections_max = section.number("connections_max", SCHED.connections_max as u64, 1..=100_000) as u32;
    let timeout = |key, default| section.seconds(key, default, 0.1..=DAY_S);
    let config = DeliveryConfig {
        connections_max,
        connections_per_site_max: section.number(
            "connections_per_site_max",
            connections_max.min(SCHED.connections_per_site_max as u32).into(),
            1..=100_000,
        ) as u32,
        recipients_per_transaction_max: section.number(
            "recipients_per_transaction_max",
            SCHED.recipients_per_transaction_max as u64,
            1..=100_000,
        ) as u32,
        transactions_per_connection_max: section.number(
            "transactions_per_connection_max",
            SCHED.transactions_per_connection_max.into(),
            1..=1_000_000,
        ) as u32,
        idle_ms: section.number("idle_ms", SCHED.idle_ms, 0..=300_000),
        smtp_port: section.number("smtp_port", 25, 1..=65_535) as u16,
        connect_timeout_ms: timeout("connect_timeout_s", 10),
        greeting_timeout_ms: timeout("greeting_timeout_s", 300),
        ehlo_timeout_ms: timeout("ehlo_timeout_s", 300),
        mail_timeout_ms: timeout("mail_timeout_s", 300),
        rcpt_timeout_ms: timeout("rcpt_timeout_s", 300),
        data_init_timeout_ms: timeout("data_init_timeout_s", 120),
        data_block_timeout_ms: timeout("data_block_timeout_s", 180),
        data_done_timeout_ms: timeout("data_done_timeout_s", 600),
        eight_bit: section.choice(
            "eight_bit",
            EightBit::Convert,
            &[("convert", EightBit::Convert), ("bounce", EightBit::Bounce)],
        ),
        chunking: section.flag("chunking", true),
        same_name_hosts: same_name::read(section, "same_name_hosts"),
        profiles: section.flag("profiles", true),
        resolves_max: section.number("resolves_max", SCHED.resolves_max as u64, 1..=10_000) as u32,
    };
    let per_site = config.connections_per_site_max;
    at_most(section, "connections_per_site_max", per_site.into(), "connections_max", connections_max.into());
    config
}

fn dns(section: Section<'_>) -> DnsConfig {
    let mut servers: Vec<SocketAddr> = Vec::new();
    let configured = section.some_texts("servers");
    let is_from_system = configured.is_none();
    for text in configured.unwrap_or_default() {
        let with_port = || text.value.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, 53));
        match text.value.parse::<SocketAddr>().ok().or_else(with_port) {
            Some(server) => servers.push(server),
            None => section.context.error(
                text.span,
                format!("{:?} is not a valid name server address; write, for instance, \"127.0.0.1:53\"", text.value),
            ),
        }
    }
    if is_from_system {
        servers = system_name_servers(Path::new(RESOLV_CONF)).unwrap_or_else(|_| vec![LOCAL]);
        let shown = settings::array(&servers);
        section.effective("servers", Origin::System(RESOLV_CONF), shown.clone(), shown);
    }
    let config = DnsConfig {
        servers,
        is_from_system,
        timeout_ms: section.number("timeout_ms", 3_000, 10..=60_000),
        attempts: section.number("attempts", 3, 1..=10) as u32,
        cache_entries_max: section.number("cache_entries_max", 100_000, 0..=10_000_000),
        negative_ttl_ms_max: section.seconds("negative_ttl_s_max", 300, 0.0..=DAY_S),
        loopback_allowed: section.flag("loopback_allowed", false),
        inet_protocols: section.choice(
            "inet_protocols",
            InetProtocols::All,
            &[("all", InetProtocols::All), ("ipv4", InetProtocols::Ipv4), ("ipv6", InetProtocols::Ipv6)],
        ),
    };
    section.finish();
    config
}

/// Reads a clock of bulk mail if either end is set. The other end defaults to ordinary mail's, adjusted if necessary.
fn bulk(section: &Section<'_>, min: &'static str, max: &'static str, ordinary: Backoff) -> Option<Backoff> {
    let (low, high) = (section.maybe_seconds(min, 0.01..=DAY_S), section.maybe_seconds(max, 0.01..=WEEK_S));
    if let (Some(low), Some(high)) = (low, high) {
        at_most(section, min, low, max, high);
    }
    match (low, high) {
        (None, None) => None,
        (Some(low), high) => Some(Backoff::new(low, high.unwrap_or(ordinary.max_ms.max(low)))),
        (None, Some(high)) => Some(Backoff::new(ordinary.min_ms.min(high), high)),
    }
}

fn retry(section: Section<'_>) -> RetryConfig {
    let clock = |min, max, default: Backoff| {
        let first = section.seconds(min, default.min_ms / 1_000, 0.01..=DAY_S);
        Backoff::new(first, section.seconds(max, default.max_ms / 1_000, 0.01..=WEEK_S))
    };
    let host = clock("host_min_s", "host_max_s", SCHED.host_retry);
    let site = clock("site_min_s", "site_max_s", SCHED.site_retry);
    let mailbox = clock("mailbox_min_s", "mailbox_max_s", SCHED.mailbox_retry);
    let recipient = clock("recipient_min_s", "recipient_max_s", SCHED.recipient_retry);
    let bulk_site = bulk(&section, "bulk_site_min_s", "bulk_site_max_s", site);
    let bulk_recipient = bulk(&section, "bulk_recipient_min_s", "bulk_recipient_max_s", recipient);
    let config = RetryConfig {
        host_ms_min: host.min_ms,
        host_ms_max: host.max_ms,
        site_ms_min: site.min_ms,
        site_ms_max: site.max_ms,
        mailbox_ms_min: mailbox.min_ms,
        mailbox_ms_max: mailbox.max_ms,
        recipient_ms_min: recipient.min_ms,
        recipient_ms_max: recipient.max_ms,
        lifetime_ms: section.seconds("lifetime_s", SCHED.lifetime_ms / 1_000, 1.0..=30.0 * DAY_S),
        bulk_lifetime_ms: section.maybe_seconds("bulk_lifetime_s", 1.0..=30.0 * DAY_S),
        bounce_lifetime_ms: section.maybe_seconds("bounce_lifetime_s", 1.0..=30.0 * DAY_S),
        bulk_site,
        bulk_recipient,
        delay_warning_ms: section.seconds(
            "delay_warning_s",
            SCHED.warn_ms.unwrap_or_default() / 1_000,
            0.0..=30.0 * DAY_S,
        ),
        delay_warning_to: section.choice(
            "delay_warning_to",
            DelayWarning::All,
            &[("all", DelayWarning::All), ("asked", DelayWarning::Asked)],
        ),
        bounce_gather_ms: section.number("bounce_gather_ms", SCHED.bounce_gather_ms, 0..=3_600_000),
    };
    at_most(&section, "host_min_s", config.host_ms_min, "host_max_s", config.host_ms_max);
    at_most(&section, "site_min_s", config.site_ms_min, "site_max_s", config.site_ms_max);
    at_most(&section, "mailbox_min_s", config.mailbox_ms_min, "mailbox_max_s", config.mailbox_ms_max);
    at_most(&section, "recipient_min_s", config.recipient_ms_min, "recipient_max_s", config.recipient_ms_max);
    section.finish();
    config
}

fn journal(section: Section<'_>) -> JournalConfig {
    let segment_bytes = section.number("segment_bytes", 16 * MIB, MIB..=GIB);
    if !segment_bytes.is_multiple_of(4_096) {
        let message = format!("`segment_bytes` in [journal] is {segment_bytes}; it must be a multiple of 4096");
        section.context.error(section.span_of("segment_bytes"), message);
    }
    let batch_default = (4 * MIB).min(segment_bytes / 2);
    let batch_bytes_max = section.number("batch_bytes_max", batch_default, 512 * KIB..=GIB);
    if section.has("batch_bytes_max") && batch_bytes_max > segment_bytes / 2 {
        let message = format!(
            "`batch_bytes_max` in [journal] is {batch_bytes_max}; it must be at most half of `segment_bytes` ({segment_bytes})"
        );
        section.context.error(section.span_of("batch_bytes_max"), message);
    }
    let config = JournalConfig {
        segment_bytes,
        commit_delay_us: section.number("commit_delay_us", 500, 0..=100_000),
        completion_sync_ms_max: section.number("completion_sync_ms_max", 100, 1..=10_000),
        batch_bytes_max,
        addresses_max: section.number("addresses_max", 10_000_000, 1_000..=4_000_000_000) as u32,
        address_unseen_ms: section.number("address_unseen_days", 60, 1..=3_650) * 24 * 3_600_000,
        reserve_bytes: section.number("reserve_bytes", 32 * MIB, 0..=1_024 * GIB),
    };
    section.finish();
    config
}

/// See [`super::places`].
pub(super) fn places<'a>(context: &'a Context<'a>, document: &'a DeTable<'a>) -> Option<Places> {
    let top = Section::top(context, document);
    let section = top.section("control");
    let is_certain =
        |section: &Section<'_>, key: &str| section.has(key) && !context.is_broken_at(&section.span_of(key));
    let (has_data_dir, has_socket) = (is_certain(&top, "data_dir"), is_certain(&section, "socket"));
    // The malformed line may be the one that sets them.
    if context.is_broken() && !has_data_dir && !has_socket {
        return None;
    }
    let data_dir = context.path(top.text("data_dir").map_or(DATA_DIR, |text| text.value));
    let ControlConfig { socket } = control(section, &data_dir);
    (!context.has_errors()).then_some(Places { data_dir, socket })
}

fn control(section: Section<'_>, data_dir: &Path) -> ControlConfig {
    let text = section.text("socket");
    let default = data_dir.join("control.sock");
    let socket = text.map_or_else(|| default.clone(), |text| section.context.path(text.value));
    let shown = |path: &Path| settings::quoted(&path.display().to_string());
    section.effective("socket", Origin::Default, shown(&socket), shown(&default));
    if socket.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
        let message = format!(
            "the control socket's path `{}` is longer than {SOCKET_PATH_BYTES_MAX} octets; set `socket` \
             in [control] to a shorter one",
            socket.display()
        );
        section.context.error(section.span_of("socket"), message);
    }
    section.finish();
    ControlConfig { socket }
}
