//! Finds the block list that a reply names, in the words of common servers.
//!
//! Promise: cause, counters and alarms all use this one function. A well-known list gets its own name; any other list
//! gets the name of the host in the reply (a DNS zone, or the host of a URL). A reply that says "greylisted" names no
//! list, nor does one that says that a user is not listed. Bounded: only the first [`LOOKED_BYTES_MAX`] octets are
//! examined.

use std::borrow::Cow;

/// Longer replies are cut here.
const LOOKED_BYTES_MAX: usize = 2_048;
/// Name for a list that the reply does not name: the host's own.
const OWN: &str = "the host's own list";

/// Text that identifies a list by itself: zones, look-up pages, codes.
const MARKS: [(&str, &str); 41] = [
    ("zen.spamhaus", "Spamhaus ZEN"),
    ("sbl-xbl.spamhaus", "Spamhaus SBL-XBL"),
    ("xbl.spamhaus", "Spamhaus XBL"),
    ("sbl.spamhaus", "Spamhaus SBL"),
    ("pbl.spamhaus", "Spamhaus PBL"),
    ("dbl.spamhaus", "Spamhaus DBL"),
    ("spamhaus.org/sbl", "Spamhaus SBL"),
    ("spamhaus.org/query/sbl", "Spamhaus SBL"),
    ("spamhaus.org/query/domain", "Spamhaus DBL"),
    ("spamhaus.org/pbl", "Spamhaus PBL"),
    ("spamhaus.org/xbl", "Spamhaus XBL"),
    ("zrd.dq.spamhaus", "Spamhaus ZRD"),
    ("spamhaus.org", "Spamhaus"),
    ("spamhaus.net", "Spamhaus"),
    ("spamcop.net", "SpamCop"),
    ("barracudacentral.org", "Barracuda"),
    ("barracudanetworks.com/reputation", "Barracuda"),
    ("sorbs.net", "SORBS"),
    ("uceprotect.net", "UCEPROTECT"),
    ("backscatterer.org", "Backscatterer"),
    ("invaluement.com", "Invaluement"),
    ("cloudmark.com", "Cloudmark"),
    ("ipcheck.proofpoint.com", "Proofpoint"),
    ("support.proofpoint.com/dnsbl", "Proofpoint"),
    ("s3140", "Microsoft S3140"),
    ("s3150", "Microsoft S3150"),
    ("banned sending ip", "Microsoft"),
    ("sender.office.com", "Microsoft"),
    ("delist.messaging.microsoft.com", "Microsoft"),
    ("cbl.abuseat", "CBL"),
    ("abuseat.org", "CBL"),
    ("psbl.surriel", "PSBL"),
    ("psbl.org", "PSBL"),
    ("mailspike.", "Mailspike"),
    ("surbl.org", "SURBL"),
    ("uribl.com", "URIBL"),
    ("senderscore.", "Sender Score"),
    ("dnsbl.manitu", "NiX Spam"),
    ("spamrats.com", "SpamRATS"),
    ("ers.trendmicro", "Trend Micro"),
    ("mail.abusix", "Abusix"),
];

/// Names of lists that count only beside a word for a refusal: makers of mail servers have the same names.
const NAMES: [(&str, &str); 13] = [
    ("spamhaus", "Spamhaus"),
    ("spamcop", "SpamCop"),
    ("barracuda", "Barracuda"),
    ("brbl", "Barracuda"),
    ("sorbs", "SORBS"),
    ("uceprotect", "UCEPROTECT"),
    ("invaluement", "Invaluement"),
    ("ivmsip", "Invaluement"),
    ("cloudmark", "Cloudmark"),
    ("proofpoint", "Proofpoint"),
    ("surbl", "SURBL"),
    ("uribl", "URIBL"),
    ("abusix", "Abusix"),
];

/// Words for being on a list, or being refused because of one.
const REFUSALS: [&str; 9] =
    ["blocked", "block list", "blocklist", "blacklist", "black list", "listed", "reputation", "rbl", "dnsbl"];
