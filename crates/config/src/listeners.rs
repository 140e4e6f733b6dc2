//! Where clients connect for mail: `smtp`, `smtps` and `submission` of `[listen]`, and what each listener offers of TLS and AUTH.
//!
//! An entry is an address, or a table of an address with `tls` and `auth`. What is left out follows from the key, which also says whose rules
//! hold there ([`Service`]). What would let nobody log in is an error where it is written.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use ipnet::IpNet;

use super::raw::{Context, Item, Section, address};
use super::security::AuthConfig;
use super::settings::{self, Origin};

/// What clients connect for: the keys of `[listen]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// For everybody.
    Smtp,
    /// For users, by TLS from the first octet (RFC 8314).
    Smtps,
    /// For users (RFC 6409).
    Submission,
}

/// Whom services are for: each role has sessions and threads of its own, so that what fills one leaves the other as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Everybody.
    Relay,
    /// Users, who log in.
    Users,
}

impl Service {
    pub const ALL: [Service; 3] = [Service::Smtp, Service::Smtps, Service::Submission];

    /// Its key in `[listen]`.
    pub fn name(self) -> &'static str {
        match self {
            Service::Smtp => "smtp",
            Service::Smtps => "smtps",
            Service::Submission => "submission",
        }
    }

    /// Mail is completed as that of users, and nobody else's is taken.
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

    /// A listener of which only the address is written.
    pub fn listener(self, address: SocketAddr) -> Listener {
        let (tls, auth) = self.defaults();
        Listener { address, tls, auth }
    }
}

/// TLS of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerTls {
    None,
    /// STARTTLS is offered (RFC 3207).
    StartTls,
    /// Nothing but STARTTLS leads on.
    Required,
    /// From the first octet.
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

    /// Clients can have TLS, at once or after STARTTLS.
    pub fn is_possible(self) -> bool {
        self != ListenerTls::None
    }

    /// STARTTLS leads to it.
    pub fn has_starttls(self) -> bool {
        matches!(self, ListenerTls::StartTls | ListenerTls::Required)
    }
}

/// AUTH of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerAuth {
    None,
    Offered,
    /// No MAIL before it.
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

/// `[listen]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenConfig {
    pub smtp: Vec<Listener>,
    pub smtps: Vec<Listener>,
    pub submission: Vec<Listener>,
    /// Proxies that begin each connection with a PROXY header.
    pub proxy_clients: Vec<IpNet>,
    /// Proxies that may say XCLIENT.
    pub xclient_clients: Vec<IpNet>,
    /// Sessions at `smtp`.
    pub connections_max: u32,
    /// Sessions at `smtps` and `submission`.
    pub submission_connections_max: u32,
    /// For clients outside the client networks.
    pub connections_per_client_max: u32,
    pub command_timeout_ms: u64,
    pub data_timeout_ms: u64,
    pub session_timeout_ms: u64,
    /// For clients outside the client networks.
    pub recipients_per_message_max: u32,
    /// For clients that have logged in.
    pub submission_recipients_max: u32,
    pub errors_max: u32,
    /// Memory for message bodies in all sessions together.
    pub body_bytes_max: u64,
    /// Octets of large bodies that are in the journal before their message is accepted, all sessions together.
    pub streamed_bytes_max: u64,
    /// Clients outside the client networks wait so long for the greeting.
    pub greet_delay_ms: u64,
    /// For what rules ask the DNS about a client outside the client networks.
    pub dns_timeout_ms: u64,
    /// Date and Message-ID are added to messages of trusted clients that lack them.
    pub adds_missing_headers: bool,
}

impl ListenConfig {
    /// Sessions that a role may have.
    pub fn connections_max_of(&self, role: Role) -> u32 {
        match role {
            Role::Relay => self.connections_max,
            Role::Users => self.submission_connections_max,
        }
    }

    /// Sessions of all roles that have listeners.
    pub fn sessions_max(&self) -> u64 {
        let of = |role| {
            let is_there = self.listeners().any(|(service, _)| service.role() == role);
            if is_there { self.connections_max_of(role).into() } else { 0 }
        };
        of(Role::Relay) + of(Role::Users)
    }

    /// All listeners for mail, in an order that a reload does not change.
    pub fn listeners(&self) -> impl Iterator<Item = (Service, &Listener)> {
        fn of(service: Service, all: &[Listener]) -> impl Iterator<Item = (Service, &Listener)> {
            all.iter().map(move |listener| (service, listener))
        }
        let users = of(Service::Smtps, &self.smtps).chain(of(Service::Submission, &self.submission));
        of(Service::Smtp, &self.smtp).chain(users)
    }
}

/// Where a listener and what it offers are written.
pub(super) struct Spans {
    address: Range<usize>,
    tls: Option<Range<usize>>,
    auth: Option<Range<usize>>,
}

/// Reads the listeners of all services, with where each is written, in the same order.
pub(super) fn read(section: &Section<'_>) -> ([Vec<Listener>; 3], Vec<Spans>) {
    section.advise(instead_of);
    let (mut spans, mut taken) = (Vec::new(), Vec::new());
    let lists = Service::ALL.map(|service| read_service(section, service, &mut taken, &mut spans));
    (lists, spans)
}

/// What is written in place of a key that is none of `[listen]` but one of its listeners.
fn instead_of(key: &str) -> Option<&'static str> {
    match key {
        "starttls" | "tls" => {
            Some("each listener has its own TLS: smtp = [{ address = \"0.0.0.0:25\", tls = \"none\" }] for no STARTTLS")
        }
        "smtp_auth" | "auth" => {
            Some("each listener has its own AUTH: smtp = [{ address = \"0.0.0.0:25\", auth = \"offered\" }]")
        }
        "address" => Some("addresses stand in `smtp`, `smtps` and `submission`"),
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
    // It does not listen for users, unless that is said.
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

/// One entry; nothing if it has no address that can be listened on.
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
        // Their defaults are not the same everywhere.
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

/// As the file has them: a table says what does not follow from the key.
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

/// Whether it is where mail for our domains comes in from the Internet (RFC 5321 section 4.5.4.2 knows no other port) and takes none in clear.
fn shuts_out_servers(service: Service, listener: &Listener) -> bool {
    let is_within = match listener.address.ip().to_canonical() {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    };
    let is_for_servers =
        service == Service::Smtp && listener.auth != ListenerAuth::Required && listener.address.port() == 25;
    is_for_servers && !is_within && matches!(listener.tls, ListenerTls::Required | ListenerTls::Implicit)
}

/// Whether AUTH can be what each listener says, and TLS what is asked of other servers. `has_certificates`: clients may prove who they are by one, in place of a login.
pub(super) fn check(
    context: &Context<'_>,
    listen: &ListenConfig,
    spans: &[Spans],
    auth: &AuthConfig,
    has_certificates: bool,
) {
    for ((service, listener), spans) in listen.listeners().zip(spans) {
        if let Some(span) = spans.tls.as_ref().filter(|_| shuts_out_servers(service, listener)) {
            let message = "other mail servers that know no TLS cannot deliver here, and port 25 is where they do: RFC 3207 section 4 forbids \
                           to require it of them; write tls = \"starttls\", or use another port";
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
            let message = "nobody can log in there: without TLS AUTH is for `clear_networks` of [auth] alone, and there are none; name \
                           them, or write tls = \"starttls\" or auth = \"none\"";
            let span = spans.tls.as_ref().or(spans.auth.as_ref()).unwrap_or(&spans.address);
            context.error(span.clone(), message);
        }
    }
}
