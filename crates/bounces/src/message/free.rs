//! Failed recipients in bounces without a delivery status: qmail, Exim, old sendmail, Exchange, and hundreds more.
//!
//! No list of forms: each address in the reporter's words gets a rank from where it stands, and the best rank wins. An
//! address alone on a line behind "the following recipients" is a recipient; one within a sentence about contacts is
//! not. `X-Failed-Recipients` (Exim) goes before all of this.

use std::sync::LazyLock;

use regex::Regex;

use super::collect::Collector;
use super::region::{self, ADDRESS, INTRODUCTION, Texts, addresses_of, cleaned, is_whole};
use super::{REPORTS_MAX, RecipientDraft, ReportAction};

/// How well an address's place says that it is a failed recipient.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PlaceRank {
    /// Behind `To:`: the original's, which may be a list.
    Addressed,
    /// Within a sentence.
    Mentioned,
    /// Behind a word such as "recipient", or alone on a line.
    Named,
    /// Alone on a line behind an introduction, or named in the sentence that reports the failure.
    Listed,
}

static NAMING: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?ix)(recipient|deliver(y|ed|ing)?|undeliverable|user|userid|mailbox|account|address(es|ed|ee)?|rcpt\ to|error-for|recipiente|destinatario|empfänger|ящик|attempts|reach|send\ to|sent\ to|message\ to|mail\ to|for\ user)(?-u:\b)[^a-z]{0,4}(\w+[^\w]{1,3}){0,2}$",
    )
    .expect("the pattern is constant")
});

static CONTACT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?ix)(contact|please\ (send|forward|reply|e-?mail|write)|e-?mail\ us|^\W*from:|^\W*sender:|^\W*cc:|^\W*reply-to:|message-id|in-reply-to|references:|help|support|for\ assistance|questions|^\W*subject:|postmaster|mail\ from|(mail|messages?|sent|received)\ from\ <?$|relay=|unsubscribe|sent\ by|administrator)",
    )
    .expect("the pattern is constant")
});

/// The address that we sent to, behind the one that failed: `(expanded from: a@example.org)` of sendmail, `(generated
/// from a@example.org)` of Exim.
static EXPANDED: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)\((?:expanded|generated) from:? <?([^\s<>()]+@[^\s<>()]+)>?\)").expect("the pattern is constant")
});

/// Local parts of the reporter's own addresses.
const ROLES: [&str; 7] = ["postmaster", "mailer-daemon", "abuse", "hostmaster", "mdaemon", "root", "support"];

/// Addresses of one line that are examined, and octets before each.
const LINE_ADDRESSES_MAX: usize = 50;
const BEFORE_BYTES_MAX: usize = 100;

struct Candidate {
    address: String,
    rank: PlaceRank,
}

pub(super) fn read(collected: &Collector, is_delay: bool) -> Vec<RecipientDraft> {
    let texts = Texts::of(collected);
    let mut addresses = addresses_of(&collected.header.failed_recipients);
    if addresses.is_empty() {
        addresses = best(candidates(collected));
    }
    let action = if is_delay { ReportAction::Delayed } else { ReportAction::Failed };
    let drafts = addresses.into_iter().take(REPORTS_MAX).map(|listed| {
        let reply = texts.about(&listed);
        let sent_to = EXPANDED.captures(&reply).map(|found| found[1].to_owned());
        let final_recipient = sent_to.as_ref().map(|_| listed.clone());
        let recipient = sent_to.unwrap_or(listed);
        RecipientDraft { recipient, final_recipient, action, status: None, reply, host: String::new() }
    });
    drafts.collect()
}

/// The addresses of the best rank. Several that are merely mentioned are too doubtful.
fn best(candidates: Vec<Candidate>) -> Vec<String> {
    let Some(rank) = candidates.iter().map(|candidate| candidate.rank).max() else { return Vec::new() };
    let mut best: Vec<String> = Vec::new();
    for candidate in candidates {
        let is_known = best.iter().any(|known| known.eq_ignore_ascii_case(&candidate.address));
        if candidate.rank == rank && !is_known {
            best.push(candidate.address);
        }
    }
    if rank <= PlaceRank::Mentioned && best.len() > 1 { Vec::new() } else { best }
}

fn candidates(collected: &Collector) -> Vec<Candidate> {
    let own = addresses_of(&format!("{} {}", collected.header.from, collected.header.to));
    let region = region::before_original(&collected.text);
    let mut found = Vec::new();
    let mut is_introduced = false;
    for line in region.lines() {
        let introduces = INTRODUCTION.is_match(line);
        for address in ADDRESS.find_iter(line).take(LINE_ADDRESSES_MAX) {
            let before = &line[..address.start()];
            let before = &before[before.ceil_char_boundary(before.len().saturating_sub(BEFORE_BYTES_MAX))..];
            // A gateway's form of an address: `dda:SMTP=user@example.org`.
            let is_gateway = address.as_str().to_ascii_lowercase().starts_with("smtp=");
            let address = cleaned(address.as_str());
            let local = address.split('@').next().unwrap_or_default();
            let is_own = own.iter().any(|known| known.eq_ignore_ascii_case(address))
                || ROLES.iter().any(|role| local.eq_ignore_ascii_case(role));
            if is_own || !is_whole(address) || CONTACT.is_match(before) && !NAMING.is_match(before) {
                continue;
            }
            let rank = rank(if is_gateway { "" } else { before }, is_introduced, introduces);
            found.push(Candidate { address: address.to_owned(), rank });
            if found.len() >= REPORTS_MAX {
                return found;
            }
        }
        is_introduced |= introduces;
    }
    if found.is_empty() {
        let subject = addresses_of(&collected.header.subject).into_iter();
        found.extend(subject.map(|address| Candidate { address, rank: PlaceRank::Named }));
    }
    found
}

/// The rank of an address behind this text of its line.
fn rank(before: &str, is_introduced: bool, introduces: bool) -> PlaceRank {
    if before.trim().eq_ignore_ascii_case("to:") {
        return PlaceRank::Addressed;
    }
    let is_alone = !before.contains(char::is_alphanumeric);
    // `"Name" <address>`, alone on its line.
    let is_with_name = before.trim_start().starts_with('"') && before.trim_end().ends_with(['<', '"']);
    let is_naming = NAMING.is_match(before);
    let is_by_itself = is_alone || is_with_name;
    if is_by_itself && (is_introduced || introduces) || is_naming && introduces {
        PlaceRank::Listed
    } else if is_by_itself || is_naming {
        PlaceRank::Named
    } else {
        PlaceRank::Mentioned
    }
}
