//! Finds where a domain's mail goes, and how each host there is to be used.
//!
//! Hosts come from a route or from the DNS. The operator's rules then say what is required of them. Where that depends
//! on published policies, DANE and the domain's MTA-STS policy are looked up concurrently, both with a time limit
//! (`stentor_resolve`, [`stentor_core::sts`]). The result is valid as long as everything that it depends on.
//!
//! DANE belongs to hosts, so it also applies to hosts of a route. MTA-STS is a domain's statement about its MX hosts
//! (RFC 8461 4.1), so it does not apply to a route that replaces them.

use std::sync::Arc;

use stentor_core::route::Route;
use stentor_core::sts::{LookupServices, StsLookup, StsPolicies};
use stentor_core::{Core, Settings};
use stentor_mail::reply::{Enhanced, Reply};
use stentor_queue::cause::Cause;
use stentor_queue::site::{Endpoint, Resolution, SitePlan, Target};
use stentor_resolve::{DaneResult, DnssecFacts, Resolver};
use stentor_rules::NextHop;
use stentor_tls_policy::dane::DaneDecision;
use stentor_tls_policy::sts::StsPolicy;
use stentor_tls_policy::{HostPosture, Level, Peer, Posture, PublishedPolicies, Strength, Wish, site_suffix};

/// Upper bound of the result's lifetime, so that a new or changed policy is noticed.
const STS_TTL_S: u32 = 3_600;
/// Lower bound of the result's lifetime.
const TTL_S_MIN: u32 = 10;
/// A table that cannot be asked (RFC 3463 X.3.0).
const TABLE_FAILED: Enhanced = Enhanced::new(4, 3, 0);

/// Services and settings needed for a look-up.
#[derive(Clone, Copy)]
pub struct LookupContext<'a> {
    pub services: LookupServices<'a>,
    /// `None`: without MTA-STS.
    pub policies: Option<&'a StsPolicies>,
}

