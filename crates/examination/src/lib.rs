//! Examines the domains that mail leaves from, and the addresses that it leaves by, as large receivers do
//! (`stentor_identity`), before a post leaves: all of them for `stentor doctor mail`, or what one post needs
//! ([`refusals`]).
//!
//! It reads the configuration and asks the DNS and web servers itself; no server needs to run, and no mail is sent. One
//! post is rendered as its first copy would leave: with the fields of the domain's list, and signed.
//!
//! Promise: at most [`DOMAINS_MAX`] domains are examined, each with a bounded number of questions, of which
//! [`PARALLEL_MAX`] are asked at a time; after a time limit the others count as unanswered.
//!
//! Failure: what gets no answer could not be checked. It is never a fault.

mod kept_reports;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::Request;
use hyper::header::USER_AGENT;
use stentor_config::Config;
use stentor_control::doctor::{Finding as DoctorFinding, Severity as DoctorSeverity};
use stentor_core::sts::{LookupServices, fetch_until, fetched};
use stentor_http_client::{Destination, HttpClient, Url};
use stentor_identity::{
    Check, DomainIdentity, IdentityFinding, LookupAnswer, LookupQuestion, Lookups, ReceivedReports, Rendered, Source,
    examine_domain, examine_source,
};
use stentor_lists::{List, PostFields, own_fields};
use stentor_mail::address::Address;
use stentor_mail::dsn::format_date;
use stentor_mail::edited::{HeaderChanges, HeaderEdit, MissingFields};
use stentor_resolve::Resolver;
use stentor_tls_policy::sts::policy_host;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use self::kept_reports::KeptReports;

/// Maximum domains examined by one command.
pub const DOMAINS_MAX: usize = 200;
/// Maximum DNS questions at a time.
const PARALLEL_MAX: usize = 20;
/// Time limit of the doctor for all questions about one domain or address.
const EXAMINATION: Duration = Duration::from_mins(1);

/// What to examine.
#[derive(Debug, Default)]
pub struct MailExamination {
    /// Domains in From, as A-labels in lower case; empty: all in use.
    pub domains: Vec<String>,
    /// Source addresses; empty: those of `[sources]`, else the one that the system uses.
    pub addresses: Vec<IpAddr>,
    /// Zones of block lists.
    pub block_lists: Vec<String>,
    /// A message with CRLF line ends, as it would be handed in; `None`: one is made.
    pub message: Option<Vec<u8>>,
    /// Domains that do not sign yet: of the keys that the server makes none is in use.
    pub without_keys: Vec<String>,
    /// Milliseconds since 1970.
    pub now_ms: u64,
}

/// Examines all. Keys of `[[dkim]]` must have been read. Blocks while kept DMARC reports are read.
pub async fn examine(services: LookupServices<'_>, wanted: &MailExamination) -> Vec<DoctorFinding> {
    let config = &services.settings.config;
    let sources = sources(config, &wanted.addresses);
    let mut findings = Vec::new();
    if sources.is_empty() {
        let what = "no source address is known: reverse DNS, HELO and SPF could not be checked";
        findings.push(DoctorFinding { id: "unchecked".to_owned(), ..warning(what, "name the address with --address") });
    }
    for source in &sources {
        let judge = |lookups: &Lookups| examine_source(source, &wanted.block_lists, lookups);
        let found = examine_until_answered(services, Instant::now() + EXAMINATION, judge).await;
        add(&mut findings, found, &format!("{} (HELO {})", source.address, source.helo));
    }
    let public: Vec<Source> = sources.into_iter().filter(Source::is_public).collect();
    let named = wanted.message.as_deref().and_then(|message| Rendered::new(message, 0).author_domain());
    let domains = match (&*wanted.domains, named) {
        ([], Some(domain)) => vec![domain],
        ([], None) => domains(config),
        (domains, _) => domains.to_vec(),
    };
    if let Some(more) = domains.len().checked_sub(DOMAINS_MAX).filter(|more| *more > 0) {
        findings
            .push(warning(&format!("{more} more domains were not checked"), "name them: `stentor doctor mail DOMAIN`"));
    }
    let kept = KeptReports::read(config, wanted.now_ms / 1_000).unwrap_or_else(|why| {
        findings.push(DoctorFinding { id: "unchecked".to_owned(), ..warning(&why, "run it as the server's user") });
        KeptReports::default()
    });
    let is_unknown_here = |address: &str| is_unknown(config, address);
    for domain in domains.iter().take(DOMAINS_MAX) {
        let lists: Vec<&List> = lists_at(config, domain).collect();
        let mut return_paths: Vec<String> =
            lists.iter().map(|list| list.settings().bounces.domain().to_owned()).collect();
        return_paths.sort_unstable();
        return_paths.dedup();
        if return_paths.is_empty() {
            return_paths.push(domain.clone());
        }
        let list = lists.first().copied();
        let message = Rendered::new(&render_first_copy(config, domain, list, wanted), wanted.now_ms / 1000);
        let has_list = list.is_some();
        let reports = Some(kept.received(config, &is_unknown_here));
        let mail = DomainMail { domain, return_paths, has_list, message, without_keys: &wanted.without_keys, reports };
        add(&mut findings, examine_domain_mail(services, Instant::now() + EXAMINATION, &public, mail).await, domain);
    }
    findings
}

