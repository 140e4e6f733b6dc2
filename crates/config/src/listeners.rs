//! Listeners for mail: `smtp`, `smtps` and `submission` of `[listen]`, each with its TLS and AUTH.
//!
//! An entry is an address, or a table of an address with `tls` and `auth`. Omitted settings follow from the key,
//! which also selects the rules that apply ([`Service`]). A setting that would let nobody log in is an error.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use ipnet::IpNet;

use super::raw::{Context, Item, Section, address};
use super::security::AuthConfig;
use super::settings::{self, Origin};

/// The services that clients connect to: the keys of `[listen]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// Mail from everybody.
    Smtp,
    /// Submission by users, with TLS from the first octet (RFC 8314).
    Smtps,
    /// Submission by users (RFC 6409).
    Submission,
}

/// Kind of client that a service is for. Each role has its own sessions and threads, so that load on one does not
/// affect the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Other servers and everybody else.
    Relay,
    /// Users, who log in.
    Users,
}

impl Service {
    pub const ALL: [Service; 3] = [Service::Smtp, Service::Smtps, Service::Submission];

    /// The service's key in `[listen]`.
    pub fn name(self) -> &'static str {
        match self {
            Service::Smtp => "smtp",
            Service::Smtps => "smtps",
            Service::Submission => "submission",
        }
    }

    /// Whether only users may send here; their messages are completed (RFC 6409).
    pub fn is_for_users(self) -> bool {
        self.role() == Role::Users
    }

    pub fn role(self) -> Role {
        match self {
            Service::Smtp => Role::Relay,
            Service::Smtps | Service::Submission => Role::Users,
        }
    }

    fn example(self) -> &'static str {
        match self {
            Service::Smtp => "0.0.0.0:25",
            Service::Smtps => "0.0.0.0:465",
            Service::Submission => "0.0.0.0:587",
        }
    }

    fn defaults(self) -> (ListenerTls, ListenerAuth) {
        match self {
            Service::Smtp => (ListenerTls::StartTls, ListenerAuth::None),
            Service::Smtps => (ListenerTls::Implicit, ListenerAuth::Required),
            Service::Submission => (ListenerTls::Required, ListenerAuth::Required),
        }
    }

    /// The default listener of this service at an address.
    pub fn listener(self, address: SocketAddr) -> Listener {
        let (tls, auth) = self.defaults();
        Listener { address, tls, auth }
    }
}

/// TLS at a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerTls {
    None,
    /// STARTTLS is offered (RFC 3207).
    StartTls,
    /// Only STARTTLS is accepted before other commands.
    Required,
    /// TLS from the first octet.
    Implicit,
}

impl ListenerTls {
    const WORDS: [(&'static str, Self); 4] = [
        (Self::None.word(), Self::None),
        (Self::StartTls.word(), Self::StartTls),
        (Self::Required.word(), Self::Required),
        (Self::Implicit.word(), Self::Implicit),
    ];

    const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::StartTls => "starttls",
            Self::Required => "required",
            Self::Implicit => "implicit",
        }
    }

    /// Whether clients can use TLS, immediately or after STARTTLS.
    pub fn is_possible(self) -> bool {
        self != ListenerTls::None
    }

    /// Whether STARTTLS is offered.
    pub fn has_starttls(self) -> bool {
        matches!(self, ListenerTls::StartTls | ListenerTls::Required)
    }
}

/// AUTH at a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerAuth {
    None,
    Offered,
    /// MAIL is refused before a login.
    Required,
}

impl ListenerAuth {
    const WORDS: [(&'static str, Self); 3] = [
        (Self::None.word(), Self::None),
        (Self::Offered.word(), Self::Offered),
        (Self::Required.word(), Self::Required),
    ];

    const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Offered => "offered",
            Self::Required => "required",
        }
    }
}

/// One entry of `smtp`, `smtps` or `submission`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listener {
    pub address: SocketAddr,
    pub tls: ListenerTls,
    pub auth: ListenerAuth,
}

