//! `stentor suppress`: adds, removes and lists suppressions.
//!
//! Promise: the journal's audit record is durable before the change, and the change is durable before the reply. A
//! crash between the two leaves an audit record of a change that nobody was told of.

use std::sync::Arc;

use serde_json::json;
use stentor_control::format::plural;
use stentor_control::{
    ControlReply, ErrorCode, NewSuppression, NewSuppressions, Problem, Requester, SuppressionList, SuppressionName,
    SuppressionOptions, SuppressionRemoval, SuppressionRequest, SuppressionView,
};
use stentor_core::Core;
use stentor_core::audit::Audit;
use stentor_core::verb::QueueChange;
use stentor_queue::ids::Ms;
use stentor_registry::{
    EntryEffect, RegistryError, Scope, Subject, Suppression, SuppressionError, SuppressionKey, SuppressionQuery,
    SuppressionReason,
};

use super::author::who;
use crate::suppression_forms::{list_remark, view};

/// Entries that `stentor address` shows.
const COVERING_MAX: usize = 100;
/// Entries that an answer names.
const NAMED_MAX: usize = 5;
/// Pages of the store searched for the rows of one answer: 10,000 entries each.
const PAGES_MAX: usize = 100;

pub async fn answer(core: &Arc<Core>, request: SuppressionRequest, peer: &Requester) -> ControlReply {
    let answered = match request {
        SuppressionRequest::Add(new) => add(core, new, peer).await,
        SuppressionRequest::Remove(removal) => remove(core, removal, peer).await,
        SuppressionRequest::List(options) => list(core, options).await,
    };
    answered.unwrap_or_else(ControlReply::Error)
}

async fn add(core: &Arc<Core>, new: NewSuppressions, peer: &Requester) -> Result<ControlReply, Problem> {
    let (now, author) = (core.clock.now(), who(peer));
    let NewSuppressions { entries, source, known_lists_only } = new;
    let source = source.as_deref().unwrap_or(&author);
    let entries: Vec<Suppression> = entries
        .into_iter()
        .enumerate()
        .map(|(n, entry)| parse_entry(entry, source, now).map_err(|error| bad(n, &error)))
        .collect::<Result<_, _>>()?;
    let given = entries.len();
    let entries: Vec<Suppression> = entries.into_iter().filter(|entry| !entry.has_expired(now)).collect();
    let expired = (given - entries.len()) as u64;
    if entries.is_empty() {
        let text = "all entries have expired already; give a later `expires`, or omit it".to_owned();
        return Err(Problem::new(ErrorCode::BadRequest, text));
    }
    let keys = entries.iter().map(|entry| &entry.key);
    let remarks = Vec::from_iter(unknown_list(core, keys));
    if let Some(unknown) = remarks.first().filter(|_| known_lists_only) {
        return Err(Problem::new(ErrorCode::NotFound, format!("nothing was added: {unknown}")));
    }
    let remark = format!("{}{}", expired_remark(expired), appended(&remarks));
    let words = entries.first().filter(|_| given == 1).map(|entry| words(&entry.key));
    let first = entries.first().map(|entry| (entry.key.clone(), entry.reason));
    let mut detail = json!({"entries": entries.len(), "source": source});
    if let Some((key, reason)) = first {
        detail["first"] = key.subject.text().into();
        detail["scope"] = key.scope.text().into();
        detail["reason"] = reason.name().into();
    }
    record(core, now, author.clone(), "suppress", detail).await?;
    let effects = core.registry.suppress_all(entries).await.map_err(|error| failed(&error))?;
    let count = |effect| effects.iter().filter(|other| **other == effect).count() as u64;
    let (added, extended) = (count(EntryEffect::Added), count(EntryEffect::Extended));
    let there = effects.len() as u64 - added - extended;
    tracing::info!(who = author, added, extended, unchanged = there, "operator: suppressions added");
    let text = match words {
        Some(words) if added + extended > 0 => format!("{words} is suppressed{remark}"),
        Some(words) if matches!(effects[..], [EntryEffect::ReasonChanged { .. }]) => {
            format!("{words} is already suppressed for as long or longer; its reason is complaint now{remark}")
        }
        Some(words) => format!(
            "{words} is already suppressed for as long or longer, so nothing was changed; to change an entry, remove it \
             first{remark}"
        ),
        None => format!("{} added, {extended} extended, {there} already there{remark}", plural(added, "entry")),
    };
    Ok(ControlReply::Done { text, count: Some(added + extended), remarks })
}