/// A post about to leave.
#[derive(Debug)]
pub struct OutgoingPost<'a> {
    /// `None`: mail of a sender.
    pub list: Option<&'a List>,
    /// The domain of the return path: the list's bounces, or the sender.
    pub return_path: &'a str,
    /// Header section with CRLF line ends.
    pub header: &'a [u8],
    /// Octets of the whole message.
    pub bytes: u64,
    /// The rules for those who send over 5,000 messages a day apply.
    pub is_bulk: bool,
    /// See [`MailExamination::without_keys`].
    pub without_keys: &'a [String],
    /// Milliseconds since 1970.
    pub now_ms: u64,
}

/// Why large receivers would refuse a post by their published rules; empty: they accept it as far as the DNS has
/// answered until then. Keys of `[[dkim]]` must have been read.
///
/// An author at a domain that we do not sign for is not examined: copies of a list have the author's own signature, or
/// the list's address in From.
pub async fn refusals(services: LookupServices<'_>, post: OutgoingPost<'_>, until: Instant) -> Vec<IdentityFinding> {
    let OutgoingPost { list, return_path, header, bytes, is_bulk, without_keys, now_ms } = post;
    let config = &services.settings.config;
    let (mut found, mut public) = (Vec::new(), Vec::new());
    for source in sources(config, &[]).into_iter().filter(Source::is_public) {
        found.extend(examine_until_answered(services, until, |lookups| examine_source(&source, &[], lookups)).await);
        public.push(source);
    }
    let message = [header, b"\r\n"].concat();
    let author = Rendered::new(&message, 0).author_domain();
    let is_ours = |domain: &String| list.is_none() || services.settings.dkim().of_author(domain).is_some();
    let domain = author.clone().filter(is_ours);
    let domain = domain.unwrap_or_else(|| list.map_or(return_path, |list| list.settings().address.domain()).to_owned());
    let wanted = MailExamination { message: Some(message), now_ms, ..MailExamination::default() };
    let message = Rendered::new(&render_first_copy(config, &domain, list, &wanted), now_ms / 1000).with_bytes(bytes);
    let return_paths = vec![return_path.to_owned()];
    let mail =
        DomainMail { domain: &domain, return_paths, has_list: list.is_some(), message, without_keys, reports: None };
    found.extend(examine_domain_mail(services, until, &public, mail).await);
    let is_of_another = author.is_some_and(|author| author != domain);
    found.retain(|one| one.check.causes_refusal(is_bulk) && !(is_of_another && one.check == Check::MessageFrom));
    found
}

/// What is examined of mail from a domain.
struct DomainMail<'a> {
    domain: &'a str,
    return_paths: Vec<String>,
    has_list: bool,
    message: Rendered,
    without_keys: &'a [String],
    reports: Option<ReceivedReports<'a>>,
}

async fn examine_domain_mail(
    services: LookupServices<'_>,
    until: Instant,
    sources: &[Source],
    mail: DomainMail<'_>,
) -> Vec<IdentityFinding> {
    let DomainMail { domain, return_paths, has_list, message, without_keys, reports } = mail;
    let mut signing = services.settings.dkim().signing(Some(domain), has_list.then_some(domain));
    // A domain that signs all mail besides says nothing about this one.
    signing.retain(|one| !one.config.every || one.config.covers(domain));
    let (rotating, fixed): (Vec<_>, Vec<_>) = signing.into_iter().partition(|one| one.config.rotation.is_some());
    let rotating = rotating.iter().map(|one| &one.config.domain).filter(|name| !without_keys.contains(name));
    let rotating: Vec<&str> = rotating.map(String::as_str).collect();
    let signers: Vec<_> = fixed.iter().flat_map(|one| one.signers.iter()).collect();
    let identity = DomainIdentity {
        domain,
        return_paths: &return_paths,
        sources,
        signers: &signers,
        rotating: &rotating,
        message: Some(&message),
        reports,
    };
    examine_until_answered(services, until, |lookups| examine_domain(&identity, lookups)).await
}

