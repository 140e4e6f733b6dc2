//! `[policy_services]`: programs that speak Postfix's policy protocol, named in rules by `policy_service`.

use stentor_milter::protocol::ServiceAddress;
use stentor_rules::{Dialect, PolicyServiceCheck, RuleAction, ServiceStage, TableId};

use super::diagnose::{Spot, likely};
use super::raw::{Context, Entry, Section};
use super::rule_sources::{PolicyService, TableConfig, TableSource};

/// Upper limit of the timeout: a decision waits at most 30 s for all its lookups.
const TIMEOUT_S_MAX: f64 = 25.0;

/// Reads the services as tables, because both use the same lookups.
pub(super) fn read(sections: &Section<'_>, smtp_port: u16) -> Vec<TableConfig> {
    sections.entries().iter().filter_map(|entry| service(sections, entry, smtp_port)).collect()
}

fn service<'a>(sections: &Section<'a>, entry: &Entry<'a>, smtp_port: u16) -> Option<TableConfig> {
    let section = sections.of_entry(entry)?;
    let place = section.required("address", "inet:127.0.0.1:10023").and_then(|text| {
        let place = ServiceAddress::parse(text.value);
        if place.is_none() {
            let message = format!(
                "{:?} is not a valid policy service address; write \"inet:HOST:PORT\" or \"unix:/PATH\"",
                text.value
            );
            section.context.error(text.span, message);
        }
        place
    });
    let timeout_ms = section.seconds("timeout_s", 20, 0.1..=TIMEOUT_S_MAX);
    let default_action =
        section.text("default_action").and_then(|text| match RuleAction::parse_postfix(text.value, smtp_port) {
            Ok(_) => Some(text.value.to_owned()),
            Err(error) => {
                section.context.error(text.span, error.to_string());
                None
            }
        });
    let stage = section.choice(
        "at",
        ServiceStage::Rcpt,
        &[("rcpt", ServiceStage::Rcpt), ("end_of_data", ServiceStage::EndOfData)],
    );
    let at = section.context.place(&section.span);
    section.finish();
    let source = TableSource::Service(PolicyService { place: place?, timeout_ms, default_action, stage });
    Some(TableConfig { name: entry.key.clone(), dialect: Dialect::Access, source, place: at })
}

pub(super) fn find(context: &Context<'_>, tables: &[TableConfig], name: &Spot<&str>) -> Option<PolicyServiceCheck> {
    let services = || {
        tables.iter().enumerate().filter_map(|(at, table)| match &table.source {
            TableSource::Service(service) => Some((at, table, service.stage)),
            TableSource::Inline(_) | TableSource::Named(_) => None,
        })
    };
    let found = services().find(|(_, table, _)| table.name == name.value);
    if found.is_none() {
        let near = likely(name.value, services().map(|(_, table, _)| table.name.as_str()));
        let near = near.map_or(String::new(), |near| format!("; did you mean {near:?}?"));
        let message = format!("there is no policy service {:?}{near}; see [policy_services.NAME]", name.value);
        context.error(name.span.clone(), message);
    }
    let (at, _, stage) = found?;
    u16::try_from(at).ok().map(|at| PolicyServiceCheck { table: TableId(at), stage })
}