/// Settings of `[listen]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenConfig {
    pub smtp: Vec<Listener>,
    pub smtps: Vec<Listener>,
    pub submission: Vec<Listener>,
    /// Proxies that start each connection with a PROXY header.
    pub proxy_clients: Vec<IpNet>,
    /// Proxies that may send XCLIENT.
    pub xclient_clients: Vec<IpNet>,
    /// Maximum sessions at `smtp`.
    pub connections_max: u32,
    /// Maximum sessions at `smtps` and `submission` together.
    pub submission_connections_max: u32,
    /// Limit for clients outside the client networks.
    pub connections_per_client_max: u32,
    pub command_timeout_ms: u64,
    pub data_timeout_ms: u64,
    pub session_timeout_ms: u64,
    /// Limit for clients outside the client networks.
    pub recipients_per_message_max: u32,
    /// Limit for clients that have logged in.
    pub submission_recipients_max: u32,
    pub errors_max: u32,
    /// Memory for message bodies in all sessions together.
    pub body_bytes_max: u64,
    /// Maximum octets of large bodies stored in the journal before acceptance, all sessions together.
    pub streamed_bytes_max: u64,
    /// Greeting delay for clients outside the client networks.
    pub greet_delay_ms: u64,
    /// Timeout for DNS queries that rules make about clients outside the client networks.
    pub dns_timeout_ms: u64,
    /// Whether missing Date and Message-ID fields are added to messages of trusted clients.
    pub adds_missing_headers: bool,
}

impl ListenConfig {
    /// Maximum sessions of a role.
    pub fn connections_max_of(&self, role: Role) -> u32 {
        match role {
            Role::Relay => self.connections_max,
            Role::Users => self.submission_connections_max,
        }
    }

    /// Maximum sessions of all roles that have listeners.
    pub fn sessions_max(&self) -> u64 {
        let of = |role| {
            let is_there = self.listeners().any(|(service, _)| service.role() == role);
            if is_there { self.connections_max_of(role).into() } else { 0 }
        };
        of(Role::Relay) + of(Role::Users)
    }

    /// All mail listeners, in an order that a reload does not change.
    pub fn listeners(&self) -> impl Iterator<Item = (Service, &Listener)> {
        fn of(service: Service, all: &[Listener]) -> impl Iterator<Item = (Service, &Listener)> {
            all.iter().map(move |listener| (service, listener))
        }
        let users = of(Service::Smtps, &self.smtps).chain(of(Service::Submission, &self.submission));
        of(Service::Smtp, &self.smtp).chain(users)
    }
}

/// Positions of a listener and its settings in the file.
pub(super) struct Spans {
    address: Range<usize>,
    tls: Option<Range<usize>>,
    auth: Option<Range<usize>>,
}

/// Reads the listeners of all services, and their positions in the same order.
pub(super) fn read(section: &Section<'_>) -> ([Vec<Listener>; 3], Vec<Spans>) {
    section.advise(instead_of);
    let (mut spans, mut taken) = (Vec::new(), Vec::new());
    let lists = Service::ALL.map(|service| read_service(section, service, &mut taken, &mut spans));
    (lists, spans)
}

/// Suggestion for a key that belongs to a listener, not to `[listen]`.
fn instead_of(key: &str) -> Option<&'static str> {
    match key {
        "starttls" | "tls" => {
            Some("TLS is set per listener: smtp = [{ address = \"0.0.0.0:25\", tls = \"none\" }] disables STARTTLS")
        }
        "smtp_auth" | "auth" => {
            Some("AUTH is set per listener: smtp = [{ address = \"0.0.0.0:25\", auth = \"offered\" }]")
        }
        "address" => Some("set addresses in `smtp`, `smtps` and `submission`"),
        _ => None,
    }
}

fn read_service(
    section: &Section<'_>,
    service: Service,
    taken: &mut Vec<SocketAddr>,
    spans: &mut Vec<Spans>,
) -> Vec<Listener> {
    let key = service.name();
    // By default there are no listeners for users.
    let of_default: Vec<Listener> =
        if service == Service::Smtp { vec![service.listener(([127, 0, 0, 1], 2525).into())] } else { Vec::new() };
    #[cfg(test)]
    section.note(key, "strings or tables", None);
    let shown_default = shown(service, &of_default);
    let Some(items) = section.texts_or_tables(key, service == Service::Smtp) else {
        section.effective(key, Origin::Default, shown_default.clone(), shown_default);
        taken.extend(of_default.iter().map(|listener| listener.address));
        spans.extend(of_default.iter().map(|_| Spans { address: section.span_of(key), tls: None, auth: None }));
        return of_default;
    };
    let mut listeners: Vec<Listener> = Vec::with_capacity(items.len());
    for item in items {
        if let Some((listener, place)) = read_entry(section, service, item, taken) {
            listeners.push(listener);
            spans.push(place);
        }
    }
    section.effective(key, Origin::Default, shown(service, &listeners), shown_default);
    listeners
}

