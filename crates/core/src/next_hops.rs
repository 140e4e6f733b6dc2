//! Next hops stored with recipients, for clients' mail and for the server's own.
//!
//! Promise: the server's own mail is routed like a client's mail from the same sender, by the same order of rules and
//! routes. Rules with conditions on clients do not match it. A next hop that is already set stays, and posts to lists
//! get none here.
//!
//! Failure: if a table cannot be asked, a recipient of our own mail is stored without a next hop, and its domain's is
//! looked up at delivery, which waits for the table. The mail itself is never lost.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use stentor_mail::address::Address;
use stentor_mail::reply::Reply;
use stentor_queue::ids::Ms;
use stentor_reputation::{ClientBehaviour, ClientName};
use stentor_rules::{DecisionReason, Facts, HopSource, Key, NextHop};
use stentor_ruletables::Questions;

use super::Settings;
use super::envelope::{EnvelopeRcpt, EnvelopeRecipients, NewEnvelope};
use super::people::today;

/// How long tables may take for one mail of our own.
const ROUTING_MAX: Duration = Duration::from_mins(1);
/// Recipients routed before other tasks get a turn.
const ROUTED_AT_ONCE: usize = 1_000;

/// Returns the next hop to store with a recipient. `None`: use the domain's next hop at delivery, which follows later
/// changes of files. A next hop is stored if the domain's would differ: if the order of rules preferred it, if a table
/// entry for the address alone replaced it, or if it comes from a socket.
pub fn own_hop(settings: &Settings, domain: &str, hop: &NextHop, by: Option<&DecisionReason>) -> Option<Arc<NextHop>> {
    let rules = &settings.rules;
    let is_of_domain = match by {
        None | Some(DecisionReason::Mx) => true,
        Some(DecisionReason::Route(_, entry)) => rules.of_domain(domain).is_some_and(|own| Arc::ptr_eq(own, entry)),
        Some(DecisionReason::Table(id, HopSource::Recipient, key, _)) => {
            settings.tables.is_in_memory(*id) && is_of_domain(key, domain)
        }
        Some(_) => false,
    };
    let holds_for_domain = || {
        let of_domain = rules.domain_hop(domain, &settings.tables.questions());
        matches!(of_domain, Ok(Ok(own)) if own == *hop)
    };
    let is_looked_up = is_of_domain && (rules.recipient_tables.is_empty() || holds_for_domain());
    if is_looked_up { None } else { own_hop_by_rule(settings, domain, hop) }
}

/// Whether a table's key covers all addresses of a domain.
fn is_of_domain(key: &str, domain: &str) -> bool {
    let name = key.strip_prefix('@').unwrap_or(key);
    let Some(left) = domain.len().checked_sub(name.len()) else { return false };
    let is_its_end = domain.is_char_boundary(left) && domain[left..].eq_ignore_ascii_case(name);
    matches!(name, "*" | ".") || is_its_end && (left == 0 || name.starts_with('.') || domain[..left].ends_with('.'))
}

/// Returns the next hop to store when a rule names it: always, except the MX of a domain that has no other possible
/// next hop.
pub fn own_hop_by_rule(settings: &Settings, domain: &str, hop: &NextHop) -> Option<Arc<NextHop>> {
    let rules = &settings.rules;
    let is_mx_anyhow = *hop == NextHop::Mx && rules.recipient_tables.is_empty() && rules.of_domain(domain).is_none();
    (!is_mx_anyhow).then(|| Arc::new(hop.clone()))
}

/// Sets the next hops of the recipients of our own mail.
pub(super) async fn route_own(settings: &Settings, envelope: &mut NewEnvelope, now: Ms) {
    let EnvelopeRecipients::Addresses(all) = &mut envelope.recipients else { return };
    if envelope.list.is_some() || !settings.rules.has_own_hops() {
        return;
    }
    let sender = settings.rules.key_of(&envelope.sender);
    let routed = Box::pin(route_all(settings, &sender, all, now));
    if tokio::time::timeout(ROUTING_MAX, routed).await.is_err() {
        let what = &envelope.taken.policy;
        tracing::warn!(%what, "table lookup timed out for this server's own mail; using the domain's route");
    }
}