/// The message as its first copy leaves, without signatures.
fn render_first_copy(config: &Config, domain: &str, list: Option<&List>, wanted: &MailExamination) -> Vec<u8> {
    let to = list.map_or_else(|| format!("postmaster@{domain}"), |list| list.settings().address.to_string());
    let sample = || format!("From: <postmaster@{domain}>\r\nTo: <{to}>\r\nSubject: Test\r\n\r\nTest\r\n").into_bytes();
    let message = wanted.message.clone().unwrap_or_else(sample);
    let missing = MissingFields {
        date: format_date(wanted.now_ms),
        message_id: format!("<doctor.{:x}@{}>", wanted.now_ms, config.hostname),
    };
    let missing = config.listen.adds_missing_headers.then_some(missing);
    let own = |list: &List| own_fields(list.settings().commands.is_some());
    let post = list.map(|list| own(list).iter().map(|name| (*name).to_owned()).collect());
    let mut edit = HeaderEdit::new(0, HeaderChanges { missing, post });
    let edited = edit.push(message, true);
    let removed = edit.take_list_fields().replaced;
    let fields = PostFields { removed: &removed, author: None, message_id: edit.given_id() };
    let fields = list.map_or_else(Vec::new, |list| list.copy_fields(fields));
    [link_fields(config, domain, list), fields, edited].concat()
}

/// The unsubscribe link that each copy gets (`one_click`), with a token that names nobody.
fn link_fields(config: &Config, domain: &str, list: Option<&List>) -> Vec<u8> {
    let has_link = match list {
        Some(list) => config.lists.iter().any(|one| one.list.name() == list.name() && one.flow.copies.one_click),
        None => config.sending.senders.iter().any(|(sender, flow)| sender == domain && flow.copies.one_click),
    };
    let Some(base) = config.http.link_base.as_ref().filter(|_| has_link) else { return Vec::new() };
    let base = base.trim_end_matches('/');
    format!("List-Unsubscribe: <{base}/unsubscribe/doctor>\r\nList-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n")
        .into_bytes()
}

/// Lists with an address at the domain.
fn lists_at<'a>(config: &'a Config, domain: &'a str) -> impl Iterator<Item = &'a List> {
    let lists = config.lists.iter().map(|list| &*list.list);
    lists.filter(move |list| list.settings().address.domain() == domain)
}

/// The domains in use: those of lists and of `[[dkim]]`; without any, the host's.
fn domains(config: &Config) -> Vec<String> {
    let of_lists = config.lists.iter().map(|list| list.list.settings().address.domain().to_owned());
    let mut domains: Vec<String> = of_lists.chain(config.dkim.iter().map(|dkim| dkim.domain.clone())).collect();
    domains.sort_unstable();
    domains.dedup();
    if domains.is_empty() {
        domains.push(config.hostname.clone());
    }
    domains
}

/// The addresses that mail leaves from, with their HELO names.
fn sources(config: &Config, given: &[IpAddr]) -> Vec<Source> {
    let mut configured = Vec::new();
    for source in &config.sending.sources {
        let addresses = source.v4.map(IpAddr::V4).into_iter().chain(source.v6.map(IpAddr::V6));
        configured.extend(addresses.map(|address| Source { address, helo: source.ehlo_name.clone() }));
    }
    let with_helo = |address: IpAddr| {
        let known = configured.iter().find(|source| source.address == address);
        Source { address, helo: known.map_or(&config.hostname, |source| &source.helo).clone() }
    };
    match given {
        [] if configured.is_empty() => system_addresses().map(with_helo).collect(),
        [] => configured,
        given => given.iter().map(|address| with_helo(address.to_canonical())).collect(),
    }
}

/// The addresses from which the system would connect to a host on the Internet. Nothing is sent.
fn system_addresses() -> impl Iterator<Item = IpAddr> {
    let v4 = (Ipv4Addr::UNSPECIFIED.into(), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
    let v6 = (Ipv6Addr::UNSPECIFIED.into(), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)));
    [v4, v6].into_iter().filter_map(|(any, peer): (IpAddr, IpAddr)| {
        let socket = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
        socket.connect(SocketAddr::new(peer, 25)).ok()?;
        socket.local_addr().ok().map(|address| address.ip())
    })
}

/// Asks for what the checks need until they need no more.
async fn examine_until_answered(
    services: LookupServices<'_>,
    until: Instant,
    judge: impl Fn(&Lookups) -> Vec<IdentityFinding>,
) -> Vec<IdentityFinding> {
    let mut lookups = Lookups::default();
    loop {
        let found = judge(&lookups);
        let wanted = lookups.take_wanted();
        if wanted.is_empty() {
            return found;
        }
        for some in wanted.chunks(PARALLEL_MAX) {
            ask(services, some, &mut lookups, until).await;
        }
    }
}

