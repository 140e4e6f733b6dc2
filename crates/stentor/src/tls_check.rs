//! `stentor tls check DOMAIN`: what would happen to mail for a domain now, step by step: where it goes, what is demanded, and of each
//! host the connection, STARTTLS, the handshake, the certificate, what it proves, and the verdict.
//!
//! It reads the configuration and asks DNS and hosts by itself: no server needs to run. Nothing is sent; each session ends with QUIT.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use stentor_engine::clock::Clock;
use stentor_engine::core::Settings;
use stentor_engine::core::sts::{Means, StsPolicies, fetch_until, fetched, record};
use stentor_engine::core::tls_seen::Shown;
use stentor_engine::delivery::check::{self, Goes, HostCheck};
use stentor_engine::delivery::{Asking, look_up};
use stentor_mail::address::normalise_domain;
use stentor_posture::dane::Decision;
use stentor_posture::sts::Record;
use stentor_posture::{Question, Wish};
use stentor_queue::book::at_hop;
use stentor_queue::site::{Resolution, SitePlan, Target};
use stentor_resolve::Resolver;
use stentor_stats::escape::printable;

use crate::asking::{fail, load, usage};
use crate::output::{done, print};

/// Mail would go in clear.
const IN_CLEAR: u8 = 3;
/// As `explain` has them (sysexits): it is returned, it waits.
const RETURNED: u8 = 69;
const WAITS: u8 = 75;
/// Hosts that are looked at, the first that are tried.
const HOSTS_MAX: usize = 32;
/// Letters of a line: much of it is others' words.
const SHOWN_CHARS_MAX: usize = 500;

