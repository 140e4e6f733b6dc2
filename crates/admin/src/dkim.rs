//! DKIM keys that the server makes: their DNS records, and requests for new keys.

use std::time::Duration;

use stentor_control::{ControlReply, DkimRecordView, DkimRecords, DkimRequest, DkimRotateOptions, ErrorCode};
use stentor_core::Core;
use stentor_core::rotating_keys::{RotatingDomain, RotationRequest};
use stentor_dkim::rotation::{KeyPhase, RecordNeed, RecordUse, Sighting};
use stentor_mail::address::normalise_domain;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How long the keeper may take for a request. Making an RSA key takes a second at most; a program that publishes
/// records may run before.
const REQUEST_MAX: Duration = Duration::from_secs(90);

pub async fn answer(core: &Core, request: DkimRequest) -> ControlReply {
    match request {
        DkimRequest::Records { domain } => records(core, domain.as_deref()),
        DkimRequest::Rotate(options) => rotate(core, options).await,
    }
}

fn records(core: &Core, domain: Option<&str>) -> ControlReply {
    let wanted = domain.map(canonical);
    let all = core.dkim.rotating.domains();
    if let Some(wanted) = wanted.as_ref().filter(|wanted| !all.contains_key(*wanted)) {
        return unknown(wanted);
    }
    let named = all.iter().filter(|(domain, _)| wanted.as_ref().is_none_or(|wanted| wanted == *domain));
    let rows = named.flat_map(|(domain, state)| views(domain, state)).collect();
    ControlReply::DkimRecords(Box::new(DkimRecords { now: core.clock.now(), rows }))
}

async fn rotate(core: &Core, options: DkimRotateOptions) -> ControlReply {
    let domain = canonical(&options.domain);
    if !core.dkim.rotating.has(&domain) {
        return unknown(&domain);
    }
    let (answer, outcome) = oneshot::channel();
    let request = RotationRequest { domain: domain.clone(), is_urgent: options.now, answer };
    if !core.dkim.rotating.request(request) {
        return ControlReply::error(ErrorCode::Busy, "too many requests for new DKIM keys; try again later");
    }
    match timeout(REQUEST_MAX, outcome).await {
        Ok(Ok(Ok(text))) => ControlReply::done(text, None),
        Ok(Ok(Err(why))) => ControlReply::error(ErrorCode::Failed, why),
        Ok(Err(_)) => ControlReply::error(ErrorCode::Failed, "the server is stopping"),
        Err(_) => {
            let text =
                format!("the new keys of {domain} are not made yet; `stentor dkim show --text` shows when they are");
            ControlReply::error(ErrorCode::Busy, text)
        }
    }
}

/// The domain as the configuration has it.
fn canonical(domain: &str) -> String {
    normalise_domain(domain).unwrap_or_else(|_| domain.to_owned())
}

fn unknown(domain: &str) -> ControlReply {
    let text = format!("the server makes no keys for {domain}: no section [[dkim]] of this domain has `rotate_days`");
    ControlReply::error(ErrorCode::NotFound, text)
}

fn views(domain: &str, state: &RotatingDomain) -> Vec<DkimRecordView> {
    let view = |need: RecordNeed| {
        let observed = state.observed.iter().find(|one| one.selector == need.pair);
        let since = state.rotation.pair(&need.pair).map(|pair| pair.since);
        DkimRecordView {
            domain: domain.to_owned(),
            selector: need.selector,
            name: need.name,
            text: need.text,
            action: action(need.needed).to_owned(),
            state: phase(need.phase).to_owned(),
            since,
            seen: observed.map(|one| seen(&one.sighting)).unwrap_or_default(),
        }
    };
    state.rotation.records(domain).into_iter().map(view).collect()
}

fn action(needed: RecordUse) -> &'static str {
    match needed {
        RecordUse::Publish => "publish",
        RecordUse::Keep => "keep",
        RecordUse::Remove => "remove",
    }
}

fn phase(phase: KeyPhase) -> &'static str {
    match phase {
        KeyPhase::Created => "created",
        KeyPhase::Published => "published",
        KeyPhase::InUse => "in_use",
        KeyPhase::Retired => "retired",
        KeyPhase::Removable => "removable",
    }
}

fn seen(sighting: &Sighting) -> String {
    match sighting {
        Sighting::Everywhere => "all name servers have the records of this pair".to_owned(),
        Sighting::Nowhere => "no name server has a record of this pair".to_owned(),
        Sighting::Missing(what) => what.clone(),
        Sighting::Unknown(why) => format!("the name servers cannot be asked: {why}"),
    }
}
