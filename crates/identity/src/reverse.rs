//! An address that mail leaves from: reverse DNS (PTR), the HELO name, block lists.
//!
//! Promise: at most [`NAMES_MAX`] names are examined. Failure: a private address, and a block list that refuses our
//! name server, are unchecked, not faults.

use std::net::IpAddr;

use stentor_mail::domain::{reverse_labels, reverse_name};

use crate::check::{Check, Findings, IdentityFinding};
use crate::lookups::{Lookup, Lookups, plain};
use crate::source::Source;
use crate::spf::{self, SpfIdentity};

/// Parts of names that providers give to addresses of their customers.
const GENERIC_WORDS: [&str; 12] =
    ["dynamic", "dyn", "dhcp", "dsl", "adsl", "vdsl", "cable", "dialup", "ppp", "pool", "broadband", "dip"];
/// Maximum names of an address that are examined.
const NAMES_MAX: usize = 10;

/// Judges a source with the answers known so far. `block_lists`: zones of DNS block lists of addresses.
pub fn examine_source(source: &Source, block_lists: &[String], lookups: &Lookups) -> Vec<IdentityFinding> {
    let mut out = Findings::default();
    let subject = source.address.to_string();
    if !source.is_public() {
        let next = "name the public address with --address, or in [sources]";
        let what = format!("{subject} is not a public address: reverse DNS, HELO and block lists could not be checked");
        out.add(Check::Unchecked, &subject, what, next);
        return out.into_vec();
    }
    let confirmed = names(source, lookups, &mut out);
    let confirmed = out.end(&subject, "reverse DNS", confirmed).flatten();
    let helo = helo(source, confirmed.as_deref(), lookups, &mut out);
    out.end(&source.helo, "the HELO name", helo);
    // A name that is wrong itself needs no SPF record.
    if ![Check::HeloName, Check::HeloUnresolved].iter().any(|check| out.has(*check)) {
        let spf = spf::examine(lookups, SpfIdentity::Helo(source), std::slice::from_ref(source), &mut out);
        out.end(&source.helo, "SPF", spf);
    }
    for zone in block_lists {
        let listed = block_list(source.address, zone, lookups, &mut out);
        out.end(&subject, &format!("the block list {zone}"), listed);
    }
    out.into_vec()
}

/// Checks the PTR records. Returns the names that lead back to the address; `None` if there is a fault.
fn names(source: &Source, lookups: &Lookups, out: &mut Findings) -> Lookup<Option<Vec<String>>> {
    let (address, subject) = (source.address, source.address.to_string());
    let names: Vec<String> = lookups.names(address)?.iter().take(NAMES_MAX).map(|name| plain(name)).collect();
    let record = format!("`{}. IN PTR {}.`", reverse_name(address), source.helo);
    if names.is_empty() {
        let next = format!("ask the address's provider to publish {record}");
        out.add(Check::PtrMissing, &subject, format!("{subject} has no PTR record"), next);
        return Ok(None);
    }
    // All are asked before the first one decides.
    let answers: Vec<_> = names.iter().map(|name| lookups.addresses(name)).collect();
    let mut confirmed = Vec::new();
    for (name, answer) in names.iter().zip(answers) {
        if answer?.contains(&address) {
            confirmed.push(name.clone());
        }
    }
    let Some(first) = confirmed.first() else {
        let (name, kind) = (&names[0], if address.is_ipv4() { "A" } else { "AAAA" });
        let what = format!("the PTR record of {subject} names {name}, which does not have the address");
        let next = format!("publish `{name}. IN {kind} {address}`, or change the PTR record to {record}");
        out.add(Check::PtrUnconfirmed, &subject, what, next);
        return Ok(None);
    };
    if confirmed.iter().all(|name| is_generic(name, address)) {
        let what = format!("the PTR name of {subject}, {first}, looks like that of a dial-up or rented address");
        let next = format!("ask the address's provider to publish {record}");
        out.add(Check::PtrGeneric, &subject, what, next);
        return Ok(None);
    }
    Ok(Some(confirmed))
}