/// Asks questions in parallel; those about web servers one after the other.
async fn ask(services: LookupServices<'_>, questions: &[LookupQuestion], lookups: &mut Lookups, until: Instant) {
    let late = || LookupAnswer::Failed("no answer in time".to_owned());
    let mut asked = JoinSet::new();
    for question in questions {
        match question {
            LookupQuestion::Policy(domain) => {
                lookups.add(question.clone(), policy(services, domain, until).await);
            }
            LookupQuestion::Page(url) => lookups.add(question.clone(), page(services, url, until).await),
            question => {
                let (resolver, question) = (services.resolver.clone(), question.clone());
                asked.spawn(async move {
                    let answer = timeout_at(until, dns(&resolver, &question)).await;
                    (question, answer)
                });
            }
        }
    }
    while let Some(answered) = asked.join_next().await {
        // Look-ups do not panic and are never aborted.
        if let Ok((question, answer)) = answered {
            lookups.add(question, answer.unwrap_or_else(|_| late()));
        }
    }
}

async fn dns(resolver: &Resolver, question: &LookupQuestion) -> LookupAnswer {
    let answer = match question {
        LookupQuestion::Texts(name) => resolver.texts(name).await.map(LookupAnswer::Texts),
        LookupQuestion::Addresses(name) => resolver.addresses_of(name).await.map(LookupAnswer::Addresses),
        LookupQuestion::Names(address) => resolver.names_of(*address).await.map(LookupAnswer::Names),
        LookupQuestion::Mx(domain) => {
            let records = resolver.mx_of(domain).await;
            records.map(|records| LookupAnswer::Mx(records.into_iter().map(|(_, host)| host).collect()))
        }
        LookupQuestion::Policy(_) | LookupQuestion::Page(_) => Err("it is not a question to the DNS".to_owned()),
    };
    answer.unwrap_or_else(LookupAnswer::Failed)
}

/// Whether an address at a domain of this server does not exist.
fn is_unknown(config: &Config, address: &str) -> bool {
    let rules = &config.rules;
    address.parse::<Address>().is_ok_and(|address| rules.is_ours(&address) && rules.is_refused(&address))
}

/// The MTA-STS policy of a domain. A name server that fails is no fault of the policy.
async fn policy(services: LookupServices<'_>, domain: &str, until: Instant) -> LookupAnswer {
    if let Err(why) = services.resolver.addresses_of(&policy_host(domain)).await {
        return LookupAnswer::Failed(why);
    }
    let policy = fetched(services, domain, fetch_until().min(until)).await;
    LookupAnswer::Policy(policy.map_err(|failure| failure.why))
}

/// The status with which a web server answers a GET: unsubscribe links change nothing then (RFC 8058 section 3.2).
async fn page(services: LookupServices<'_>, url: &str, until: Instant) -> LookupAnswer {
    let url = match Url::parse(url) {
        Ok(url) => url,
        Err(why) => return LookupAnswer::Page(Err(why)),
    };
    match services.resolver.addresses_of(&url.host).await {
        Ok(addresses) => LookupAnswer::Page(status(services, &url, &addresses, fetch_until().min(until)).await),
        Err(why) => LookupAnswer::Failed(why),
    }
}

async fn status(services: LookupServices<'_>, url: &Url, addresses: &[IpAddr], until: Instant) -> Result<u16, String> {
    let destination = Destination {
        host: &url.host,
        port: url.port,
        addresses: Some(addresses),
        allows_private: services.settings.config.protection.sts_allows_private,
        is_tls: url.is_tls,
    };
    let client = HttpClient::new(&services.settings.roots()).map_err(|error| error.to_string())?;
    let request = Request::get(&url.uri).header(USER_AGENT, "stentor").body(Empty::<Bytes>::new());
    let request = request.map_err(|error| error.to_string())?;
    let answer = client.send(&destination, request, until).await.map_err(|error| error.to_string())?;
    Ok(answer.status.as_u16())
}

/// Adds findings, or that there are none.
fn add(findings: &mut Vec<DoctorFinding>, found: Vec<IdentityFinding>, subject: &str) {
    if found.is_empty() {
        findings.push(DoctorFinding::new(DoctorSeverity::Fine, format!("{subject}: nothing to correct"), ""));
    }
    findings.extend(found.into_iter().map(|IdentityFinding { check, subject, what, next }| {
        let is_named = what.contains(&*subject);
        let what = if is_named { what } else { format!("{subject}: {what}") };
        DoctorFinding { id: check.key().to_owned(), subject, ..DoctorFinding::new(check.severity().into(), what, next) }
    }));
}

fn warning(what: &str, next: &str) -> DoctorFinding {
    DoctorFinding::new(DoctorSeverity::Warning, what, next)
}
