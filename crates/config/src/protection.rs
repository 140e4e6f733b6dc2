//! `[delivery] tls`, `[[tls_policy]]` and `[smart_hosts]`: how outgoing mail is protected, and the logins at smart
//! hosts.

use std::ops::Range;
use std::sync::Arc;

use stentor_mail::SUBMISSIONS_PORT;
use stentor_oauth::{Credential, SecretSource, SmartHost};
use stentor_policy::{HostSpec, RouteHost};
use stentor_sasl::{Mechanism, Mechanisms};
use stentor_tls_policy::{Fingerprint, HostPattern, PeerName, Policies, Requirement, RuleError, RuleInput, Strength};

use super::oauth;
use super::raw::{Entry, Section};
use super::tls::CaFile;

/// Requirements that can hold for all mail; the others contain names, so they belong in a `[[tls_policy]]`.
const DEFAULTS: [&str; 7] = ["none", "may", "encrypt", "verify", "dane", "dane-only", "sts"];
const DEFAULT: &str = "sts";

/// TLS requirements and smart hosts for outgoing mail.
#[derive(Debug, Clone)]
pub struct ProtectionConfig {
    pub policies: Arc<Policies>,
    /// CAs that replace the system's, and the position of the key.
    pub ca_file: Option<CaFile>,
    pub handshake_timeout_ms: u64,
    /// HTTPS port for MTA-STS policies: 443 except in labs.
    pub sts_port: u16,
    /// Policy hosts may be on this machine or in a private network.
    pub sts_allows_private: bool,
    pub smart_hosts: Vec<SmartHost>,
}

impl ProtectionConfig {
    /// Login settings for a host, if there are any.
    pub fn smart_host(&self, host: &str, port: u16) -> Option<&SmartHost> {
        SmartHost::find(&self.smart_hosts, host, port)
    }
}

pub(super) fn read(
    top: &Section<'_>,
    delivery: &Section<'_>,
    smtp_port: u16,
    is_list: &dyn Fn(&str) -> bool,
) -> ProtectionConfig {
    let default = delivery.choice("tls", DEFAULT, &DEFAULTS.map(|word| (word, word)));
    let ca_file = CaFile::read(delivery, "tls_ca_file");
    let handshake_timeout_ms = delivery.seconds("tls_timeout_s", 60, 0.1..=600.0);
    let sts_port = delivery.number("sts_port", 443, 1..=65_535) as u16;
    let sts_allows_private = delivery.flag("sts_private_allowed", false);
    // These names need no further data.
    let default = Requirement::new(default, Vec::new(), Vec::new()).unwrap_or(Requirement::May);
    let sections = top.tables("tls_policy");
    let spans: Vec<_> = sections.iter().map(|section| section.span.clone()).collect();
    let rules: Vec<_> = sections.into_iter().map(|section| rule(section, is_list)).collect();
    let are_read = rules.iter().all(Option::is_some);
    warn_of_none(delivery, &default, &spans, &rules);
    let policies = Policies::with_rules(default.clone(), rules.into_iter().flatten());
    let policies = policies.unwrap_or_else(|errors| {
        // Otherwise the positions do not match the sections.
        for error in errors.iter().filter(|_| are_read) {
            let (RuleError::Keys { rule } | RuleError::Value { rule, .. } | RuleError::Twice { rule, .. }) = error;
            if let Some(span) = spans.get(*rule) {
                top.context.error(span.clone(), error.to_string());
            }
        }
        Policies::new(default)
    });
    let hosts = top.section("smart_hosts");
    let smart_hosts = hosts.entries().iter().filter_map(|entry| smart_host(&hosts, entry, smtp_port)).collect();
    let policies = Arc::new(policies);
    ProtectionConfig { policies, ca_file, handshake_timeout_ms, sts_port, sts_allows_private, smart_hosts }
}

/// Warns if mail is never encrypted although a list or sender may require it: that mail would wait, then bounce.
fn warn_of_none(delivery: &Section<'_>, default: &Requirement, spans: &[Range<usize>], rules: &[Option<RuleInput>]) {
    let is_by_mail = |rule: &RuleInput| rule.list.is_some() || rule.sender.is_some();
    let Some(demand) = rules.iter().flatten().find(|rule| is_by_mail(rule)) else { return };
    let (key, value) = match (&demand.list, &demand.sender) {
        (Some(list), _) => ("list", list.as_str()),
        (_, sender) => ("sender", sender.as_deref().unwrap_or_default()),
    };
    let what = format!(
        "TLS is never used there except with `smtps:` hosts: mail for which {key} = {value:?} requires {} waits until \
         it expires, even if the host offers TLS; write \"may\" to encrypt it",
        demand.requirement
    );
    if *default == Requirement::None {
        delivery.context.warn(delivery.span_of("tls"), what.clone());
    }
    for (span, rule) in spans.iter().zip(rules) {
        if rule.as_ref().is_some_and(|rule| rule.requirement == Requirement::None) {
            delivery.context.warn(span.clone(), what.clone());
        }
    }
}