/// Words that mean a list whatever follows them.
const LISTS: [&str; 7] = ["blacklist", "black list", "black-list", "blocklist", "block list", "block-list", "dnsbl"];
/// Words followed by the list's host.
const BEFORE_HOST: [&str; 8] =
    ["blocked using", "blocked by", "listed at", "listed in", "listed on", "listed by", "rejected by", "found in"];

/// The list on which the reply says that the sender's host, domain or content is.
pub fn block_list(text: &str) -> Option<Cow<'static, str>> {
    let end = (0..=LOOKED_BYTES_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let text = text[..end].to_ascii_lowercase();
    if ["greylist", "graylist", "grey list", "gray list", "grey-list", "gray-list"]
        .iter()
        .any(|word| text.contains(word))
    {
        return None;
    }
    if let Some((_, name)) = MARKS.iter().find(|(mark, _)| at_word(&text, mark).is_some()) {
        return Some(Cow::Borrowed(name));
    }
    let is_refused = REFUSALS.iter().any(|word| is_said(&text, word));
    if let Some((_, name)) = NAMES.iter().find(|(name, _)| is_word(&text, name)).filter(|_| is_refused) {
        return Some(Cow::Borrowed(name));
    }
    let about_list = LISTS.iter().any(|word| is_said(&text, word)) || is_word(&text, "rbl");
    for words in BEFORE_HOST {
        if let Some(at) = at_word(&text, words).filter(|at| !is_denied(&text[..*at]))
            && let Some(host) = host_in(&text[at + words.len()..]).filter(|host| about_list || is_zone(host))
        {
            return Some(Cow::Owned(host));
        }
    }
    if !about_list {
        return None;
    }
    Some(url_host(&text).map_or(Cow::Borrowed(OWN), Cow::Owned))
}

/// Position at which `words` begin as a word: no letter or digit precedes them.
fn at_word(text: &str, words: &str) -> Option<usize> {
    let is_start = |at: &usize| !text[..*at].ends_with(|c: char| c.is_ascii_alphanumeric());
    text.match_indices(words).map(|(at, _)| at).find(is_start)
}

/// Whether `word` occurs as a whole word.
fn is_word(text: &str, word: &str) -> bool {
    let is_alone = |at: usize| {
        !text[..at].ends_with(|c: char| c.is_ascii_alphanumeric())
            && !text[at + word.len()..].starts_with(|c: char| c.is_ascii_alphanumeric())
    };
    text.match_indices(word).any(|(at, _)| is_alone(at))
}

/// Whether `word` occurs and is not negated.
fn is_said(text: &str, word: &str) -> bool {
    at_word(text, word).is_some_and(|at| !is_denied(&text[..at]))
}

/// Whether the text before a word negates it: "not listed", "never blocked", "not on any blacklist".
fn is_denied(before: &str) -> bool {
    let mut words = before.split_ascii_whitespace().rev().take(3);
    words.any(|word| matches!(word, "not" | "never" | "no" | "isn't" | "longer" | "nor"))
}

/// Host of the first URL.
fn url_host(text: &str) -> Option<String> {
    let at = text.find("://")? + 3;
    host_at(&text[at..])
}

/// The next name with a dot, in a URL or by itself.
fn host_in(text: &str) -> Option<String> {
    const WORDS_MAX: usize = 6;
    text.split_ascii_whitespace().take(WORDS_MAX).find_map(|word| {
        let word = word.trim_start_matches(['(', '<', '[', '"', '\'']);
        host_at(word.split_once("://").map_or(word, |(_, rest)| rest))
    })
}

/// Host name at the beginning of the text, unless it is a client's IP address or a person's mail address.
fn host_at(text: &str) -> Option<String> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))).unwrap_or(text.len());
    let (host, rest) = (text[..end].trim_end_matches(['.', '-']), &text[end..]);
    let is_name =
        host.contains('.') && host.rsplit('.').next().is_some_and(|last| last.bytes().all(|b| b.is_ascii_alphabetic()));
    (is_name && host.len() <= 253 && !rest.starts_with('@')).then(|| host.to_owned())
}

