//! Consistency between sections: builds the policy from list addresses, aliases, routes and domains.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;

use ipnet::IpNet;
use stentor_mail::address::normalise_domain;
use stentor_policy::{AddressClass, ListInput, Policy, PolicyInput, Subject, UNTRUSTED_CLIENT};
use stentor_rules::{Conditions, Rulebook};

use super::archives::{self, ArchiveTarget};
use super::diagnose::Spot;
use super::dkim::DkimConfig;
use super::domain_reports::DmarcReportsSpot;
use super::raw::Context;
use super::tables::{ListSpot, Tables};

/// Builds the policy, or reports why that is impossible.
pub(super) fn check(context: &Context<'_>, hostname: &str, networks: &[IpNet], tables: &Tables) -> Option<Arc<Policy>> {
    if context.has_errors() && context.is_broken() {
        return None; // half a file would cause false errors
    }
    list_ids(context, tables);
    let srs: Vec<String> = tables.rules.addresses.srs.iter().map(|srs| srs.domain().to_owned()).collect();
    let domains = [&tables.domains.value.local, &tables.domains.value.virtuals, &srs];
    let input = PolicyInput {
        hostname: hostname.to_owned(),
        client_networks: networks.to_vec(),
        local_domains: domains.iter().flat_map(|domains| domains.iter().cloned()).collect(),
        postmaster: tables.domains.value.postmaster.clone(),
        lists: tables.lists.iter().map(|spot| list_input(spot.value.list.settings())).collect(),
        aliases: tables.aliases.iter().map(|alias| alias.value.clone()).collect(),
        routed: tables.rules.domains.iter().map(|route| route.value.clone()).collect(),
        has_tables: tables.rules.addresses.has_tables(),
    };
    // A list or alias that could not be read is missing here; errors that follow from that are not reported.
    let is_whole = !context.has_errors();
    match Policy::new(input) {
        Ok(policy) => {
            no_posts(context, tables, &policy);
            archives(context, tables, &policy);
            warnings(context, tables, &policy);
            Some(Arc::new(policy))
        }
        Err(errors) => {
            for error in errors {
                if is_whole || !error.may_follow {
                    context.error(place(tables, &error.subject), error.message);
                }
            }
            None
        }
    }
}

/// Warns of lists and sender domains whose unsubscribe links no signature covers (RFC 8058 section 3.1). `senders`:
/// sender domains with links.
pub(super) fn check_links_signed(
    context: &Context<'_>,
    tables: &Tables,
    senders: &[Spot<String>],
    dkim: &[DkimConfig],
) {
    for Spot { value: domain, span } in senders {
        if !dkim.iter().any(|signing| signing.every || signing.authors && signing.covers(domain)) {
            let message = format!(
                "`one_click` without a DKIM signature of {domain}: receivers ignore unsigned unsubscribe links; \
                 `stentor dkim new {domain}` makes keys and prints the section for them. If the authors have addresses \
                 at another domain with a section [[dkim]], set `every = true` there"
            );
            context.warn(span.clone(), message);
        }
    }
    for ListSpot { value, address_span, .. } in tables.lists.iter().filter(|list| list.value.flow.copies.one_click) {
        let domain = value.list.settings().address.domain();
        if !dkim.iter().any(|signing| signing.lists && signing.covers(domain)) {
            let message = format!(
                "`one_click` without a DKIM signature of {domain}: receivers ignore unsigned unsubscribe links; \
                 `stentor dkim new {domain}` makes keys and prints the section for them"
            );
            context.warn(address_span.clone(), message);
        }
    }
}

fn list_input(settings: &stentor_lists::ListSettings) -> ListInput {
    ListInput {
        name: settings.name.clone(),
        address: settings.address.clone(),
        bounces: settings.bounces.clone(),
        owner: settings.owner.clone(),
        commands: settings.commands.map(|commands| commands.join),
    }
}

