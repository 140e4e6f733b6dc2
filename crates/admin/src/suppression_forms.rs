//! Suppressions in the forms of requests and rows.

use stentor_control::{NewSuppression, SuppressionView};
use stentor_core::Core;
use stentor_registry::{Scope, Subject, Suppression, SuppressionError, SuppressionReason};

use crate::lists;

/// A remark on a scope whose list is not configured.
pub fn list_remark(core: &Core, scope: &Scope) -> Option<String> {
    match scope {
        Scope::List(name) => lists::unknown(core, Some(name)).map(|problem| problem.text),
        Scope::Everything | Scope::Sender(_) => None,
    }
}

/// The request that adds this entry.
pub fn addition(entry: &Suppression) -> NewSuppression {
    NewSuppression {
        subject: entry.key.subject.text(),
        scope: Some(entry.key.scope.text()),
        reason: Some(entry.reason.name().to_owned()),
        source: Some(entry.source.to_string()),
        note: (!entry.note.is_empty()).then(|| entry.note.to_string()),
        since: Some(entry.since),
        expires: entry.expires,
    }
}

/// The row that shows this entry.
pub fn view(entry: &Suppression) -> SuppressionView {
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

/// The entry that a row shows.
///
/// # Errors
/// The row is not from a server of this version.
pub fn entry(row: &SuppressionView) -> Result<Suppression, SuppressionError> {
    let reason = SuppressionReason::parse(&row.reason)?;
    let (subject, scope) = (Subject::parse(&row.subject)?, Scope::parse(&row.scope)?);
    Ok(Suppression {
        note: row.note.as_str().into(),
        expires: row.expires,
        ..Suppression::new(subject, scope, reason, &row.source, row.since)
    })
}
