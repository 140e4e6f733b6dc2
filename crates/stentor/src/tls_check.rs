//! `stentor tls check DOMAIN`: what would happen to mail for a domain now, step by step: its route and TLS
//! requirements, and for each host the connection, STARTTLS, the handshake, the certificate, what it proves, and the
//! verdict.
//!
//! It reads the configuration and the MTA-STS policies that the server keeps, and queries DNS and hosts itself; no
//! server needs to run. No mail is sent: each session ends with QUIT, after the login if the host is in
//! `[smart_hosts]`. For a local domain it reports what others find ([`stentor_admin::published`]).

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use stentor_admin::published;
use stentor_config::Config;
use stentor_control::format::span;
use stentor_core::Settings;
use stentor_core::clock::Clock;
use stentor_core::route::Route;
use stentor_core::sts::LookupServices;
use stentor_core::tls_seen::CertificateSummary;
use stentor_delivery::check::{self, DeliveryProspect, HostCheck, LoginCheck, LoginResult, Mail};
use stentor_delivery::{LookupContext, dane_of, has_mx_hosts, look_up};
use stentor_mail::address::{Address, normalise_domain};
use stentor_oauth::Tokens;
use stentor_queue::site::{Resolution, SitePlan, Target};
use stentor_records::escape::printable;
use stentor_resolve::{DaneResult, Resolver};
use stentor_tls::day;
use stentor_tls_policy::dane::DaneDecision;
use stentor_tls_policy::sts::CachedPolicy;
use stentor_tls_policy::{PostureQuery, Wish};

use crate::asking::{fail, load, usage, wrong};
use crate::output::{done, print};
use crate::state_files::kept_policies;

/// Timeout for the greeting; shorter than a delivery's, since a user is waiting.
const GREETING_MS_MAX: u64 = 30_000;
/// Exit code: mail would be sent in clear.
const IN_CLEAR: u8 = 3;
/// Exit codes as of `explain` (sysexits): mail would be returned, or wait.
const RETURNED: u8 = 69;
const WAITS: u8 = 75;
/// Maximum number of hosts checked, in the order they are tried.
const HOSTS_MAX: usize = 32;
/// Maximum characters of a line, most of it text from others.
const SHOWN_CHARS_MAX: usize = 500;

#[derive(Args)]
#[command(after_long_help = "Exit codes: 0 mail goes encrypted, 3 in clear, 75 it waits, 69 it is returned, 2 wrong \
        arguments, 1 any other failure. The first host that accepts mail decides.")]