/// Rejects duplicate List-Ids: loop protection goes by the List-Id, so two such lists would refuse each other's
/// posts.
fn list_ids(context: &Context<'_>, tables: &Tables) {
    let mut first: HashMap<&str, &str> = HashMap::with_capacity(tables.lists.len());
    for spot in &tables.lists {
        let own = spot.value.list.settings();
        match first.entry(&own.list_id) {
            Entry::Occupied(other) => {
                let message = format!("list `{}` also has the list_id `{}`", other.get(), own.list_id);
                context.error(spot.id_span.clone(), message);
            }
            Entry::Vacant(place) => {
                place.insert(&own.name);
            }
        }
    }
}

/// Position of an error's subject in the file.
fn place(tables: &Tables, subject: &Subject) -> Range<usize> {
    let list = |name: &str| tables.lists.iter().rfind(|spot| &**spot.value.list.name() == name);
    let found = match subject {
        Subject::Hostname => None,
        Subject::LocalDomain(_) => Some(tables.domains.span.clone()),
        Subject::Postmaster => Some(tables.postmaster_span.clone()),
        Subject::List(name) => list(name).map(|spot| spot.address_span.clone()),
        Subject::Owner(name) => list(name).map(|spot| spot.owner_span.clone()),
        Subject::Alias(address) => {
            tables.aliases.iter().rfind(|alias| alias.value.address == *address).map(|alias| alias.span.clone())
        }
    };
    found.unwrap_or(0..0)
}

/// Rejects lists as targets of copies: a copy would be a post that nobody sent to the list.
fn no_posts(context: &Context<'_>, tables: &Tables, policy: &Policy) {
    for to in &tables.rules.copied {
        if let AddressClass::List(name) = policy.rcpt(UNTRUSTED_CLIENT, &to.value) {
            let message = format!("{} is list `{name}`, and a copy is not a post: name recipients", to.value);
            context.error(to.span.clone(), message);
        }
    }
}

/// Rejects unfit archives of lists, and unknown hops.
fn archives(context: &Context<'_>, tables: &Tables, policy: &Policy) {
    for list in &tables.lists {
        for Spot { value, span } in &list.archives {
            match value {
                ArchiveTarget::Hop(hop) => tables.rules.known_hop(context, hop, span),
                ArchiveTarget::Address(address) => {
                    if let Some(why) = archives::unfit(policy, list.value.list.name(), address) {
                        context.error(span.clone(), why);
                    }
                }
            }
        }
    }
}

/// Warns of aliases of lists that rules name: posts to the alias bypass such rules.
fn passed_by(context: &Context<'_>, tables: &Tables, policy: &Policy) {
    let asked = |list: &str| {
        let names = |conditions: &Conditions| conditions.lists().iter().any(|name| **name == *list);
        tables.rules.rules.iter().find(|rule| names(&rule.when) || names(&rule.unless))
    };
    for alias in &tables.aliases {
        let AddressClass::Alias(expansion) = policy.rcpt(UNTRUSTED_CLIENT, &alias.value.address) else { continue };
        let found = expansion.lists.iter().find_map(|list| Some((list, asked(list)?)));
        if let Some((list, rule)) = found {
            let message = format!(
                "posts to list `{list}` by alias {} bypass the rule at {}: `list` matches the recipient that the \
                 client names; add a rule with the alias as `recipient`",
                alias.value.address, rule.place
            );
            context.warn(alias.span.clone(), message);
        }
    }
}

fn warnings(context: &Context<'_>, tables: &Tables, policy: &Policy) {
    local_and_relayed(context, tables, policy);
    for route in &tables.rules.domains {
        let pattern = &route.value;
        if policy.is_local_domain(pattern) {
            let message =
                format!("route `{pattern}` is never used: the domain is local, and its unknown addresses are refused");
            context.warn(route.span.clone(), message);
        }
    }
    passed_by(context, tables, policy);
    // The postmaster may be in a table.
    if tables.rules.addresses.has_tables() {
        return;
    }
    let domains = tables.domains.value.local.iter().map(String::as_str);
    let domains = domains.chain(tables.lists.iter().map(|spot| spot.value.list.settings().address.domain()));
    for domain in domains {
        let Ok(postmaster) = format!("postmaster@{domain}").parse() else { continue };
        if matches!(policy.rcpt(UNTRUSTED_CLIENT, &postmaster), AddressClass::Refuse(_)) {
            let message = format!(
                "mail to postmaster@{domain} is refused, but RFC 5321 section 4.5.1 requires it to be accepted; set \
                 `postmaster` in [domains]"
            );
            context.warn(tables.domains.span.clone(), message);
            break; // one setting fixes all of them
        }
    }
}