fn helo(source: &Source, confirmed: Option<&[String]>, lookups: &Lookups, out: &mut Findings) -> Lookup<()> {
    let Source { address, helo } = source;
    let key = "`hostname`, or `ehlo_name` in [sources.NAME]";
    let is_private = |name: &str| {
        let last = name.rsplit('.').next().unwrap_or_default();
        ["local", "localdomain"].iter().any(|private| last.eq_ignore_ascii_case(private))
    };
    if !helo.contains('.') || helo.starts_with('[') || is_private(helo) {
        let what = format!("the HELO name \"{helo}\" is not a full host name");
        out.add(Check::HeloName, helo, what, format!("set {key} to a name with the address {address}"));
        return Ok(());
    }
    let kind = if address.is_ipv4() { "A" } else { "AAAA" };
    let record = format!("`{helo}. IN {kind} {address}`");
    let addresses = lookups.addresses(helo)?;
    if addresses.is_empty() {
        out.add(
            Check::HeloUnresolved,
            helo,
            format!("the HELO name {helo} has no address"),
            format!("publish {record}"),
        );
    } else if !addresses.contains(address) {
        let what = format!("the HELO name {helo} does not have the source address {address}");
        out.add(Check::HeloAddress, helo, what, format!("publish {record}, or change {key}"));
    } else if let Some(names) = confirmed.filter(|names| !names.iter().any(|name| name.eq_ignore_ascii_case(helo))) {
        let what = format!("the HELO name {helo} differs from the PTR name of {address}, {}", names.join(", "));
        out.add(Check::HeloPtr, helo, what, format!("set {key} to {}", names[0]));
    }
    Ok(())
}

fn block_list(address: IpAddr, zone: &str, lookups: &Lookups, out: &mut Findings) -> Lookup<()> {
    let subject = address.to_string();
    let name = format!("{}.{}", reverse_labels(address), plain(zone));
    let answers = lookups.addresses(&name)?;
    if let Some(listed) = answers.iter().find(|answer| usable_answer(**answer)) {
        let what = format!("the block list {zone} has {subject} ({listed})");
        let next = format!("find the reason, then ask for removal; `{name}` in TXT may have the address of a page");
        out.add(Check::BlockList, &subject, what, next);
    } else if let Some(other) = answers.first() {
        let what = format!("the block list {zone} could not be checked: it answers {other}, which is not a listing");
        let next = "lists refuse public resolvers: use a name server of your own in [dns]";
        out.add(Check::Unchecked, &subject, what, next);
    }
    Ok(())
}

/// Whether an answer of a block list is a listing: lists answer in 127.0.0.0/8, with 127.255.255.0/24 for errors
/// (RFC 5782 section 2.1; Spamhaus).
pub fn usable_answer(answer: IpAddr) -> bool {
    matches!(answer, IpAddr::V4(v4) if v4.octets()[0] == 127 && v4.octets()[..3] != [127, 255, 255])
}

/// Whether a name is made from the address, or has a word for dial-up lines.
fn is_generic(name: &str, address: IpAddr) -> bool {
    let parts: Vec<&str> = name.split(['.', '-', '_']).collect();
    if parts.iter().any(|part| GENERIC_WORDS.contains(&part.trim_end_matches(|c: char| c.is_ascii_digit()))) {
        return true;
    }
    let IpAddr::V4(v4) = address else { return false };
    let octets: Vec<String> = v4.octets().iter().map(u8::to_string).collect();
    // The first label may have the address in hexadecimal; a part may have a word before its number, as in `ip192`.
    let numbers: Vec<&str> =
        parts.iter().map(|part| part.trim_start_matches(|c: char| c.is_ascii_alphabetic())).collect();
    let is_run = |four: &[&str]| {
        let padded = |part: &str| part.trim_start_matches('0').to_owned();
        let own: Vec<String> = octets.iter().map(|octet| padded(octet)).collect();
        let read: Vec<String> = four.iter().map(|part| padded(part)).collect();
        read == own || read.iter().rev().eq(own.iter())
    };
    let hex = format!("{:08x}", u32::from(v4));
    numbers.windows(4).any(|four| four.iter().all(|part| !part.is_empty()) && is_run(four))
        || parts.first().is_some_and(|first| first.contains(&hex))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generic_names_are_recognised() {
        let address: IpAddr = "203.0.113.7".parse().unwrap();
        for name in [
            "203-0-113-7.example.net",
            "ip203-000-113-007.example.net",
            "7.113.0.203.static.example.net",
            "host.dynamic.example.net",
            "pool12.example.net",
            "cb007107.example.net",
        ] {
            assert!(is_generic(name, address), "{name}");
        }
        for name in ["mail.example.org", "mx7.example.org", "out-203.example.org", "swimming-pools.example", "a.0.b.c"]
        {
            assert!(!is_generic(name, address), "{name}");
        }
    }

    #[test]
    fn answers_of_lists() {
        for (answer, is_listing) in
            [("127.0.0.2", true), ("127.255.255.254", false), ("192.0.2.1", false), ("::1", false)]
        {
            assert_eq!(usable_answer(answer.parse().unwrap()), is_listing, "{answer}");
        }
    }
}