pub(crate) struct Options {
    /// The recipients' domain, or an address in it.
    domain: String,
    /// Test for a message with REQUIRETLS.
    #[arg(long)]
    require_tls: bool,
    /// Test for a post to this list.
    #[arg(long, value_name = "NAME")]
    list: Option<String>,
    /// Test for a message from this envelope sender; `<>` for none [default: the list's].
    #[arg(long, value_name = "ADDRESS")]
    from: Option<String>,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
    /// The configuration [default: `$STENTOR_CONFIG`, else /etc/stentor/stentor.toml].
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let named = options.domain.rsplit_once('@').map_or(&*options.domain, |(_, domain)| domain);
    let domain = match normalise_domain(named) {
        Ok(domain) => domain,
        Err(error) => return usage(&format!("{:?} is not a valid domain: {error}", options.domain)),
    };
    let mut config = match load(options.config.as_deref()) {
        Ok(config) => config,
        Err(code) => return code,
    };
    let greeting_ms = &mut config.delivery.greeting_timeout_ms;
    *greeting_ms = GREETING_MS_MAX.min(*greeting_ms);
    let sender = match sender(options, &config) {
        Ok(sender) => sender,
        Err(why) => return usage(&why),
    };
    let mail = Mail { domain: &domain, list: options.list.as_deref(), sender: &sender };
    let wish = Wish { require_tls: options.require_tls, tls_required_no: false };
    let settings = Settings::new(config, None);
    if let Err(diagnostic) = settings.read_roots() {
        return wrong(&[*diagnostic]);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let looked = runtime.map_err(|error| error.to_string()).and_then(|runtime| {
        runtime.block_on(async {
            let resolver = Resolver::new(settings.resolver(&[])).map_err(|error| error.to_string())?;
            let (policies, unread) = kept_policies(&settings.config.data_dir);
            let clock = Clock::start();
            let services = LookupServices { resolver: &resolver, settings: &settings, clock: &clock };
            let context = LookupContext { services, policies: Some(&policies) };
            let mut report = look(&context, mail, wish).await;
            let unread = unread.filter(|_| matches!(report.found, TlsOutcome::Hosts { .. }));
            report.published.extend(unread.map(|why| {
                format!("MTA-STS      cannot read all policies that the server has cached ({why}); one may apply here")
            }));
            Ok(report)
        })
    });
    let report = match looked {
        Ok(report) => report,
        Err(why) => return fail(&why),
    };
    let text = if options.json { format!("{:#}\n", report.as_json()) } else { report.as_text() };
    match report.code() {
        0 => done(print(&text)),
        code => {
            let _ = print(&text);
            ExitCode::from(code)
        }
    }
}

/// The envelope sender; a named list must exist.
fn sender(options: &Options, config: &Config) -> Result<String, String> {
    let list = options.list.as_deref().map(|name| {
        let list = config.lists.iter().find(|list| **list.list.name() == *name);
        list.ok_or_else(|| format!("there is no list {name:?}"))
    });
    let list = list.transpose()?;
    match options.from.as_deref() {
        Some("" | "<>") => Ok(String::new()),
        Some(text) => match Address::parse(text.as_bytes(), true) {
            Ok(address) => Ok(address.as_str().to_owned()),
            Err(error) => Err(format!("{text:?} is not a valid address: {error}")),
        },
        None => Ok(list.map_or_else(String::new, |list| list.list.settings().bounces.as_str().to_owned())),
    }
}

/// All findings.
struct Report {
    domain: String,
    /// The required TLS, and the rules that require it.
    demanded: String,
    /// Lines about the domain's published TLS policies.
    published: Vec<String>,
    found: TlsOutcome,
}

enum TlsOutcome {
    Hosts {
        site: String,
        hosts: Vec<(Target, HostCheck)>,
        more: usize,
        /// DANE's result for the hosts; empty if no answers are trusted.
        dane: Vec<DaneResult>,
    },
    /// The domain is local.
    Ours,
    Returned(String),
    Waits(String),
}

async fn look(context: &LookupContext<'_>, mail: Mail<'_>, wish: Wish) -> Report {
    let domain = mail.domain;
    if context.services.settings.policy.is_local_domain(domain) {
        let published = published::published(context.services, domain).await;
        return Report { domain: domain.to_owned(), demanded: String::new(), published, found: TlsOutcome::Ours };
    }
    let name = Route { wish, hop: None }.entry(domain);
    let resolution = look_up(context, &name).await;
    let settings = context.services.settings;
    let found = match resolution {
        Resolution::Permanent { dsn, text } => TlsOutcome::Returned(format!("{dsn} {text}")),
        Resolution::Temporary { dsn, text, .. } => TlsOutcome::Waits(format!("{dsn} {text}")),
        Resolution::Site(plan) => {
            let demanded = demanded(settings, &plan, wish, mail);
            let by_mx = has_mx_hosts(settings, &name).await;
            let published = published(context, domain, by_mx).await;
            let dane = if context.services.resolver.validates() { dane_of(context, &name).await } else { Vec::new() };
            let found = hosts(context, plan, dane, mail).await;
            return Report { domain: domain.to_owned(), demanded, published, found };
        }
    };
    Report { domain: domain.to_owned(), demanded: String::new(), published: Vec::new(), found }
}

/// Lines about the domain's published TLS policies, and whether DANE is unavailable here.
async fn published(context: &LookupContext<'_>, domain: &str, by_mx: bool) -> Vec<String> {
    let mut lines = vec![format!("MTA-STS      {}", sts(context, domain, by_mx).await)];
    if !context.services.resolver.validates() {
        lines.push("DANE         not used: no validating name server on loopback is configured".to_owned());
    }
    lines
}

async fn sts(context: &LookupContext<'_>, domain: &str, by_mx: bool) -> String {
    if !by_mx {
        return "does not apply: the hosts come from this configuration, not from MX records".to_owned();
    }
    let (text, fetched) = published::sts(context.services, domain).await;
    let now = context.services.clock.now();
    let kept = context.policies.filter(|policies| policies.live(domain, now).is_some());
    match kept.and_then(|policies| policies.about(domain).0) {
        // A kept policy applies whatever is published by now (RFC 8461 3.3).
        Some(CachedPolicy { id, policy, fetched_ms }) if fetched.is_none() => format!(
            "policy {id}: {}, for {}, cached, fetched {} ago; refresh failed: {text}",
            policy.mode.name(),
            policy.mx.join(", "),
            span(now.saturating_sub(fetched_ms)),
        ),
        _ => text,
    }
}

fn demanded(settings: &Settings, plan: &SitePlan, wish: Wish, mail: Mail<'_>) -> String {
    let hosts: Vec<&str> = plan.targets.iter().map(|target| target.host.trim_end_matches('.')).collect();
    let Mail { domain, list, sender } = mail;
    let question = PostureQuery { domain, hosts: &hosts, list, sender };
    settings.config.protection.policies.held(&question).wished(wish).to_string()
}

/// Checks the hosts one by one, in the order they are tried, with a delivery's timeout.
async fn hosts(context: &LookupContext<'_>, plan: SitePlan, dane: Vec<DaneResult>, mail: Mail<'_>) -> TlsOutcome {
    let more = plan.targets.len().saturating_sub(HOSTS_MAX);
    let (mut hosts, tokens) = (Vec::new(), Tokens::brief());
    for target in plan.targets.into_iter().take(HOSTS_MAX) {
        let checked = check::host(context.services, &tokens, &target, mail).await;
        hosts.push((target, checked));
    }
    TlsOutcome::Hosts { site: plan.key.to_string(), hosts, more, dane }
}

fn verdict(goes: &DeliveryProspect) -> (&'static str, &str) {
    match goes {
        DeliveryProspect::Proven => ("mail goes encrypted, and the host is verified", ""),
        DeliveryProspect::Encrypted(why) => ("mail goes encrypted", why),
        DeliveryProspect::Clear(why) => ("mail goes in clear", why),
        DeliveryProspect::Not(why) => ("no mail can be sent there now", why),
        DeliveryProspect::Unfit(_, why) => ("no mail with REQUIRETLS can be sent there", why),
    }
}

impl Report {
    /// The result of the first host that accepts mail.
    fn first(&self) -> Option<&DeliveryProspect> {
        let TlsOutcome::Hosts { hosts, .. } = &self.found else { return None };
        hosts
            .iter()
            .map(|(_, check)| &check.goes)
            .find(|goes| !matches!(goes, DeliveryProspect::Not(_) | DeliveryProspect::Unfit(..)))
    }