async fn remove(core: &Arc<Core>, removal: SuppressionRemoval, peer: &Requester) -> Result<ControlReply, Problem> {
    let (now, author) = (core.clock.now(), who(peer));
    let keys: Vec<SuppressionKey> = removal
        .entries
        .iter()
        .enumerate()
        .map(|(n, name)| SuppressionKey::parse(&name.subject, &name.scope).map_err(|error| bad(n, &error)))
        .collect::<Result<_, _>>()?;
    let mut detail = json!({"entries": keys.len(), "reason": removal.reason});
    if let Some(key) = keys.first() {
        detail["first"] = key.subject.text().into();
        detail["scope"] = key.scope.text().into();
    }
    record(core, now, author.clone(), "unsuppress", detail).await?;
    let were_there = core.registry.remove(keys.clone()).await.map_err(|error| failed(&error))?;
    let missing: Vec<&SuppressionKey> =
        keys.iter().zip(&were_there).filter(|(_, was_there)| !**was_there).map(|(key, _)| key).collect();
    let removed = (keys.len() - missing.len()) as u64;
    tracing::info!(who = author, removed, "operator: suppressions removed");
    let mut named: Vec<String> = Vec::new();
    for key in missing.iter().take(NAMED_MAX) {
        named.push(format!("{} is not suppressed{}", words(key), other_scopes(core, key).await));
    }
    let more = missing.len().saturating_sub(NAMED_MAX);
    named.extend((more > 0).then(|| format!("nor are {more} more")));
    let missing = format!("{}{}", named.join("; "), appended(unknown_list(core, missing).as_slice()));
    if removed == 0 {
        return Err(Problem::new(ErrorCode::NotFound, missing));
    }
    let text = match &keys[..] {
        [key] => format!("{} is no longer suppressed", words(key)),
        all if missing.is_empty() => format!("{} removed", plural(all.len() as u64, "entry")),
        all => format!("{removed} of {} removed; {missing}", plural(all.len() as u64, "entry")),
    };
    Ok(ControlReply::done(text, Some(removed)))
}

/// Names the scopes for which an address is suppressed instead, as options of the command.
async fn other_scopes(core: &Core, key: &SuppressionKey) -> String {
    let others = of(core, &key.subject.text()).await;
    let scopes: Vec<String> =
        others.iter().take(NAMED_MAX).map(|other| remove_arguments(other, &key.subject.text())).collect();
    if scopes.is_empty() { String::new() } else { format!(", but has entries: {}", scopes.join(", ")) }
}

/// Returns the arguments of `suppress remove` for an entry of this subject or its domain.
fn remove_arguments(other: &SuppressionView, subject: &str) -> String {
    let option = match other.scope.split_once(':') {
        Some((kind, name)) => format!("--{kind} {name}"),
        None => "all mail".to_owned(),
    };
    if other.subject == subject { option } else { format!("{} ({option})", other.subject) }
}

/// A remark on entries that have expired.
fn expired_remark(entries: u64) -> String {
    if entries == 0 { String::new() } else { format!("; {} already expired, not added", plural(entries, "entry")) }
}

/// The entries that cover an address; none if they cannot be read now.
pub(super) async fn of(core: &Core, address: &str) -> Vec<SuppressionView> {
    let subjects = Subject::parse(address).map(|subject| covering(&subject)).unwrap_or_default();
    if subjects.is_empty() || core.registry.is_empty() {
        return Vec::new();
    }
    let query = SuppressionQuery { subjects, rows_max: COVERING_MAX, ..SuppressionQuery::default() };
    let listed = core.registry.list(query).await.unwrap_or_default();
    listed.rows.iter().map(view).collect()
}

/// The subjects whose entries cover this one, in text.
fn covering(subject: &Subject) -> Vec<String> {
    let domain = match subject {
        Subject::Address(address) => address.rsplit_once('@').map(|(_, domain)| format!("@{domain}")),
        Subject::Domain(_) => None,
    };
    std::iter::once(subject.text()).chain(domain).collect()
}