fn rule(section: Section<'_>, is_list: &dyn Fn(&str) -> bool) -> Option<RuleInput> {
    let context = section.context;
    let text = |key| section.text(key).map(|text| text.value.to_owned());
    let (domain, site, list, sender) = (text("domain"), text("site"), text("list"), text("sender"));
    if let Some(text) = section.text("list").filter(|text| !is_list(text.value)) {
        context.error(text.span, format!("there is no list {:?}", text.value));
    }
    let word = section.required("require", "verify");
    let mut is_good = word.is_some();
    let mut names = Vec::new();
    for text in section.texts("names").unwrap_or_default() {
        match PeerName::parse(text.value) {
            Ok(PeerName::Pattern(HostPattern::Exact(name))) if !name.contains('.') => {
                is_good = false;
                let message = format!(
                    "{name:?} is neither hostname, nexthop or dot-nexthop, nor a full host name: it has no dot"
                );
                context.error(text.span, message);
            }
            Ok(name) => names.push(name),
            Err(error) => {
                is_good = false;
                context.error(text.span, format!("{:?} is not a valid host name or pattern: {error}", text.value));
            }
        }
    }
    let mut fingerprints = Vec::new();
    for text in section.texts("fingerprints").unwrap_or_default() {
        match Fingerprint::parse(text.value) {
            Ok(fingerprint) => fingerprints.push(fingerprint),
            Err(error) => {
                is_good = false;
                context.error(text.span, error.to_string());
            }
        }
    }
    section.finish();
    let word = word.filter(|_| is_good)?;
    match Requirement::new(word.value, names, fingerprints) {
        Ok(requirement) if requirement.strength() <= Strength::May && (list.is_some() || sender.is_some()) => {
            let message = format!(
                "{:?} has no effect for a list or sender: the stricter of this rule and the destination's rule applies",
                word.value
            );
            context.error(word.span, message);
            None
        }
        Ok(requirement) => Some(RuleInput { domain, site, list, sender, requirement }),
        Err(error) => {
            context.error(word.span, error.to_string());
            None
        }
    }
}

fn smart_host(hosts: &Section<'_>, entry: &Entry<'_>, smtp_port: u16) -> Option<SmartHost> {
    let section = hosts.of_entry(entry)?;
    let context = section.context;
    let host = match RouteHost::parse(&entry.key, smtp_port) {
        // The port may differ from the key's: `smtps:` uses 465.
        Ok(host) if RouteHost::tls_word(&entry.key).is_some() => {
            let named = RouteHost { implicit_tls: host.port == SUBMISSIONS_PORT, ..host };
            let message = format!("`smtps:` and `starttls:` belong in the route; here write [smart_hosts.\"{named}\"]");
            context.error(entry.key_span.clone(), message);
            None
        }
        Ok(RouteHost { host: HostSpec::Name(name) | HostSpec::Mx(name), port, .. }) => Some((name.into_string(), port)),
        Ok(RouteHost { host: HostSpec::Addr(ip), port, .. }) => Some((ip.to_string(), port)),
        Ok(_) => {
            context.error(entry.key_span.clone(), "a Unix socket cannot have a login");
            None
        }
        Err(error) => {
            context.error(entry.key_span.clone(), error.to_string());
            None
        }
    };
    let user = section.required("user", "relay-user").map(|text| text.value.to_owned());
    let credential = credential(&section);
    let is_oauth = section.has("oauth");
    let is_token = section.choice("kind", is_oauth, &[("password", false), ("token", true)]);
    if is_oauth && !is_token {
        context.error(
            section.span_of("kind"),
            format!("`oauth`{} needs kind = \"token\": leave `kind` out", section.place()),
        );
    }
    let mut named = Mechanisms::NONE;
    for text in section.texts("mechanisms").unwrap_or_default() {
        match text.value.parse::<Mechanism>() {
            Ok(mechanism) => named = named.with(mechanism),
            Err(_) => context.error(
                text.span,
                format!("{:?} is not a supported mechanism; supported: {:#}", text.value, Mechanisms::all()),
            ),
        }
    }
    if is_oauth && !named.is_empty() && !named.iter().any(Mechanism::takes_token) {
        let message = "`oauth` needs OAUTHBEARER or XOAUTH2: add one, or leave `mechanisms` out";
        context.error(section.span_of("mechanisms"), message);
    }
    let mechanisms = if named.is_empty() { Mechanisms::all() } else { named };
    let unproven_allowed = section.flag("unproven_allowed", false);
    section.finish();
    let (host, port) = host?;
    Some(SmartHost { host, port, user: user?, credential: credential?, is_token, mechanisms, unproven_allowed })
}

fn credential(section: &Section<'_>) -> Option<Credential> {
    let file = section
        .text("secret_file")
        .map(|text| Credential::Secret(SecretSource::File(section.context.path(text.value))));
    let command = section.texts("secret_command").map(|texts| {
        let words: Vec<String> = texts.iter().map(|text| text.value.to_owned()).collect();
        if words.first().is_none_or(|program| !program.starts_with('/')) {
            let message = "`secret_command` must be [\"/path/of/program\", \"argument\"]; it is run without a shell";
            section.context.error(section.span_of("secret_command"), message);
        }
        Credential::Secret(SecretSource::Command(words))
    });
    let oauth = section.section("oauth");
    let grant = section.has("oauth").then(|| oauth::read(&oauth).map(|grant| Credential::Oauth(Arc::new(grant))));
    oauth.finish();
    match (file, command, grant) {
        (Some(source), None, None) | (None, Some(source), None) => Some(source),
        (None, None, Some(source)) => source,
        _ => {
            let message =
                format!("exactly one of `secret_file`, `secret_command` and `oauth` is needed{}", section.place());
            section.context.error(section.span.clone(), message);
            None
        }
    }
}