    /// The text with which mail is returned at once because no host supports REQUIRETLS: that of the last host.
    fn unfit(&self) -> Option<String> {
        let TlsOutcome::Hosts { hosts, more: 0, .. } = &self.found else { return None };
        let unfit = |goes: &DeliveryProspect| {
            if let DeliveryProspect::Unfit(dsn, why) = goes { Some(format!("{dsn} {why}")) } else { None }
        };
        let all: Option<Vec<String>> = hosts.iter().map(|(_, check)| unfit(&check.goes)).collect();
        all?.pop()
    }

    fn code(&self) -> u8 {
        match (&self.found, self.first()) {
            (TlsOutcome::Returned(_), _) => RETURNED,
            (TlsOutcome::Hosts { .. }, None) if self.unfit().is_some() => RETURNED,
            (TlsOutcome::Waits(_), _) | (TlsOutcome::Hosts { .. }, None) => WAITS,
            (_, Some(DeliveryProspect::Clear(_))) => IN_CLEAR,
            (TlsOutcome::Ours, _) | (_, Some(_)) => 0,
        }
    }

    fn words(&self) -> String {
        match (&self.found, self.first()) {
            (TlsOutcome::Ours, _) => "this domain is local: its mail stays here; other servers find".to_owned(),
            (TlsOutcome::Returned(why), _) => format!("mail is returned: {why}"),
            (TlsOutcome::Waits(why), _) => format!("mail waits: {why}"),
            (TlsOutcome::Hosts { .. }, None) => match self.unfit() {
                Some(why) => format!("mail with REQUIRETLS is returned: {why}"),
                None => "mail waits: no host accepts it now".to_owned(),
            },
            (_, Some(goes)) => verdict(goes).0.to_owned(),
        }
    }

    fn as_text(&self) -> String {
        let mut out = String::new();
        let mut say = |indent: &str, text: &str| {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{indent}{}", printable(text, SHOWN_CHARS_MAX));
        };
        say("", &format!("{}: {}", self.domain, self.words()));
        if !self.demanded.is_empty() {
            say("  ", &format!("required     {}", self.demanded));
        }
        for line in &self.published {
            say("  ", line);
        }
        if let TlsOutcome::Hosts { site, hosts, more, dane } = &self.found {
            say("  ", &format!("site         {site}"));
            for (target, check) in hosts {
                say("", &format!("{} [{}], preference {}", target.host, target.addr, target.preference));
                for line in tlsa(target, dane) {
                    say("  ", &line);
                }
                for line in steps(target, check) {
                    say("  ", &line);
                }
            }
            if *more > 0 {
                say("", &format!("... and {more} more hosts, not tested"));
            }
        }
        out
    }