/// Whether the zone's name says that it is a block list.
fn is_zone(host: &str) -> bool {
    const LABELS: [&str; 8] = ["bl", "rbl", "dnsbl", "zen", "sbl", "xbl", "blacklist", "blocklist"];
    let is_label = |label: &str| LABELS.contains(&label) || label.ends_with("bl") && label.len() > 2;
    host.split('.').any(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_named_as_replies_name_them() {
        let table = [
            (
                "Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org; https://www.spamhaus.org/query/ip/192.0.2.1",
                "Spamhaus ZEN",
            ),
            ("Client host blocked using sbl-xbl.spamhaus.org", "Spamhaus SBL-XBL"),
            ("5.7.1 Listed by PBL, see https://www.spamhaus.org/pbl/query/PBL1", "Spamhaus PBL"),
            ("The sending IP is on https://www.spamhaus.org/sbl/query/SBL1", "Spamhaus SBL"),
            ("Blocked - see http://www.spamcop.net/bl.shtml?192.0.2.1", "SpamCop"),
            ("Rejected; listed at bl.spamcop.net", "SpamCop"),
            ("mail rejected, Barracuda Reputation: poor reputation", "Barracuda"),
            ("Client host blocked using b.barracudacentral.org", "Barracuda"),
            ("Dynamic IP; blocked using dul.dnsbl.sorbs.net", "SORBS"),
            ("Your ISP is UCEPROTECT-Level2 listed", "UCEPROTECT"),
            ("blocked, see http://www.uceprotect.net/rblcheck.php?ipr=1", "UCEPROTECT"),
            ("Listed by ivmSIP", "Invaluement"),
            ("451 4.7.1 Blocked by Cloudmark, see https://csi.cloudmark.com/reset-request", "Cloudmark"),
            ("554 Blocked - see https://ipcheck.proofpoint.com/?ip=192.0.2.1", "Proofpoint"),
            ("part of their network is on our block list (S3140)", "Microsoft S3140"),
            ("part of their network is on our block list (S3150).", "Microsoft S3150"),
            ("5.7.606 Access denied, banned sending IP [192.0.2.1]", "Microsoft"),
            ("Message contains a URL listed by SURBL", "SURBL"),
            ("found in rbl.example.net (127.0.0.2)", "rbl.example.net"),
            ("Client blocked using dnsbl.example.org; reason", "dnsbl.example.org"),
            ("Your IP is blacklisted, see https://postmaster.example.net/lookup?ip=1", "postmaster.example.net"),
            ("192.0.2.1 is on our blacklist", OWN),
            ("your host is blacklisted", OWN),
            ("refused by RBL", OWN),
        ];
        for (text, name) in table {
            assert_eq!(block_list(text).as_deref(), Some(name), "{text}");
        }
    }

    #[test]
    fn other_replies_name_none() {
        for text in [
            "",
            "User unknown",
            "User not listed in Domino Directory",
            "ann@example.org is not listed in public directory.example.org",
            "Greylisted, see http://postgrey.example.net/help",
            "Recipient address rejected: Greylisted; not on any blacklist",
            "the list is closed to posts; see https://lists.example.org",
            "mx1.proofpoint.example ESMTP ready",
            "Welcome to Barracuda Mail",
            "Message absorbs too much room",
            "too many messages, try later",
            "your address is not blacklisted, but too fast",
            "blocked by policy",
            "Mailbox disabled, listed as closed",
            "rejected by the user's filter at example.org",
        ] {
            assert_eq!(block_list(text), None, "{text}");
        }
    }

    #[test]
    fn any_text_is_looked_at_within_bounds() {
        let long = "é".repeat(5_000) + "blacklist";
        assert_eq!(block_list(&long), None, "it is too far behind");
        for text in ["listed at", "blocked using ", "://", "listed at ://", "listed by (((", "é listed at é.é", "rbl"]
        {
            let _ = block_list(text);
        }
    }
}
