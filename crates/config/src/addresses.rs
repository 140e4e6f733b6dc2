//! `[addresses]`: the tables that say what addresses stand for.

use std::collections::BTreeSet;

use stentor_mail::address::normalise_domain;
use stentor_rules::{Addresses, Dialect, TableId};

use super::raw::Section;
use super::rules::{TableConfig, find_table};

pub(super) fn read(section: Section<'_>, tables: &[TableConfig], (hostname, virtuals): (&str, &[String])) -> Addresses {
    let virtual_tables = named(&section, "virtual", tables, &[Dialect::Virtual, Dialect::Virtusertable]);
    let alias_tables = named(&section, "aliases", tables, &[Dialect::Aliases]);
    if virtual_tables.is_empty() && !virtuals.is_empty() {
        let message = "[domains] has virtual domains, and no table says who is there; set `virtual` in [addresses]";
        section.context.warn(section.span.clone(), message);
    }
    let mut alias_domains = BTreeSet::new();
    for text in section.texts("alias_domains").unwrap_or_default() {
        match normalise_domain(text.value) {
            Ok(domain) if virtuals.contains(&domain) => {
                let message =
                    format!("{:?} is a virtual domain of [domains]: alias files do not apply to it", text.value);
                section.context.error(text.span, message);
            }
            Ok(domain) => drop(alias_domains.insert(domain)),
            Err(_) => section.context.error(text.span, format!("{:?} is not a domain", text.value)),
        }
    }
    let mut origin = normalise_domain(hostname).unwrap_or_default();
    alias_domains.insert(origin.clone());
    if let Some(text) = section.text("origin") {
        match normalise_domain(text.value) {
            Ok(domain) => origin = domain,
            Err(_) => section.context.error(text.span, format!("{:?} is not a domain", text.value)),
        }
    }
    section.finish();
    Addresses {
        virtual_tables,
        alias_tables,
        virtual_domains: virtuals.iter().map(|domain| domain.as_str().into()).collect(),
        alias_domains: alias_domains.into_iter().map(String::into_boxed_str).collect(),
        origin: origin.into(),
    }
}

/// Tables by their names, in the order in which they are asked.
fn named(section: &Section<'_>, key: &'static str, tables: &[TableConfig], kinds: &[Dialect]) -> Vec<TableId> {
    let mut ids = Vec::new();
    for text in section.texts(key).unwrap_or_default() {
        let Some((id, dialect)) = find_table(section.context, tables, text.value, &text.span) else { continue };
        if kinds.contains(&dialect) {
            ids.push(id);
            continue;
        }
        let wanted = if kinds.contains(&Dialect::Aliases) { "\"aliases\"" } else { "\"virtual\" or \"virtusertable\"" };
        section.context.error(text.span, format!("table {:?} cannot stand here: it needs as = {wanted}", text.value));
    }
    ids
}