async fn list(core: &Arc<Core>, options: SuppressionOptions) -> Result<ControlReply, Problem> {
    let wrong = |error: SuppressionError| Problem::new(ErrorCode::BadRequest, error.to_string());
    let subjects = match options.subject.as_deref().map(Subject::parse).transpose().map_err(wrong)? {
        None => Vec::new(),
        Some(subject) => covering(&subject),
    };
    let scope = options.scope.as_deref().map(Scope::parse).transpose().map_err(wrong)?;
    let remarks = Vec::from_iter(scope.as_ref().and_then(|scope| list_remark(core, scope)));
    let scope = scope.map(|scope| scope.text());
    let after = options.after.map(|name| SuppressionKey::parse(&name.subject, &name.scope));
    let after = after.transpose().map_err(wrong)?;
    let reason = options.reason.as_deref().map(SuppressionReason::parse).transpose().map_err(wrong)?;
    let rows_max = options.rows_max as usize;
    let mut query = SuppressionQuery { subjects, scope, reason, after, rows_max };
    let mut rows = Vec::new();
    for _ in 0..PAGES_MAX {
        let listed = core.registry.list(query.clone()).await.map_err(|error| failed(&error))?;
        rows.extend(listed.rows.iter().map(view));
        (query.after, query.rows_max) = (listed.next, rows_max - rows.len().min(rows_max));
        if query.after.is_none() || query.rows_max == 0 {
            break;
        }
    }
    Ok(ControlReply::Suppressions(Box::new(SuppressionList {
        now: core.clock.now(),
        entries: core.registry.len() as u64,
        remarks,
        rows,
        next: query.after.map(|key| SuppressionName::of(key.subject.text(), key.scope.text())),
    })))
}

fn parse_entry(entry: NewSuppression, source: &str, now: Ms) -> Result<Suppression, SuppressionError> {
    let scope = entry.scope.as_deref().map_or(Ok(Scope::Everything), Scope::parse)?;
    let reason = entry.reason.as_deref().map_or(Ok(SuppressionReason::Operator), SuppressionReason::parse)?;
    let (source, since) = (entry.source.as_deref().unwrap_or(source), entry.since.unwrap_or(now));
    let suppression = Suppression {
        note: entry.note.unwrap_or_default().into(),
        expires: entry.expires,
        ..Suppression::new(Subject::parse(&entry.subject)?, scope, reason, source, since)
    };
    suppression.check()?;
    Ok(suppression)
}

fn words(key: &SuppressionKey) -> String {
    match &key.scope {
        Scope::Everything => key.subject.text(),
        Scope::List(name) => format!("{} for list {name}", key.subject.text()),
        Scope::Sender(sender) => format!("{} for sender {sender}", key.subject.text()),
    }
}

/// A remark on the first list that is not configured.
fn unknown_list<'a>(core: &Core, keys: impl IntoIterator<Item = &'a SuppressionKey>) -> Option<String> {
    keys.into_iter().find_map(|key| list_remark(core, &key.scope))
}

/// Remarks at the end of a text.
fn appended(remarks: &[String]) -> String {
    remarks.iter().fold(String::new(), |all, remark| all + "; " + remark)
}

pub(super) async fn record(
    core: &Arc<Core>,
    at: Ms,
    who: String,
    verb: &'static str,
    detail: serde_json::Value,
) -> Result<(), Problem> {
    let audit = Audit { at, who, verb, detail: detail.to_string() };
    // The journal has only the audit record.
    let recorded = core.intake.verb(audit, QueueChange::TryNow { recipients: Vec::new() }).await;
    recorded.map_err(|refused| Problem::new(ErrorCode::Failed, format!("{verb}: {refused}")))
}

fn bad(position: usize, error: &SuppressionError) -> Problem {
    Problem::new(ErrorCode::BadRequest, format!("entry {}: {error}", position + 1))
}

pub(super) fn failed(error: &RegistryError) -> Problem {
    Problem::new(ErrorCode::Failed, error.to_string())
}