#[derive(Args)]
#[command(
    after_long_help = "Exit codes: 0 mail goes encrypted, 3 in clear, 75 it waits, 69 it is returned, 2 wrong arguments, 1 any other failure. The first host that takes mail decides."
)]
pub(crate) struct Options {
    /// The recipients' domain.
    domain: String,
    /// Of a message with REQUIRETLS.
    #[arg(long)]
    require_tls: bool,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
    /// The configuration [default: `$STENTOR_CONFIG`, else /etc/stentor/stentor.toml].
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let domain = match normalise_domain(&options.domain) {
        Ok(domain) => domain,
        Err(error) => return usage(&format!("{:?} is no domain: {error}", options.domain)),
    };
    let config = match load(options.config.as_deref()) {
        Ok(config) => config,
        Err(code) => return code,
    };
    let wish = Wish { require_tls: options.require_tls, tls_required_no: false };
    let settings = Settings::new(config, None);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let looked = runtime.map_err(|error| error.to_string()).and_then(|runtime| {
        runtime.block_on(async {
            let resolver = Resolver::new(settings.resolver(&[])).map_err(|error| error.to_string())?;
            let (policies, clock) = (StsPolicies::default(), Clock::start());
            let means = Means { resolver: &resolver, settings: &settings, clock: &clock };
            let asking = Asking { means, policies: Some(&policies) };
            Ok(look(&asking, &domain, wish).await)
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

/// All that was found.
struct Report {
    domain: String,
    /// What is demanded, and by which rules.
    demanded: String,
    /// By the domain.
    published: Vec<String>,
    found: Found,
}

enum Found {
    Hosts { site: String, hosts: Vec<(Target, HostCheck)>, more: usize },
    Returned(String),
    Waits(String),
}

async fn look(asking: &Asking<'_>, domain: &str, wish: Wish) -> Report {
    let name = wish.hop(None).map_or_else(|| domain.to_owned(), |hop| at_hop(domain, &hop));
    let resolution = look_up(asking, &name).await;
    let settings = asking.means.settings;
    let found = match resolution {
        Resolution::Permanent { dsn, text } => Found::Returned(format!("{dsn} {text}")),
        Resolution::Temporary { dsn, text } => Found::Waits(format!("{dsn} {text}")),
        Resolution::Site(plan) => {
            let demanded = demanded(settings, domain, &plan, wish);
            let published = published(asking, domain).await;
            return Report { domain: domain.to_owned(), demanded, published, found: hosts(asking, plan).await };
        }
    };
    Report { domain: domain.to_owned(), demanded: String::new(), published: Vec::new(), found }
}

/// What the domain itself publishes about TLS, and whether DANE can be told from nothing here.
async fn published(asking: &Asking<'_>, domain: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let sts = match record(asking.means.resolver, domain).await {
        Err(why) => format!("the record cannot be looked up: {why}"),
        Ok(Record::Id(id)) => match fetched(asking.means, domain, fetch_until()).await {
            Ok(policy) => {
                let mx = policy.mx.join(", ");
                format!("policy {id}: {}, for {mx}, kept {} s", policy.mode.name(), policy.max_age_s)
            }
            Err(failure) => format!("policy {id} cannot be fetched: {}", failure.why),
        },
        Ok(_) => "none is published".to_owned(),
    };
    lines.push(format!("MTA-STS      {sts}"));
    if !asking.means.resolver.validates() {
        lines.push("DANE         not used: no validating name server on loopback is configured".to_owned());
    }
    lines
}

fn demanded(settings: &Settings, domain: &str, plan: &SitePlan, wish: Wish) -> String {
    let hosts: Vec<&str> = plan.targets.iter().map(|target| target.host.trim_end_matches('.')).collect();
    let question = Question { domain, hosts: &hosts, list: None, sender: "" };
    settings.config.protection.policies.find(&question).wished(wish).to_string()
}

/// One after the other, as they are tried; the clock is a delivery's.
async fn hosts(asking: &Asking<'_>, plan: SitePlan) -> Found {
    let more = plan.targets.len().saturating_sub(HOSTS_MAX);
    let mut hosts = Vec::new();
    for target in plan.targets.into_iter().take(HOSTS_MAX) {
        let checked = check::host(asking.means.settings, asking.means.clock, &target).await;
        hosts.push((target, checked));
    }
    Found::Hosts { site: plan.key.to_string(), hosts, more }
}

fn verdict(goes: &Goes) -> (&'static str, &str) {
    match goes {
        Goes::Proven => ("mail goes encrypted, and the host is proven", ""),
        Goes::Encrypted(why) => ("mail goes encrypted", why),
        Goes::Clear(why) => ("mail goes in clear", why),
        Goes::Not(why) => ("no mail goes there now", why),
        Goes::Unfit(_, why) => ("no mail with REQUIRETLS goes there", why),
    }
}

impl Report {
    /// The first host that takes mail.
    fn first(&self) -> Option<&Goes> {
        let Found::Hosts { hosts, .. } = &self.found else { return None };
        hosts.iter().map(|(_, check)| &check.goes).find(|goes| !matches!(goes, Goes::Not(_) | Goes::Unfit(..)))
    }

    /// With what the mail is returned at once where no host has what REQUIRETLS demands: the words of the host that is asked last.
    fn unfit(&self) -> Option<String> {
        let Found::Hosts { hosts, more: 0, .. } = &self.found else { return None };
        let unfit = |goes: &Goes| if let Goes::Unfit(dsn, why) = goes { Some(format!("{dsn} {why}")) } else { None };
        let all: Option<Vec<String>> = hosts.iter().map(|(_, check)| unfit(&check.goes)).collect();
        all?.pop()
    }

    fn code(&self) -> u8 {
        match (&self.found, self.first()) {
            (Found::Returned(_), _) => RETURNED,
            (Found::Hosts { .. }, None) if self.unfit().is_some() => RETURNED,
            (Found::Waits(_), _) | (Found::Hosts { .. }, None) => WAITS,
            (_, Some(Goes::Clear(_))) => IN_CLEAR,
            (_, Some(_)) => 0,
        }
    }

    fn words(&self) -> String {
        match (&self.found, self.first()) {
            (Found::Returned(why), _) => format!("mail is returned: {why}"),
            (Found::Waits(why), _) => format!("mail waits: {why}"),
            (Found::Hosts { .. }, None) => match self.unfit() {
                Some(why) => format!("mail with REQUIRETLS is returned: {why}"),
                None => "mail waits: no host takes it now".to_owned(),
            },
            (_, Some(goes)) => verdict(goes).0.to_owned(),
        }
    }

    fn as_text(&self) -> String {
        let mut out = String::new();
        let mut say = |indent: &str, text: &str| {
            // Writing into a string does not fail.
            let _ = writeln!(out, "{indent}{}", printable(text, SHOWN_CHARS_MAX));
        };
        say("", &format!("{}: {}", self.domain, self.words()));
        if !self.demanded.is_empty() {
            say("  ", &format!("demanded     {}", self.demanded));
        }
        for line in &self.published {
            say("  ", line);
        }
        if let Found::Hosts { site, hosts, more } = &self.found {
            say("  ", &format!("site         {site}"));
            for (target, check) in hosts {
                say("", &format!("{} [{}], preference {}", target.host, target.addr, target.preference));
                for line in tlsa(target) {
                    say("  ", &line);
                }
                for line in steps(check) {
                    say("  ", &line);
                }
            }
            if *more > 0 {
                say("", &format!("... and {more} more hosts, which are not looked at"));
            }
        }
        out
    }

    fn as_json(&self) -> Value {
        let mut all = json!({
            "domain": self.domain, "verdict": self.words(), "exit_code": self.code(), "demanded": self.demanded,
            "published": self.published,
        });
        if let Found::Hosts { site, hosts, .. } = &self.found {
            all["site"] = site.as_str().into();
            all["hosts"] = hosts.iter().map(|(target, check)| host_json(target, check)).collect();
        }
        all
    }
}

/// What DANE has for the host.
fn tlsa(target: &Target) -> Vec<String> {
    match target.posture.as_deref().and_then(|host| host.published.dane.as_ref()) {
        Some(Decision::Match(proof)) => proof.records.iter().map(|record| format!("TLSA record  {record}")).collect(),
        Some(Decision::Refuse(why)) => vec![format!("TLSA         {why}")],
        _ => Vec::new(),
    }
}

/// What happened, in its order.
fn steps(check: &HostCheck) -> Vec<String> {
    let mut steps = Vec::new();
    if check.is_connected {
        steps.push("connected".to_owned());
    }
    match check.offers_starttls {
        Some(true) => steps.push("STARTTLS     offered".to_owned()),
        Some(false) => steps.push("STARTTLS     not offered".to_owned()),
        None => {}
    }
    if let Some(facts) = &check.facts {
        steps.push(format!("handshake    {} {}, key exchange {}", facts.version, facts.cipher, facts.group));
        if let Some(shown) = facts.peer.as_ref().map(Shown::of) {
            let names = shown.names.join(", ");
            steps.push(format!("certificate  {names} by {} until {}", shown.issuer, shown.ends));
            steps.push(format!("SHA-256      {}", shown.sha256));
            steps.push(format!("as TLSA      3 1 1 {}", shown.key_sha256));
        }
        steps.push(format!("proof        {}", facts.proven));
        steps.push(format!("REQUIRETLS   {}", if check.offers_require_tls { "offered" } else { "not offered" }));
    }
    let (words, why) = verdict(&check.goes);
    steps.push(if why.is_empty() { format!("verdict      {words}") } else { format!("verdict      {words}: {why}") });
    steps
}

fn host_json(target: &Target, check: &HostCheck) -> Value {
    let (words, why) = verdict(&check.goes);
    let goes = match check.goes {
        Goes::Proven => "proven",
        Goes::Encrypted(_) => "encrypted",
        Goes::Clear(_) => "clear",
        Goes::Not(_) => "not",
        Goes::Unfit(..) => "unfit",
    };
    let session = check.facts.as_ref().map(|facts| {
        let certificate = facts.peer.as_ref().map(Shown::of);
        json!({
            "version": facts.version, "cipher": facts.cipher, "group": facts.group, "proven": facts.proven.to_string(),
            "how": facts.proven.key(), "certificate": certificate,
        })
    });
    json!({
        "tlsa": tlsa(target), "host": *target.host, "address": target.addr.to_string(), "preference": target.preference,
        "connected": check.is_connected, "starttls": check.offers_starttls, "tls": session,
        "requiretls": check.offers_require_tls, "goes": goes, "verdict": words, "why": why,
    })
}