async fn route_all(settings: &Settings, sender: &Key, all: &mut [EnvelopeRcpt], now: Ms) {
    let tables = settings.tables.questions();
    for (n, to) in all.iter_mut().enumerate() {
        if n % ROUTED_AT_ONCE == ROUTED_AT_ONCE - 1 {
            tokio::task::yield_now().await;
        }
        if to.route.hop.is_some() {
            continue;
        }
        match route_to(settings, &tables, sender, &to.address, now).await {
            Ok((hop, why)) => {
                to.route.hop = own_hop(settings, to.address.domain(), &hop, Some(&why));
            }
            Err(reply) => {
                let to = &to.address;
                tracing::warn!(%to, "table lookup failed for this server's own mail; using the domain's route: \
                    {reply}");
            }
        }
    }
}

async fn route_to(
    settings: &Settings,
    tables: &Questions<'_>,
    sender: &Key,
    address: &Address,
    now: Ms,
) -> Result<(NextHop, DecisionReason), Reply> {
    let recipient = settings.rules.key_of(address.as_str());
    let facts = Facts {
        client: Ipv4Addr::LOCALHOST.into(),
        client_name: ClientName::Unknown,
        helo: "",
        sender,
        recipient: &recipient,
        address,
        list: None,
        class: None,
        is_trusted: true,
        is_own: true,
        behaviour: ClientBehaviour::NOTHING,
        today: today(now),
        session: None,
    };
    tables.settle(|tables| settings.rules.route(&facts, tables, None, None)).await
}

#[cfg(test)]
mod tests {
    use stentor_queue::book::at_hop;

    use super::super::route::Route;
    use super::*;

    fn settings(text: &str) -> Settings {
        let config = stentor_config::check_text(std::path::Path::new("stentor.toml"), text);
        Settings::new(config.unwrap_or_else(|found| panic!("{text}\n{found:?}")), None)
    }

    /// Returns the route of our own mail from `sender` to a recipient with the given route, as text.
    async fn routed(settings: &Settings, sender: &str, to: &str, route: Option<&str>) -> Option<String> {
        let entry = route.map_or_else(|| to.to_owned(), |route| at_hop(to, route));
        let route = Route::of_entry(&entry, to);
        let to = EnvelopeRcpt { route, ..EnvelopeRcpt::plain(to.parse().unwrap()) };
        let own = NewEnvelope::own(vec![to], "<1@x>".to_owned(), "a test");
        let mut envelope = NewEnvelope { sender: sender.to_owned(), ..own };
        route_own(settings, &mut envelope, 0).await;
        let EnvelopeRecipients::Addresses(all) = envelope.recipients else { panic!("they are others") };
        let route = &all[0].route;
        (!route.is_plain()).then(|| route.to_string())
    }

    const ROUTES: &str = r#"
[routes]
"d.test" = "10.0.0.1"
"vip@d.test" = "10.0.0.2"
[sender_routes]
"<>" = "10.0.0.3"
"tls@x.test" = "10.0.0.4"
"#;

    #[tokio::test]
    async fn our_own_mail_goes_as_its_senders_mail_does() {
        let settings = settings(ROUTES);
        for (sender, to, hop) in [
            ("", "ann@z.test", Some("10.0.0.3")),
            ("tls@x.test", "ann@z.test", Some("10.0.0.4")),
            ("other@x.test", "ann@z.test", None),
            ("", "vip@d.test", Some("10.0.0.2")),
            // Same as the domain's, which is looked up at delivery.
            ("", "joe@d.test", None),
        ] {
            let own = routed(&settings, sender, to, None).await;
            assert_eq!(own, hop.map(|hop| format!("{hop}:25")), "{sender} {to}");
        }
    }