    fn as_json(&self) -> Value {
        let mut all = json!({
            "domain": self.domain, "verdict": self.words(), "exit_code": self.code(), "demanded": self.demanded,
            "published": self.published,
        });
        if let TlsOutcome::Hosts { site, hosts, dane, .. } = &self.found {
            all["site"] = site.as_str().into();
            all["hosts"] = hosts.iter().map(|(target, check)| host_json(target, check, dane)).collect();
        }
        all
    }
}

/// The host's DANE records, or why DANE does not apply.
fn tlsa(target: &Target, dane: &[DaneResult]) -> Vec<String> {
    let host = target.host.trim_end_matches('.');
    let is_it = |decided: &&DaneResult| decided.host == host && decided.port == target.addr.port();
    match target.posture.as_deref().and_then(|host| host.published.dane.as_ref()) {
        Some(DaneDecision::Match(proof)) => {
            proof.records.iter().map(|record| format!("TLSA record  {record}")).collect()
        }
        Some(DaneDecision::Refuse(why)) => vec![format!("TLSA         {why}")],
        Some(DaneDecision::Encrypt { base_domain, unusable }) => {
            vec![format!(
                "TLSA         none of the {unusable} of {base_domain} is usable: TLS is required, but the host is not \
                 verified"
            )]
        }
        _ => match dane.iter().find(is_it).map(|decided| &decided.decision) {
            Some(DaneDecision::NotApplicable(why)) => vec![format!("DANE         does not apply: {why}")],
            Some(_) => vec!["DANE         not required here; TLSA records are published".to_owned()],
            None => Vec::new(),
        },
    }
}

/// The events, in order.
fn steps(target: &Target, check: &HostCheck) -> Vec<String> {
    let mut steps = Vec::new();
    if check.is_connected {
        steps.push("connected".to_owned());
    }
    if target.addr.is_implicit_tls() {
        steps.push("TLS          from the first octet".to_owned());
    }
    match check.offers_starttls {
        Some(true) => steps.push("STARTTLS     offered".to_owned()),
        Some(false) => steps.push("STARTTLS     not offered".to_owned()),
        None => {}
    }
    if let Some(facts) = &check.facts {
        steps.push(format!("handshake    {} {}, key exchange {}", facts.version, facts.cipher, facts.group));
        if let Some(shown) = facts.peer.as_ref().map(CertificateSummary::of) {
            let names = shown.names.join(", ");
            let from = day(facts.peer.as_ref().map_or(0, |peer| peer.not_before));
            steps.push(format!("certificate  {names} by {} from {from} until {}", shown.issuer, shown.ends));
            steps.push(format!("SHA-256      {}", shown.sha256));
            steps.push(format!("as TLSA      3 1 1 {}", shown.key_sha256));
        }
        steps.push(format!("proof        {}", facts.proven));
        if !matches!(check.goes, DeliveryProspect::Not(_)) {
            steps.push(format!("REQUIRETLS   {}", if check.offers_require_tls { "offered" } else { "not offered" }));
        }
    }
    steps.extend(check.login.as_ref().map(|login| format!("login        {}", login_words(login))));
    let (words, why) = verdict(&check.goes);
    steps.push(if why.is_empty() { format!("verdict      {words}") } else { format!("verdict      {words}: {why}") });
    steps
}

/// The login's mechanism, user and result.
fn login_words(login: &LoginCheck) -> String {
    let mechanism = login.mechanism.map_or_else(String::new, |mechanism| format!("{mechanism} "));
    let end = match &login.end {
        LoginResult::NotTried => "not tried: the session ended earlier",
        LoginResult::Accepted => "accepted",
        LoginResult::Refused(why) => why,
    };
    format!("{mechanism}as {}: {end}", login.user)
}

fn host_json(target: &Target, check: &HostCheck, dane: &[DaneResult]) -> Value {
    let (words, why) = verdict(&check.goes);
    let goes = match check.goes {
        DeliveryProspect::Proven => "proven",
        DeliveryProspect::Encrypted(_) => "encrypted",
        DeliveryProspect::Clear(_) => "clear",
        DeliveryProspect::Not(_) => "not",
        DeliveryProspect::Unfit(..) => "unfit",
    };
    let session = check.facts.as_ref().map(|facts| {
        let mut certificate = json!(facts.peer.as_ref().map(CertificateSummary::of));
        if let Some(peer) = &facts.peer {
            certificate["begins"] = day(peer.not_before).into();
        }
        json!({
            "version": facts.version, "cipher": facts.cipher, "group": facts.group, "proven": facts.proven.to_string(),
            "how": facts.proven.key(), "certificate": certificate,
        })
    });
    let login = check.login.as_ref().map(|login| {
        let (end, why) = match &login.end {
            LoginResult::NotTried => ("not tried", None),
            LoginResult::Accepted => ("accepted", None),
            LoginResult::Refused(why) => ("refused", Some(why)),
        };
        json!({ "user": login.user, "mechanism": login.mechanism, "end": end, "why": why })
    });
    json!({
        "tlsa": tlsa(target, dane), "host": *target.host, "address": target.addr.to_string(), "preference": target.preference,
        "connected": check.is_connected, "implicit_tls": target.addr.is_implicit_tls(),
        "starttls": check.offers_starttls, "tls": session,
        "requiretls": check.offers_require_tls, "login": login, "goes": goes, "verdict": words, "why": why,
    })
}
