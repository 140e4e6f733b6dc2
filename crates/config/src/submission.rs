//! `[submission]`: where mail of local programs is collected, and who may send as whom.

use std::collections::BTreeMap;
use std::path::PathBuf;

use stentor_mail::address::{Address, normalise_domain};

use super::configuration::SubmissionConfig;
use super::raw::Section;

/// Maximum recipients of one message, the limit of an envelope.
const RECIPIENTS_MAX: u64 = 100_000;
const RECIPIENTS_DEFAULT: u64 = 10_000;
/// Maximum users in `senders`, and maximum names in `trusted_users`.
const USERS_MAX: usize = 10_000;

pub(super) fn read(section: Section<'_>) -> SubmissionConfig {
    let folder = section.text("folder").filter(|folder| !folder.value.is_empty());
    let folder: Option<PathBuf> = folder.map(|folder| section.context.path(folder.value));
    let group = section.text("group").filter(|group| !group.value.is_empty());
    let group = group.map_or_else(|| "stentor-drop".to_owned(), |group| group.value.to_owned());
    let strict = section.flag("strict", false);
    let recipients_max = section.number("recipients_max", RECIPIENTS_DEFAULT, 1..=RECIPIENTS_MAX) as u32;
    let mut trusted_users = Vec::new();
    for name in section.texts("trusted_users").unwrap_or_default() {
        if !is_login(name.value) || trusted_users.len() == USERS_MAX {
            section.context.error(name.span, format!("{:?} is not a login name or user id", name.value));
        } else {
            trusted_users.push(name.value.to_owned());
        }
    }
    let senders = senders(&section.section("senders"));
    section.finish();
    SubmissionConfig { folder, group, strict, trusted_users, senders, recipients_max }
}

/// Reads entries such as `ann = ["ann@example.org", "@lists.example.org"]`.
fn senders(table: &Section<'_>) -> BTreeMap<String, Vec<String>> {
    let mut senders = BTreeMap::new();
    for entry in table.entries() {
        table.keep_entry(&entry, || super::settings::value(entry.value));
        if !is_login(&entry.key) || senders.len() == USERS_MAX {
            let message = format!("{:?} is not a login name or user id", entry.key);
            table.context.error(entry.key_span.clone(), message);
            continue;
        }
        let mut addresses = Vec::new();
        for text in table.texts_of(&entry) {
            let known = match text.value.strip_prefix('@') {
                Some(domain) => normalise_domain(domain).map(|domain| format!("@{domain}")),
                None => text.value.parse().map(|address: Address| address.as_str().to_owned()),
            };
            match known {
                Ok(address) => addresses.push(address),
                Err(why) => {
                    let message = format!("{:?} is neither an address nor \"@domain\": {why}", text.value);
                    table.context.error(text.span, message);
                }
            }
        }
        senders.insert(entry.key, addresses);
    }
    senders
}

fn is_login(name: &str) -> bool {
    (1..=256).contains(&name.len()) && name.chars().all(|c| !c.is_control() && !c.is_whitespace() && c != '@')
}
