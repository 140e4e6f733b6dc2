//! `stentor suppress`: adds, removes and lists suppressions.
//!
//! Promise: the journal's audit record is durable before the change, and the change is durable before the reply. A
//! crash between the two leaves an audit record of a change that nobody was told of.

use std::sync::Arc;

use serde_json::json;
use stentor_control::format::plural;
use stentor_control::{
    ControlReply, EndedSuppressions, ErrorCode, NewSuppression, NewSuppressions, Problem, Requester, SuppressionList,
    SuppressionName, SuppressionOptions, SuppressionRequest, SuppressionView,
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
use crate::lists;

/// Entries that `stentor address` shows.
const COVERING_MAX: usize = 100;

pub async fn answer(core: &Arc<Core>, request: SuppressionRequest, peer: &Requester) -> ControlReply {
    let answered = match request {
        SuppressionRequest::Add(new) => add(core, new, peer).await,
        SuppressionRequest::Remove(ended) => remove(core, ended, peer).await,
        SuppressionRequest::List(options) => list(core, options).await,
    };
    answered.unwrap_or_else(ControlReply::Error)
}

async fn add(core: &Arc<Core>, new: NewSuppressions, peer: &Requester) -> Result<ControlReply, Problem> {
    let (now, author) = (core.clock.now(), who(peer));
    let source = new.source.as_deref().unwrap_or(&author);
    let entries: Vec<Suppression> = new
        .entries
        .into_iter()
        .enumerate()
        .map(|(n, entry)| parsed(entry, source, now).map_err(|error| bad(n, &error)))
        .collect::<Result<_, _>>()?;
    let remark = unknown_list(core, &entries);
    let words = entries.first().filter(|_| entries.len() == 1).map(|entry| words(&entry.key));
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
    let there = count(EntryEffect::Unchanged);
    tracing::info!(who = author, added, extended, unchanged = there, "operator: suppressions added");
    let text = match words {
        Some(words) if added + extended > 0 => format!("{words} is suppressed{remark}"),
        Some(words) => format!("{words} is already suppressed, for as long or longer{remark}"),
        None => format!("{} added, {extended} extended, {there} unchanged{remark}", plural(added, "entry")),
    };
    Ok(ControlReply::Done { text, count: Some(added + extended) })
}

async fn remove(core: &Arc<Core>, ended: EndedSuppressions, peer: &Requester) -> Result<ControlReply, Problem> {
    let (now, author) = (core.clock.now(), who(peer));
    let keys: Vec<SuppressionKey> = ended
        .entries
        .iter()
        .enumerate()
        .map(|(n, name)| SuppressionKey::parse(&name.subject, &name.scope).map_err(|error| bad(n, &error)))
        .collect::<Result<_, _>>()?;
    let mut detail = json!({"entries": keys.len(), "reason": ended.reason});
    if let Some(key) = keys.first() {
        detail["first"] = key.subject.text().into();
        detail["scope"] = key.scope.text().into();
    }
    record(core, now, author.clone(), "unsuppress", detail).await?;
    let single = keys.first().filter(|_| keys.len() == 1).map(words);
    let removed = core.registry.remove(keys).await.map_err(|error| failed(&error))?;
    let (all, removed) = (removed.len(), removed.into_iter().filter(|was_there| *was_there).count());
    tracing::info!(who = author, removed, "operator: suppressions removed");
    match single {
        Some(words) if removed == 0 => {
            let text = format!("{words} is not suppressed; `stentor suppress list` shows the entries");
            Err(Problem::new(ErrorCode::NotFound, text))
        }
        Some(words) => {
            Ok(ControlReply::Done { text: format!("{words} is no longer suppressed"), count: Some(removed as u64) })
        }
        None => {
            let text = format!("{removed} of {} removed", plural(all as u64, "entry"));
            Ok(ControlReply::Done { text, count: Some(removed as u64) })
        }
    }
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
    let scope = options.scope.as_deref().map(Scope::parse).transpose().map_err(wrong)?.map(|scope| scope.text());
    let after = options.after.map(|name| SuppressionKey::parse(&name.subject, &name.scope));
    let after = after.transpose().map_err(wrong)?;
    let query = SuppressionQuery { subjects, scope, after, rows_max: options.rows_max as usize };
    let listed = core.registry.list(query).await.map_err(|error| failed(&error))?;
    Ok(ControlReply::Suppressions(Box::new(SuppressionList {
        now: core.clock.now(),
        entries: core.registry.len() as u64,
        rows: listed.rows.iter().map(view).collect(),
        next: listed.next.map(|key| SuppressionName::of(key.subject.text(), key.scope.text())),
    })))
}

fn view(entry: &Suppression) -> SuppressionView {
    SuppressionView {
        subject: entry.key.subject.text(),
        scope: entry.key.scope.text(),
        reason: entry.reason.name().to_owned(),
        source: entry.source.to_string(),
        note: entry.note.to_string(),
        since: entry.since,
        expires: entry.expires,
    }
}

fn parsed(entry: NewSuppression, source: &str, now: Ms) -> Result<Suppression, SuppressionError> {
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
fn unknown_list(core: &Arc<Core>, entries: &[Suppression]) -> String {
    let mut names = entries.iter().filter_map(|entry| match &entry.key.scope {
        Scope::List(name) => Some(&**name),
        Scope::Everything | Scope::Sender(_) => None,
    });
    let unknown = names.find(|name| lists::unknown(core, Some(name)).is_some());
    unknown.map_or_else(String::new, |name| format!("; there is no list {name} in the configuration"))
}

async fn record(
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

fn failed(error: &RegistryError) -> Problem {
    Problem::new(ErrorCode::Failed, error.to_string())
}
