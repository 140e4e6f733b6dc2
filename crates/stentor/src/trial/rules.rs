//! Warnings of `stentor check` about routes and rules: relay domains whose mailboxes are not verified at RCPT, and
//! redirects or copies to addresses that do not exist.

use stentor_config::{Config, Diagnostic, FilePosition, Severity};
use stentor_core::Settings;
use stentor_core::clock::Clock;
use stentor_mail::address::Address;
use stentor_policy::HostSpec;
use stentor_rules::{Key, NextHop, RuleAction, RuleEffect, RuleId};

/// Routes of relay domains to mailboxes that cannot be verified before the 250.
pub(crate) fn unknown_recipients(config: &Config) -> Vec<(String, String)> {
    let rules = &config.rules;
    let is_mailboxes = |hop: &NextHop| match hop {
        NextHop::Hosts(hosts) => hosts.iter().all(|host| host.lmtp && matches!(host.host, HostSpec::Unix(_))),
        _ => false,
    };
    let mut found = Vec::new();
    for entry in rules.by_recipient.entries() {
        let domain = entry.pattern.trim_start_matches('@');
        let below = if domain.starts_with('.') { "any" } else { "" };
        let key = Key::new(&format!("any@{below}{domain}"));
        let is_domain = !domain.contains(['@', '*', '<']);
        if is_domain
            && is_mailboxes(&entry.hop)
            && rules.relay_domains.find(&key).is_some()
            && !config.call_ahead.asks(&key)
            && !rules.verifies_recipients(Some(&key))
        {
            let message = format!(
                "mail for unknown users of {domain} is accepted, then bounced to possibly forged senders; set \
                 `[call_ahead] domains = [{domain:?}]` to ask its host at RCPT"
            );
            found.push((entry.pattern.to_string(), message));
        }
    }
    found.sort();
    found
}

/// Rules that send mail to a local address that does not exist. A table behind a socket that does not answer causes no
/// finding.
pub(crate) async fn leading_to_nobody(settings: &Settings) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let now = Clock::start().now();
    for (at, rule) in settings.rules.rules.iter().enumerate() {
        let RuleEffect::Actions(actions) = &rule.does else { continue };
        for action in actions {
            let (to, what) = match action {
                RuleAction::Redirect(to) => (to, "its mail is deferred with 451 4.3.5"),
                RuleAction::Bcc(to) => (to, "no copy is made"),
                _ => continue,
            };
            if settings.readers_of(to, now).await.is_ok_and(|readers| readers.is_nobody()) {
                let (file, line) = rule.place.rsplit_once(':').unwrap_or((&rule.place, ""));
                let file = settings.config.file.clone().unwrap_or_else(|| file.into());
                let line = line.parse().unwrap_or_default();
                let message =
                    format!("{}: address {to} does not exist here: {what}", settings.rules.rule_name(RuleId::new(at)));
                found.push(Diagnostic { file, line, column: 1, severity: Severity::Warning, message });
            }
        }
    }
    found
}

/// Warns if root at the server's own name does not exist: cron and other local programs send mail there.
pub(crate) async fn root_without_home(settings: &Settings, position: FilePosition) -> Option<Diagnostic> {
    let config = &settings.config;
    config.submission.folder.as_ref()?;
    let root: Address = format!("root@{}", config.hostname).parse().ok()?;
    let now = Clock::start().now();
    if !settings.readers_of(&root, now).await.is_ok_and(|readers| readers.is_nobody()) {
        return None;
    }
    let message = format!(
        "mail from cron and other local programs to {root} is refused, because this address does not exist: add it to \
         [aliases], `{:?} = \"you@elsewhere.example\"`, or to an alias file of [addresses]",
        root.as_str()
    );
    let file = config.file.clone().unwrap_or_default();
    let FilePosition { line, column } = position;
    Some(Diagnostic { file, line, column, severity: Severity::Warning, message })
}