impl<'a> LookupContext<'a> {
    pub fn of(core: &'a Core, resolver: &'a Resolver, settings: &'a Settings) -> LookupContext<'a> {
        let services = LookupServices { resolver, settings, clock: &core.clock };
        LookupContext { services, policies: Some(&core.policies) }
    }
}

/// Finds where a domain's mail goes, by its route or by DNS.
pub async fn look_up(context: &LookupContext<'_>, name: &str) -> Resolution {
    let (mut resolution, facts, is_mx) = hosts(context, name).await;
    if let Resolution::Site(plan) = &mut resolution {
        plan.limits = context.services.settings.site_limits(&plan.targets);
        let (domain, route) = Route::split(name);
        if let Err(text) = protect(context, plan, domain, route.wish, &facts, is_mx).await {
            // The hosts are known, but not the TLS requirements there.
            return temporary(Cause::Tls, Enhanced::new(4, 7, 5), text);
        }
    }
    resolution
}

/// Returns DANE's result for each host, even where it is not required, for display.
pub async fn dane_of(context: &LookupContext<'_>, name: &str) -> Vec<DaneResult> {
    let (_, facts, _) = hosts(context, name).await;
    context.services.resolver.decisions(false, &facts).await
}

/// Returns the hosts, the facts from the DNS answers, and whether they are the domain's MX hosts.
async fn hosts(context: &LookupContext<'_>, name: &str) -> (Resolution, DnssecFacts, bool) {
    let none = |resolution| (resolution, DnssecFacts::default(), false);
    let (settings, resolver) = (context.services.settings, context.services.resolver);
    let (domain, _) = Route::split(name);
    let hop = match next_hop(settings, name).await {
        Ok(hop) => hop,
        Err(resolution) => return none(resolution),
    };
    let (resolution, facts) = match &*hop {
        NextHop::Mx => resolver.resolve_with_facts(domain).await,
        NextHop::Hosts(hosts) => resolver.route_with_facts(hosts).await,
        NextHop::Named(hop) => {
            let Some(hosts) = settings.rules.hops.get(hop) else {
                let text = format!("hop {hop:?} is not defined in [hops]");
                return none(temporary(Cause::Routing, Enhanced::new(4, 4, 4), text));
            };
            resolver.route_with_facts(hosts).await
        }
        NextHop::Refuse(reply) => return none(refused(reply)),
    };
    (resolution, facts, is_mx(domain, &hop))
}

/// Returns the recipient's own next hop, or else the domain's. An error says why it is unknown.
async fn next_hop(settings: &Settings, name: &str) -> Result<Arc<NextHop>, Resolution> {
    let (domain, route) = Route::split(name);
    if let Some(hop) = route.hop {
        return Ok(hop);
    }
    domain_hop(settings, domain).await.map(Arc::new).map_err(|reply| {
        let (code, text) = (reply.enhanced.unwrap_or(TABLE_FAILED), reply.text.into_owned());
        temporary(Cause::Table, code, text)
    })
}

fn is_mx(domain: &str, hop: &NextHop) -> bool {
    *hop == NextHop::Mx && !domain.starts_with('[')
}

/// Whether the hosts are the domain's MX hosts: MTA-STS applies to no others (RFC 8461 section 2).
pub async fn has_mx_hosts(settings: &Settings, name: &str) -> bool {
    next_hop(settings, name).await.is_ok_and(|hop| is_mx(Route::split(name).0, &hop))
}

/// Adds the TLS requirements of each host to the plan. An error if the domain's published policy is not known.
async fn protect(
    context: &LookupContext<'_>,
    plan: &mut SitePlan,
    domain: &str,
    wish: Wish,
    facts: &DnssecFacts,
    is_mx: bool,
) -> Result<(), String> {
    if plan.targets.iter().all(|target| matches!(target.addr, Endpoint::Unix(_))) {
        return Ok(());
    }
    let posture = context.services.settings.posture(plan, domain, wish);
    let by_mail = context.services.settings.config.protection.policies.published_by_mail();
    let asks = |does: fn(Strength) -> bool| {
        does(posture.requirement.strength()) || by_mail.is_some_and(|by_mail| does(by_mail.strength()))
    };
    let dane = async {
        let only = posture.requirement.strength() == Strength::DaneOnly;
        if asks(Strength::asks_dane) { context.services.resolver.decisions(only, facts).await } else { Vec::new() }
    };
    let sts = async {
        let policies = context.policies.filter(|_| is_mx && asks(Strength::asks_sts))?;
        Some(policies.policy(context.services, domain).await)
    };
    let (dane, sts) = tokio::join!(dane, sts);
    let holds = dane.iter().map(|decided| decided.ttl_s).chain(sts.as_ref().map(|_| STS_TTL_S));
    plan.ttl_s = holds.fold(plan.ttl_s, u32::min).max(TTL_S_MIN);
    let (sts, not_now) = match sts {
        Some(StsLookup::Policy(policy)) => (Some(policy), None),
        Some(StsLookup::NotKnown(why)) => return Err(why),
        Some(StsLookup::NotNow(why)) => (None, Some(why)),
        Some(StsLookup::Nothing) | None => (None, None),
    };
    let of_target = |target: &Target| {
        let posture = host_posture(target, &posture, by_mail, domain, &dane, sts.as_deref())?;
        Some(Arc::new(posture))
    };
    let all: Vec<_> = plan.targets.iter().map(of_target).collect();
    let is_proven =
        |host: &Option<Arc<HostPosture>>| host.as_ref().is_some_and(|host| matches!(host.used.level, Level::Proven(_)));
    // Mail with REQUIRETLS would be returned because of a policy that cannot be fetched now.
    if let Some(why) = not_now.filter(|_| posture.require_tls && !all.iter().any(is_proven)) {
        return Err(format!("could not check whether an MTA-STS policy of {domain} proves its hosts: {why}"));
    }
    let suffix = site_suffix(&posture, domain, all.iter().map(Option::as_deref));
    let mut all = all.into_iter();
    plan.protect(&suffix, |_| all.next().flatten());
    Ok(())
}

fn host_posture(
    target: &Target,
    posture: &Posture,
    by_mail: Option<&stentor_tls_policy::Requirement>,
    domain: &str,
    dane: &[DaneResult],
    sts: Option<&StsPolicy>,
) -> Option<HostPosture> {
    let addr = target.addr.addr()?;
    let host = target.host.trim_end_matches('.');
    let is_it = |decided: &&DaneResult| decided.host == host && decided.port == addr.port();
    let dane: Option<DaneDecision> = dane.iter().find(is_it).map(|decided| decided.decision.clone());
    let published = PublishedPolicies::new(host, dane, sts);
    HostPosture::new(posture, by_mail, Peer { hostname: host, nexthop: domain }, published)
}

/// Returns the next hop of a domain from routes and tables. An error says why a table cannot be asked.
async fn domain_hop(settings: &Settings, domain: &str) -> Result<NextHop, Reply> {
    let tables = settings.tables.questions();
    tables.settle(|tables| settings.rules.domain_hop(domain, tables)).await
}

/// Returns the operator's refusal for a domain, with the enhanced code of its text.
fn refused(reply: &Reply) -> Resolution {
    let (class, text) = (if reply.is_temporary() { 4 } else { 5 }, reply.text.clone().into_owned());
    let dsn = reply.enhanced.filter(|own| own.class == class).unwrap_or(Enhanced::new(class, 7, 1));
    if reply.is_temporary() { temporary(Cause::Routing, dsn, text) } else { Resolution::Permanent { dsn, text } }
}

fn temporary(cause: Cause, dsn: Enhanced, text: String) -> Resolution {
    Resolution::Temporary { cause, dsn, text }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::net::UdpSocket;

    use super::*;
    use stentor_core::clock::Clock;

    const MX: &[u8] = b"\x03mx1\x01a\x04test\0";
    const TTL: [u8; 4] = [0, 0, 1, 0];

    /// Answers queries for a.test, which has an MX host and publishes a policy whose host has no address.
    fn answer(query: &[u8]) -> Vec<u8> {
        let name = query[12..].split_inclusive(|octet| *octet == 0).next().expect("a question has a name");
        let question = &query[12..12 + name.len() + 4];
        let (owner, kind) =
            (name.to_ascii_lowercase(), u16::from_be_bytes([question[name.len()], question[name.len() + 1]]));
        let data = match (&*owner, kind) {
            (b"\x01a\x04test\0", 15) => [&[0, 10], MX].concat(),
            (MX, 1) => vec![192, 0, 2, 1],
            (b"\x08_mta-sts\x01a\x04test\0", 16) => b"\x0ev=STSv1; id=1;".to_vec(),
            _ => Vec::new(),
        };
        let is_found = !data.is_empty();
        // Without a result the answer has the zone's SOA, so that it is cached too.
        let (kind, data) = if is_found { (kind, data) } else { (6, [&[0, 0][..], &[0; 18], &TTL[2..]].concat()) };
        let counts = [0, 1, 0, u8::from(is_found), 0, u8::from(!is_found), 0, 0];
        let length = (data.len() as u16).to_be_bytes();
        [&query[..2], &[0x81, 0x80], &counts, question, &[0xc0, 12], &kind.to_be_bytes(), &[0, 1], &TTL, &length, &data]
            .concat()
    }

    async fn name_server() -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port is free");
        let address = socket.local_addr().expect("it is bound");
        tokio::spawn(async move {
            let mut query = [0; 2048];
            while let Ok((octets, from)) = socket.recv_from(&mut query).await {
                let _ = socket.send_to(&answer(&query[..octets]), from).await;
            }
        });
        address
    }