    #[tokio::test]
    async fn the_order_holds_for_our_own_mail() {
        let text = format!("{ROUTES}[routing]\norder = [\"sender\", \"recipient\"]\n");
        let settings = settings(&text);
        for to in ["vip@d.test", "joe@d.test"] {
            assert_eq!(routed(&settings, "", to, None).await.as_deref(), Some("10.0.0.3:25"), "{to}");
        }
    }

    #[tokio::test]
    async fn a_next_hop_that_our_own_mail_has_stays_and_a_wish_goes_with_it() {
        let settings = settings(ROUTES);
        for (hop, wanted) in [
            ("pipe:aliases", "lmtp:unix:/run/stentor-deliver/aliases.sock"),
            ("tls:require pipe:aliases", "tls:require lmtp:unix:/run/stentor-deliver/aliases.sock"),
            ("tls:optional", "tls:optional 10.0.0.3:25"),
        ] {
            assert_eq!(routed(&settings, "", "ann@z.test", Some(hop)).await.as_deref(), Some(wanted));
        }
        let optional = routed(&settings, "", "joe@d.test", Some("tls:optional")).await;
        assert_eq!(optional.as_deref(), Some("tls:optional"));
    }

    #[tokio::test]
    async fn mail_of_a_list_has_no_next_hop_of_its_sender() {
        let settings = settings(ROUTES);
        let to = vec![EnvelopeRcpt::plain("ann@z.test".parse().unwrap())];
        let own = NewEnvelope::own(to.clone(), "<1@x>".to_owned(), "a test");
        let mut envelope = NewEnvelope { list: Some("news".to_owned()), ..own };
        route_own(&settings, &mut envelope, 0).await;
        assert!(matches!(envelope.recipients, EnvelopeRecipients::Addresses(all) if all == to));
    }

    #[tokio::test]
    async fn rules_route_our_own_mail_unless_they_ask_about_a_client() {
        let about_clients = [
            "client = \"127.0.0.1\"",
            "helo = \"*\"",
            "client_name = \"*\"",
            "trusted = true",
            "class = \"bulk\"",
            "early_talker = false\ntrusted = true",
            "not = { client = \"10.0.0.0/8\" }",
            "not = { trusted = false }",
        ];
        for about in about_clients {
            let rule = |when: &str, hop: &str| format!("[[rules]]\n{when}\ndo = \"route {hop}\"\n");
            let settings =
                settings(&(rule(about, "10.0.0.8") + &rule("recipient = \"ann@z.test\"", "10.0.0.9") + ROUTES));
            let own = routed(&settings, "", "ann@z.test", None).await;
            assert_eq!(own.as_deref(), Some("10.0.0.9:25"), "{about}");
        }
        // A rule that refuses clients' mail does not hold ours.
        let refusing = settings(&format!("[[rules]]\ntrusted = true\ndo = \"reject\"\n{ROUTES}"));
        assert_eq!(routed(&refusing, "", "ann@z.test", None).await.as_deref(), Some("10.0.0.3:25"));
    }

    #[tokio::test]
    async fn a_table_that_cannot_be_asked_leaves_the_next_hop_to_the_delivery() {
        let table = "[tables.gone]\nsource = \"texthash:/nowhere/there\"\n[routing]\nsender_tables = [\"gone\"]\n";
        let settings = settings(&format!("{table}[routes]\n\"vip@d.test\" = \"10.0.0.2\"\n"));
        assert_eq!(routed(&settings, "", "ann@z.test", None).await, None);
        assert_eq!(routed(&settings, "", "ann@z.test", Some("tls:require")).await.as_deref(), Some("tls:require"));
        assert_eq!(routed(&settings, "", "vip@d.test", None).await.as_deref(), Some("10.0.0.2:25"));
    }
}
