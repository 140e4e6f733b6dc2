//! `message/delivery-status` (RFC 3464): groups of fields, the first for the message, one for each recipient.
//!
//! Real reports leave out fields, spaces and groups, or use the type `x400` for an address; what is not understood is
//! skipped. A group with a recipient is a recipient's, wherever it stands.

use stentor_mail::reply::Enhanced;

use super::region::is_whole;
use super::{REPORTS_MAX, RecipientDraft, ReportAction};

/// A delivery status that was read.
#[derive(Debug, Default)]
pub(super) struct StatusPart {
    pub envelope_id: Option<String>,
    pub reporter: Option<String>,
    pub recipients: Vec<RecipientDraft>,
}

/// Fields of one group.
#[derive(Default)]
struct Group {
    original: String,
    last: String,
    action: String,
    status: String,
    diagnostic: String,
    remote: String,
}

pub(super) fn read(text: &str) -> StatusPart {
    let mut part = StatusPart::default();
    let mut group = Group::default();
    for line in unfolded(text) {
        if line.trim().is_empty() {
            finish(&std::mem::take(&mut group), &mut part);
            continue;
        }
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match name.trim().to_ascii_lowercase().as_str() {
            "original-envelope-id" => part.envelope_id = Some(value.to_owned()),
            "reporting-mta" => part.reporter = Some(without_type(value).to_ascii_lowercase()),
            // Some reporters leave out the empty line between recipients.
            "original-recipient" => {
                if !group.original.is_empty() {
                    finish(&std::mem::take(&mut group), &mut part);
                }
                value.clone_into(&mut group.original);
            }
            "final-recipient" => {
                if !group.last.is_empty() {
                    finish(&std::mem::take(&mut group), &mut part);
                }
                value.clone_into(&mut group.last);
            }
            "action" => value.clone_into(&mut group.action),
            "status" => value.clone_into(&mut group.status),
            "diagnostic-code" => value.clone_into(&mut group.diagnostic),
            "remote-mta" => value.clone_into(&mut group.remote),
            _ => {}
        }
    }
    finish(&group, &mut part);
    part
}

/// Lines, with their continuations.
fn unfolded(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        match lines.last_mut() {
            Some(last) if line.starts_with([' ', '\t']) && !line.trim().is_empty() && !last.trim().is_empty() => {
                last.push(' ');
                last.push_str(line.trim());
            }
            _ => lines.push(line.to_owned()),
        }
    }
    lines
}

fn finish(group: &Group, part: &mut StatusPart) {
    let original = address(&group.original);
    let last = address(&group.last);
    let Some(recipient) = original.clone().or_else(|| last.clone()) else { return };
    if part.recipients.len() >= REPORTS_MAX {
        return;
    }
    let status = group.status.split_whitespace().next().and_then(Enhanced::parse);
    let action = action(&group.action, status);
    let draft = RecipientDraft {
        final_recipient: last.filter(|last| !last.eq_ignore_ascii_case(&recipient)),
        recipient,
        action,
        status: status.filter(|status| status.class != 2),
        reply: without_type(&group.diagnostic).to_owned(),
        host: without_type(&group.remote).split([' ', '[', '(']).next().unwrap_or_default().to_ascii_lowercase(),
    };
    // Some reporters repeat a group in a second part.
    if !part.recipients.contains(&draft) {
        part.recipients.push(draft);
    }
}

/// The value behind its type (`rfc822;`, `dns;`, `smtp;`).
fn without_type(value: &str) -> &str {
    match value.split_once(';') {
        Some((kind, rest)) if !kind.trim().is_empty() && !kind.trim().contains(' ') => rest.trim(),
        _ => value.trim(),
    }
}

/// The address of a recipient field; `None` for other address types.
fn address(value: &str) -> Option<String> {
    let value = without_type(value);
    let inner = value.rsplit_once('<').map_or(value, |(_, inner)| inner);
    let address = inner.split('>').next().unwrap_or_default().trim().trim_matches('"');
    let is_address = address.contains('@')
        && !address.contains(char::is_whitespace)
        && !address.starts_with('/')
        && is_whole(address);
    is_address.then(|| unescaped(address))
}

/// Decodes `\x{F6}` (RFC 6533 section 3).
fn unescaped(address: &str) -> String {
    let mut out = String::with_capacity(address.len());
    let mut rest = address;
    while let Some((before, after)) = rest.split_once("\\x{") {
        out.push_str(before);
        let decoded = after.split_once('}').and_then(|(hex, behind)| {
            let c = u32::from_str_radix(hex, 16).ok().and_then(char::from_u32)?;
            let c = Some(c).filter(|c| !c.is_control() && !c.is_whitespace())?;
            Some((c, behind))
        });
        if let Some((c, behind)) = decoded {
            out.push(c);
            rest = behind;
        } else {
            out.push_str("\\x{");
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

/// The action; from the status if the field is missing or has another word.
fn action(value: &str, status: Option<Enhanced>) -> ReportAction {
    let word: String = value.trim().chars().take_while(char::is_ascii_alphabetic).collect();
    match word.to_ascii_lowercase().as_str() {
        "delayed" => ReportAction::Delayed,
        "delivered" | "deliverable" => ReportAction::Delivered,
        "relayed" => ReportAction::Relayed,
        "expanded" => ReportAction::Expanded,
        "" if status.is_some_and(|status| status.class == 2) => ReportAction::Delivered,
        "" if status.is_some_and(|status| status.class == 4) => ReportAction::Delayed,
        _ => ReportAction::Failed,
    }
}