    /// This is not a DNS failure, and the text names the table.
    #[tokio::test]
    async fn mail_waits_for_a_table_that_is_down() {
        let text = "[tables.down]\nsource = \"socketmap:unix:/nonexistent/socket:map\"\nas = \"transport\"\n[routing]\ntables = \"down\"\n";
        let config = stentor_config::check_text(std::path::Path::new("stentor.toml"), text).expect("it is sound");
        let settings = Settings::new(config, None);
        let resolver = Resolver::new(settings.resolver(&[])).expect("one can be made");
        let clock = Clock::start();
        let services = LookupServices { resolver: &resolver, settings: &settings, clock: &clock };
        let found = look_up(&LookupContext { services, policies: None }, "a.test").await;
        let Resolution::Temporary { cause, dsn, text } = found else { panic!("{found:?}") };
        assert_eq!((cause, dsn), (Cause::Table, TABLE_FAILED));
        assert!(text.starts_with("table down: "), "{text}");
    }

    /// If a domain's own server was not asked, it is unknown whether mail may go in clear. If it was asked in vain, the
    /// domain has no policy.
    #[tokio::test]
    async fn mail_waits_for_a_policy_while_strangers_hold_up_its_fetch() {
        let mut config = stentor_config::without_file().expect("the defaults are a configuration");
        config.dns.servers = vec![name_server().await];
        let settings = Settings::new(config, None);
        let resolver = Resolver::new(settings.resolver(&[])).expect("one can be made");
        let (clock, policies) = (Clock::start(), StsPolicies::default());
        let services = LookupServices { resolver: &resolver, settings: &settings, clock: &clock };
        let context = LookupContext { services, policies: Some(&policies) };

        // Answers are cached from here on: with the clock stopped, nothing may depend on a socket.
        let without = look_up(&LookupContext { policies: None, ..context }, "a.test").await;
        assert!(matches!(without, Resolution::Site(_)), "{without:?}");
        stentor_core::sts::record(&resolver, "a.test").await.expect("there is a record");
        let turns = policies.hold_turns().await;
        tokio::time::pause();
        let Resolution::Temporary { dsn, text, .. } = look_up(&context, "a.test").await else {
            panic!("mail does not wait")
        };
        assert_eq!(dsn, Enhanced::new(4, 7, 5));
        assert!(text.starts_with("a.test publishes an MTA-STS policy, which could not be fetched in time"), "{text}");
        assert_eq!(policies.about("a.test"), (None, None), "nothing is held against it");

        drop(turns);
        tokio::time::resume();
        let asked = look_up(&context, "a.test").await;
        assert!(matches!(asked, Resolution::Site(_)), "{asked:?}");
        assert!(policies.about("a.test").1.is_some_and(|failure| failure.why.starts_with("mta-sts.a.test: ")));
    }
}