/// Warns of domains that are both local and in `relay`: they are treated as local, so unknown addresses are refused.
fn local_and_relayed(context: &Context<'_>, tables: &Tables, policy: &Policy) {
    let domains = &tables.domains.value;
    for relay in &tables.relay {
        let Ok(domain) = normalise_domain(&relay.value) else { continue };
        if !policy.is_local_domain(&domain) {
            continue;
        }
        let is = if domains.local.contains(&domain) {
            "is in `local` and `relay`"
        } else if domains.virtuals.contains(&domain) {
            "is in `virtual` and `relay`"
        } else {
            "is in `relay`, and local because of a list, the host name or `srs`"
        };
        let message = format!("`{domain}` {is}: it is treated as local, and unknown addresses get 550");
        context.warn(relay.span.clone(), message);
    }
}

/// Warns of addresses of `[dmarc_reports]` that cannot work.
pub(super) fn check_reports(context: &Context<'_>, reports: &DmarcReportsSpot, rules: &Rulebook, dkim: &[DkimConfig]) {
    let DmarcReportsSpot { value: config, address_span, from_span } = reports;
    if let Some(address) = config.address.as_ref().filter(|address| rules.is_refused(address)) {
        let message = format!(
            "no reports arrive: {address} is no address here; name a list or an alias, or an address of a domain in \
             `relay`"
        );
        context.warn(address_span.clone(), message);
    }
    let domain = config.sender.as_ref().map_or("", |sender| sender.from.domain());
    if !domain.is_empty() && !dkim.iter().any(|signing| signing.authors && signing.covers(domain)) {
        let message = format!(
            "reports have no DKIM signature of {domain}: receivers drop them unless its SPF record permits this server; \
             `stentor dkim new {domain}` makes keys and prints the section for them"
        );
        context.warn(from_span.clone(), message);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::check_text;

    #[test]
    fn a_relay_domain_that_is_local_is_named() {
        let text = "hostname = \"mx.example.org\"\n[domains]\nlocal = [\"example.org\"]\nvirtual = [\"example.net\"]\n\
                    relay = [\"Example.org\", \".example.org\", \"example.net\", \"example.com\", \"mx.example.org\"]\n\
                    postmaster = \"ann@example.com\"\n";
        let found = check_text(Path::new("stentor.toml"), text).unwrap().warnings;
        let found = found.iter().map(ToString::to_string).filter(|found| found.contains("`relay`"));
        let named = [
            "stentor.toml:5:10: warning: `example.org` is in `local` and `relay`: it is treated as local, and unknown \
             addresses get 550",
            "stentor.toml:5:41: warning: `example.net` is in `virtual` and `relay`: it is treated as local, and \
             unknown addresses get 550",
            "stentor.toml:5:71: warning: `mx.example.org` is in `relay`, and local because of a list, the host name \
             or `srs`: it is treated as local, and unknown addresses get 550",
        ];
        assert_eq!(found.collect::<Vec<_>>(), named);
        // A route makes the host's own name a remote address.
        let routed = text.replace("[\"example.org\"]", "[]").replace("[\"example.net\"]", "[]")
            + "[routes]\n\"mx.example.org\" = \"local:\"\n";
        let found = check_text(Path::new("stentor.toml"), &routed).unwrap().warnings;
        assert!(found.iter().all(|found| !found.message.contains("`relay`")), "{found:?}");
    }
}
