//! Results of all methods, and their `Authentication-Results` field (RFC 8601).
//!
//! Promise: what a client or the DNS chose cannot end a value, a result or the field: it is in tokens, or in quoted
//! strings without control characters. The field is ASCII, with one result in each line.

use std::net::IpAddr;

use crate::arc::ArcResult;
use crate::dkim::DkimResult;
use crate::dmarc::{DmarcPolicy, DmarcResult};
use crate::method::MethodResult;

/// Name of the field.
pub const FIELD: &str = "Authentication-Results";
/// Octets of `b=` that tell signatures apart (RFC 6008).
const SIGNATURE_BYTES: usize = 8;
/// Longest value in the field.
const VALUE_BYTES_MAX: usize = 300;

/// Which name SPF has checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpfIdentity {
    MailFrom,
    Helo,
}

/// Result of SPF for one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpfResult {
    pub identity: SpfIdentity,
    /// Address or domain.
    pub name: String,
    pub result: MethodResult,
}

/// Results of all methods for one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthResults {
    pub client: IpAddr,
    pub iprev: MethodResult,
    pub spf: Vec<SpfResult>,
    pub dkim: Vec<DkimResult>,
    /// Number of signatures that were not verified.
    pub skipped_signatures: usize,
    pub arc: ArcResult,
    /// For each author's domain.
    pub dmarc: Vec<DmarcResult>,
    /// There are more authors' domains than are examined.
    pub has_more_authors: bool,
    /// The same, if a list's copies were requested.
    pub copies_have_more_authors: bool,
    /// DMARC results that a list's copies would get, one per author's domain; empty unless requested.
    pub copies: Vec<DmarcResult>,
}

impl AuthResults {
    /// Writes the value of the field.
    pub fn value(&self, authserv_id: &str) -> String {
        let mut lines = vec![format!("iprev={} policy.iprev={}", self.iprev.word(), value(&self.client.to_string()))];
        for spf in &self.spf {
            let property = match spf.identity {
                SpfIdentity::MailFrom => "smtp.mailfrom",
                SpfIdentity::Helo => "smtp.helo",
            };
            lines.push(format!("spf={} {property}={}", spf.result.word(), value(&spf.name)));
        }
        if self.dkim.is_empty() {
            lines.push("dkim=none".to_owned());
        }
        lines.extend(self.dkim.iter().map(dkim_line));
        if self.skipped_signatures > 0 {
            lines.push(format!("dkim=neutral reason=\"{} more signatures not verified\"", self.skipped_signatures));
        }
        lines.extend(self.dmarc.iter().map(dmarc_line));
        if self.has_more_authors {
            lines.push("dmarc=permerror reason=\"too many domains in From\"".to_owned());
        }
        lines.push(format!("arc={}{}", self.arc.result.word(), reason(self.arc.reason.as_deref())));
        format!("{};\r\n\t{}", value(authserv_id), lines.join(";\r\n\t"))
    }
}

fn dkim_line(dkim: &DkimResult) -> String {
    let mut line = format!("dkim={}{}", dkim.result.word(), reason(dkim.reason.as_deref()));
    if let Some(signature) = &dkim.signature {
        let text = &signature.text[..signature.text.floor_char_boundary(SIGNATURE_BYTES)];
        for (property, text) in [
            ("header.d", &*signature.domain),
            ("header.s", &*signature.selector),
            ("header.a", signature.algorithm),
            ("header.b", text),
        ] {
            line = format!("{line} {property}={}", value(text));
        }
    }
    line
}

fn dmarc_line(dmarc: &DmarcResult) -> String {
    let policy = dmarc.policy.map(|policy| format!(" policy.dmarc={}", policy.word()));
    format!("dmarc={} header.from={}{}", dmarc.result.word(), value(&dmarc.domain), policy.unwrap_or_default())
}

fn reason(text: Option<&str>) -> String {
    text.map(|text| format!(" reason={}", quoted(text))).unwrap_or_default()
}

/// The text as a token, an address, or a quoted string.
fn value(text: &str) -> String {
    let is_plain = |octet: u8| octet.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`{|}~@/".contains(&octet);
    let is_short = !text.is_empty() && text.len() <= VALUE_BYTES_MAX;
    if is_short && text.bytes().all(is_plain) { text.to_owned() } else { quoted(text) }
}

/// The text as a quoted string; other characters than ASCII's are replaced.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars().take(VALUE_BYTES_MAX) {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            _ => out.push('?'),
        }
    }
    out.push('"');
    out
}

/// What an author's domain asks for a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disposition {
    pub policy: DmarcPolicy,
    pub domain: String,
}

impl AuthResults {
    /// The author's domain whose policy asks receivers not to accept a list's copies as they are, and that policy. A
    /// domain that tests its policy asks lists to act as if it were applied (`t=y`, RFC 9989 section 4.7).
    pub fn refusal_of_copies(&self) -> Option<Disposition> {
        let fails = |one: &&DmarcResult| one.result == MethodResult::Fail;
        let refused = |one: &DmarcResult| {
            let policy = one.policy.filter(|policy| *policy != DmarcPolicy::None)?;
            Some(Disposition { policy, domain: one.domain.clone() })
        };
        let unknown = || Disposition { policy: DmarcPolicy::Reject, domain: String::new() };
        let found = self.copies.iter().filter(fails).find_map(refused);
        found.or_else(|| self.copies_have_more_authors.then(unknown))
    }

    /// What the authors' domains ask for this message, unless all pass or ask nothing.
    pub fn dispositions(&self) -> Vec<Disposition> {
        let of = |dmarc: &DmarcResult| Disposition { policy: dmarc.disposition(), domain: dmarc.domain.clone() };
        let mut all: Vec<_> = self.dmarc.iter().map(of).collect();
        all.retain(|one| one.policy != DmarcPolicy::None);
        // No honest message has so many, and the domain that readers are shown may be one of the rest.
        if self.has_more_authors {
            all.push(Disposition { policy: DmarcPolicy::Reject, domain: String::new() });
        }
        all
    }
}