/// Reads one entry; `None` if it has no usable address.
fn read_entry(
    section: &Section<'_>,
    service: Service,
    item: Item<'_>,
    taken: &mut Vec<SocketAddr>,
) -> Option<(Listener, Spans)> {
    let (text, table) = match item {
        Item::Text(text) => (Some(text), None),
        Item::Table(table) => (table.required("address", service.example()), Some(table)),
    };
    let address = text.and_then(|text| {
        let span = text.span.clone();
        Some((address(section, text, service.example(), taken)?, span))
    });
    let (mut tls, mut auth) = service.defaults();
    let (mut tls_span, mut auth_span) = (None, None);
    if let Some(table) = table {
        // Their defaults depend on the service.
        #[cfg(test)]
        {
            table.note("tls", super::reference::words(&ListenerTls::WORDS), None);
            table.note("auth", super::reference::words(&ListenerAuth::WORDS), None);
        }
        tls = table.choice("tls", tls, &ListenerTls::WORDS);
        auth = table.choice("auth", auth, &ListenerAuth::WORDS);
        let span = |key| table.has(key).then(|| table.span_of(key));
        (tls_span, auth_span) = (span("tls"), span("auth"));
        table.finish();
    }
    let (address, span) = address?;
    taken.push(address);
    Some((Listener { address, tls, auth }, Spans { address: span, tls: tls_span, auth: auth_span }))
}

/// Listeners as written in the file: a table states what does not follow from the key.
fn shown(service: Service, listeners: &[Listener]) -> String {
    let (tls, auth) = service.defaults();
    let one = |listener: &Listener| {
        let address = settings::quoted(&listener.address.to_string());
        if (listener.tls, listener.auth) == (tls, auth) {
            return address;
        }
        let mut table = format!("{{ address = {address}");
        if listener.tls != tls {
            let _ = write!(table, ", tls = \"{}\"", listener.tls.word());
        }
        if listener.auth != auth {
            let _ = write!(table, ", auth = \"{}\"", listener.auth.word());
        }
        table + " }"
    };
    format!("[{}]", listeners.iter().map(one).collect::<Vec<_>>().join(", "))
}

/// Whether the listener receives mail from the Internet (always port 25, RFC 5321 section 4.5.4.2) but accepts none
/// in clear.
fn shuts_out_servers(service: Service, listener: &Listener) -> bool {
    let is_within = match listener.address.ip().to_canonical() {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    };
    let is_for_servers =
        service == Service::Smtp && listener.auth != ListenerAuth::Required && listener.address.port() == 25;
    is_for_servers && !is_within && matches!(listener.tls, ListenerTls::Required | ListenerTls::Implicit)
}

/// Checks that each listener's AUTH is possible and that its TLS does not exclude other servers. With
/// `has_certificates`, clients may authenticate by certificate.
pub(super) fn check(
    context: &Context<'_>,
    listen: &ListenConfig,
    spans: &[Spans],
    auth: &AuthConfig,
    has_certificates: bool,
) {
    for ((service, listener), spans) in listen.listeners().zip(spans) {
        if let Some(span) = spans.tls.as_ref().filter(|_| shuts_out_servers(service, listener)) {
            let message = "mail servers without TLS cannot deliver to port 25 here, and RFC 3207 section 4 forbids \
                requiring TLS there; write tls = \"starttls\", or use another port";
            context.warn(span.clone(), message);
        }
        let is_required = match listener.auth {
            ListenerAuth::None => continue,
            ListenerAuth::Offered => false,
            ListenerAuth::Required => true,
        };
        let by_certificate = has_certificates && is_required && listener.tls != ListenerTls::None;
        if auth.source.is_none() && !by_certificate {
            let Some(span) = &spans.auth else {
                let message = "nobody can log in there: set `users` or `dovecot` in [auth]";
                context.warn(spans.address.clone(), format!("`{}` of [listen]: {message}", service.name()));
                continue;
            };
            let message = "nobody can log in there: set `users` or `dovecot` in [auth], or write auth = \"none\"";
            context.error(span.clone(), message);
        } else if listener.tls == ListenerTls::None && auth.clear_networks.is_empty() {
            let message = "nobody can log in there: AUTH without TLS is only for `clear_networks` of [auth], which is \
                empty; add networks, or write tls = \"starttls\" or auth = \"none\"";
            let span = spans.tls.as_ref().or(spans.auth.as_ref()).unwrap_or(&spans.address);
            context.error(span.clone(), message);
        }
    }
}
