//! Where a domain's mail goes, and how each host there is to be used.
//!
//! Hosts come from a route, or from the DNS. Then the operator's rules say what is demanded of them, and where that depends on what is published,
//! DANE and the domain's MTA-STS policy are asked side by side. Both end in time (`stentor_resolve`, [`crate::core::sts`]); the answer
//! holds as long as all that it rests on.
//!
//! DANE is the hosts': also those of a route have it. MTA-STS is a domain's own word about its MX hosts (RFC 8461 4.1), so a route, which takes their
//! place, is not compared with it.

use std::sync::Arc;

use stentor_mail::reply::{Enhanced, Reply};
use stentor_posture::dane::Decision;
use stentor_posture::sts::Policy;
use stentor_posture::{HostPosture, Peer, Posture, Published, Strength, Wish, site_suffix};
use stentor_queue::book::split_hop;
use stentor_queue::site::{Endpoint, Resolution, SitePlan, Target};
use stentor_resolve::{Decided, Facts};
use stentor_rules::NextHop;

use crate::core::sts::{Means, StsFound, StsPolicies};
use crate::core::{Core, Settings};

/// A policy that appears or changes is noticed.
const STS_TTL_S: u32 = 3_600;
/// Nothing is looked up more often.
const TTL_S_MIN: u32 = 10;

/// With what a look-up is made.
#[derive(Clone, Copy)]
pub struct Asking<'a> {
    pub means: Means<'a>,
    /// `None`: without MTA-STS.
    pub policies: Option<&'a StsPolicies>,
}

impl<'a> Asking<'a> {
    pub fn of(core: &'a Core, settings: &'a Settings) -> Asking<'a> {
        let means = Means { resolver: &core.resolver, settings, clock: &core.clock };
        Asking { means, policies: Some(&core.policies) }
    }
}

/// Where a domain's mail goes: by its route, or by DNS.
pub async fn look_up(asking: &Asking<'_>, name: &str) -> Resolution {
    let (mut resolution, facts, is_mx) = hosts(asking, name).await;
    if let Resolution::Site(plan) = &mut resolution {
        plan.limits = asking.means.settings.site_limits(&plan.targets);
        let (domain, hop) = split_hop(name);
        if let Err(text) = protect(asking, plan, (domain, Wish::of_hop(hop).0), &facts, is_mx).await {
            return Resolution::Temporary { dsn: Enhanced::new(4, 7, 5), text };
        }
    }
    resolution
}

/// The hosts, what the answers show, and whether they are the domain's MX hosts.
async fn hosts(asking: &Asking<'_>, name: &str) -> (Resolution, Facts, bool) {
    let none = |resolution| (resolution, Facts::default(), false);
    let (settings, resolver) = (asking.means.settings, asking.means.resolver);
    let (domain, own) = split_hop(name);
    let own = Wish::of_hop(own).1.map(|hop| NextHop::parse(hop, settings.config.delivery.smtp_port));
    let hop = match own {
        Some(Ok(hop)) => hop,
        Some(Err(error)) => {
            return none(Resolution::Temporary { dsn: Enhanced::new(4, 4, 4), text: error.to_string() });
        }
        None => match domain_hop(settings, domain).await {
            Ok(hop) => hop,
            Err(reply) => return none(refused(&reply)),
        },
    };
    let (resolution, facts) = match &hop {
        NextHop::Mx => resolver.resolve_with_facts(domain).await,
        NextHop::Hosts(hosts) => resolver.route_with_facts(hosts).await,
        NextHop::Named(hop) => {
            let Some(hosts) = settings.rules.hops.get(hop) else {
                let text = format!("there is no hop {hop:?} in [hops]");
                return none(Resolution::Temporary { dsn: Enhanced::new(4, 4, 4), text });
            };
            resolver.route_with_facts(hosts).await
        }
        NextHop::Refuse(reply) => return none(refused(reply)),
    };
    (resolution, facts, hop == NextHop::Mx && !domain.starts_with('['))
}

/// What TLS must do at each host becomes part of the plan. An error if what the domain publishes is not known.
async fn protect(
    asking: &Asking<'_>,
    plan: &mut SitePlan,
    (domain, wish): (&str, Wish),
    facts: &Facts,
    is_mx: bool,
) -> Result<(), String> {
    if plan.targets.iter().all(|target| matches!(target.addr, Endpoint::Unix(_))) {
        return Ok(());
    }
    let posture = asking.means.settings.posture(plan, domain, wish);
    let by_mail = asking.means.settings.config.protection.policies.published_by_mail();
    let asks = |does: fn(Strength) -> bool| {
        does(posture.requirement.strength()) || by_mail.is_some_and(|by_mail| does(by_mail.strength()))
    };
    let dane = async {
        let only = posture.requirement.strength() == Strength::DaneOnly;
        if asks(Strength::asks_dane) { asking.means.resolver.decisions(only, facts).await } else { Vec::new() }
    };
    let sts = async {
        let policies = asking.policies.filter(|_| is_mx && asks(Strength::asks_sts))?;
        Some(policies.policy(asking.means, domain).await)
    };
    let (dane, sts) = tokio::join!(dane, sts);
    let holds = dane.iter().map(|decided| decided.ttl_s).chain(sts.as_ref().map(|_| STS_TTL_S));
    plan.ttl_s = holds.fold(plan.ttl_s, u32::min).max(TTL_S_MIN);
    let sts = match sts {
        Some(StsFound::Policy(policy)) => Some(policy),
        Some(StsFound::NotKnown(why)) => return Err(why),
        Some(StsFound::Nothing) | None => None,
    };
    let of_target = |target: &Target| {
        let posture = host_posture(target, &posture, by_mail, domain, &dane, sts.as_deref())?;
        Some(Arc::new(posture))
    };
    let all: Vec<_> = plan.targets.iter().map(of_target).collect();
    let suffix = site_suffix(&posture, domain, all.iter().map(Option::as_deref));
    let mut all = all.into_iter();
    plan.protect(&suffix, |_| all.next().flatten());
    Ok(())
}

fn host_posture(
    target: &Target,
    posture: &Posture,
    by_mail: Option<&stentor_posture::Requirement>,
    domain: &str,
    dane: &[Decided],
    sts: Option<&Policy>,
) -> Option<HostPosture> {
    let Endpoint::Tcp(addr) = &target.addr else { return None };
    let host = target.host.trim_end_matches('.');
    let is_it = |decided: &&Decided| decided.host == host && decided.port == addr.port();
    let dane: Option<Decision> = dane.iter().find(is_it).map(|decided| decided.decision.clone());
    let published = Published::new(host, dane, sts);
    HostPosture::new(posture, by_mail, Peer { hostname: host, nexthop: domain }, published)
}

/// What routes and tables have for a domain.
async fn domain_hop(settings: &Settings, domain: &str) -> Result<NextHop, Reply> {
    let tables = settings.tables.questions();
    tables.settle(|tables| settings.rules.domain_hop(domain, tables)).await
}

/// What the operator says of a domain in place of hosts, with the enhanced code of his words.
fn refused(reply: &Reply) -> Resolution {
    let (class, text) = (if reply.is_temporary() { 4 } else { 5 }, reply.text.clone().into_owned());
    let dsn = reply.enhanced.filter(|own| own.class == class).unwrap_or(Enhanced::new(class, 7, 1));
    if reply.is_temporary() { Resolution::Temporary { dsn, text } } else { Resolution::Permanent { dsn, text } }
}
