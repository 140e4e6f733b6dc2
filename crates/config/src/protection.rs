//! `[delivery] tls`, `[[tls_policy]]` and `[smart_hosts]`: how mail is protected on its way out, and as whom we log in
//! where a smart host wants that.

use std::path::PathBuf;
use std::sync::Arc;

use stentor_policy::{Host, RouteHost};
use stentor_posture::{Fingerprint, HostPattern, PeerName, Policies, Requirement, RuleError, RuleInput};

use super::raw::{Entry, Section};

/// Requirements that hold for all mail; the others name something, and so belong into a `[[tls_policy]]`.
const DEFAULTS: [&str; 7] = ["none", "may", "encrypt", "verify", "dane", "dane-only", "sts"];
const DEFAULT: &str = "sts";
/// Names of mechanisms that may be allowed for a smart host.
const MECHANISMS: [&str; 7] =
    ["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256", "OAUTHBEARER", "XOAUTH2", "PLAIN", "LOGIN", "CRAM-MD5"];

/// See the module's page.
#[derive(Debug, Clone)]
pub struct ProtectionConfig {
    pub policies: Arc<Policies>,
    /// CAs in place of the system's.
    pub ca_file: Option<PathBuf>,
    pub handshake_timeout_ms: u64,
    /// Where web servers have MTA-STS policies, 443 outside the lab.
    pub sts_port: u16,
    /// They may be on this machine or in a private network.
    pub sts_allows_private: bool,
    pub smart_hosts: Vec<SmartHost>,
}

/// `[smart_hosts."HOST:PORT"]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmartHost {
    /// As a route names it.
    pub host: String,
    pub port: u16,
    pub user: String,
    pub secret: SecretSource,
    /// It is a token: for OAUTHBEARER and XOAUTH2.
    pub is_token: bool,
    /// Names; empty: all.
    pub mechanisms: Vec<String>,
    /// The secret may go to a host that has not proven who it is.
    pub allow_unproven: bool,
}

/// Where a secret comes from, each time that it is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// The first line of a file.
    File(PathBuf),
    /// The first line that a command prints; program and arguments, without a shell.
    Command(Vec<String>),
}

impl ProtectionConfig {
    /// How to log in at a host, if at all.
    pub fn smart_host(&self, host: &str, port: u16) -> Option<&SmartHost> {
        self.smart_hosts.iter().find(|known| known.port == port && known.host == host)
    }
}

pub(super) fn read(
    top: &Section<'_>,
    delivery: &Section<'_>,
    smtp_port: u16,
    is_list: &dyn Fn(&str) -> bool,
) -> ProtectionConfig {
    let default = delivery.choice("tls", DEFAULT, &DEFAULTS.map(|word| (word, word)));
    let ca_file = delivery.text("tls_ca_file").map(|text| delivery.context.path(text.value));
    let handshake_timeout_ms = delivery.seconds("tls_timeout_s", 60, 0.1..=600.0);
    let sts_port = delivery.number("sts_port", 443, 1..=65_535) as u16;
    let sts_allows_private = delivery.flag("sts_private_allowed", false);
    // Those names ask for nothing more.
    let default = Requirement::new(default, Vec::new(), Vec::new()).unwrap_or(Requirement::May);
    let sections = top.tables("tls_policy");
    let spans: Vec<_> = sections.iter().map(|section| section.span.clone()).collect();
    let rules: Vec<_> = sections.into_iter().map(|section| rule(section, is_list)).collect();
    let are_read = rules.iter().all(Option::is_some);
    let policies = Policies::with_rules(default.clone(), rules.into_iter().flatten());
    let policies = policies.unwrap_or_else(|errors| {
        // Or their places are not those of the sections.
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
                    "{name:?} is none of hostname, nexthop and dot-nexthop, and no whole name of a host: it has no dot"
                );
                context.error(text.span, message);
            }
            Ok(name) => names.push(name),
            Err(error) => {
                is_good = false;
                context.error(text.span, format!("{:?} is not a name of hosts: {error}", text.value));
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
        Ok(RouteHost { host: Host::Name(name) | Host::Mx(name), port, .. }) => Some((name.into_string(), port)),
        Ok(RouteHost { host: Host::Addr(ip), port, .. }) => Some((ip.to_string(), port)),
        Ok(_) => {
            context.error(entry.key_span.clone(), "a Unix socket wants no login");
            None
        }
        Err(error) => {
            context.error(entry.key_span.clone(), error.to_string());
            None
        }
    };
    let user = section.required("user", "relay-user").map(|text| text.value.to_owned());
    let secret = secret(&section);
    let is_token = section.choice("kind", false, &[("password", false), ("token", true)]);
    let mut mechanisms = Vec::new();
    for text in section.texts("mechanisms").unwrap_or_default() {
        let name = text.value.to_ascii_uppercase();
        if MECHANISMS.contains(&name.as_str()) {
            mechanisms.push(name);
        } else {
            let message = format!("{:?} is none of {}", text.value, MECHANISMS.join(", "));
            context.error(text.span, message);
        }
    }
    let allow_unproven = section.flag("allow_unproven", false);
    section.finish();
    let (host, port) = host?;
    Some(SmartHost { host, port, user: user?, secret: secret?, is_token, mechanisms, allow_unproven })
}

fn secret(section: &Section<'_>) -> Option<SecretSource> {
    let file = section.text("secret_file").map(|text| SecretSource::File(section.context.path(text.value)));
    let command = section.texts("secret_command").map(|texts| {
        let words: Vec<String> = texts.iter().map(|text| text.value.to_owned()).collect();
        if words.first().is_none_or(|program| !program.starts_with('/')) {
            let message = "`secret_command` is [\"/path/of/program\", \"argument\"]; no shell reads it";
            section.context.error(section.span_of("secret_command"), message);
        }
        SecretSource::Command(words)
    });
    match (file, command) {
        (Some(source), None) | (None, Some(source)) => Some(source),
        _ => {
            let message = format!("one of `secret_file` and `secret_command` belongs{}", section.place());
            section.context.error(section.span.clone(), message);
            None
        }
    }
}
