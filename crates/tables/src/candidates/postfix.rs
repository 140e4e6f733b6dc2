//! Postfix's key orders: access(5), transport(5), virtual(5), canonical(5), generic(5), aliases(5).

use std::net::IpAddr;

use super::{Candidates, Options, Parents, quotes, split_address};

/// Keys of a rewritten address: the whole address, without its extension, the local part if the domain is local,
/// `@domain`.
pub(super) fn address(out: &mut Candidates, key: &[u8], options: &Options<'_>) {
    out.push(&[key]);
    let (local, domain) = split_address(key).map_or((key, None), |(local, domain)| (local, Some(domain)));
    let base = without_extension(local, options.delimiters);
    let Some(domain) = domain else {
        if let Some(base) = base {
            out.push(&[base]);
        }
        return;
    };
    if let Some(base) = base {
        out.push(&[base, b"@", domain]);
    }
    if options.is_local {
        out.push(&[local]);
        if let Some(base) = base {
            out.push(&[base]);
        }
    }
    out.push(&[b"@", domain]);
}

/// Keys of transport(5): the address, the domain and its parents, `*`.
pub(super) fn transport(out: &mut Candidates, key: &[u8], options: &Options<'_>) {
    out.push(&[key]);
    if let Some((local, domain)) = split_address(key) {
        if let Some(base) = without_extension(local, options.delimiters) {
            out.push(&[base, b"@", domain]);
        }
        domains(out, domain, options.parents.unwrap_or(Parents::Dotted), false);
    } else {
        domains(out, key, options.parents.unwrap_or(Parents::Dotted), true);
    }
    out.push(&[b"*"]);
}

/// Keys of access(5). For an address: the whole address, without its extension, the domain and its parents, `user@`.
/// For a host: its name and its parents. For a network address: the whole address, then with ever fewer numbers.
pub(super) fn access(out: &mut Candidates, key: &[u8], options: &Options<'_>) {
    let parents = options.parents.unwrap_or(Parents::Plain);
    out.push(&[key]);
    if let Some((local, domain)) = split_address(key) {
        let base = without_extension(local, options.delimiters);
        if let Some(base) = base {
            out.push(&[base, b"@", domain]);
        }
        domains(out, domain, parents, false);
        out.push(&[local, b"@"]);
        if let Some(base) = base {
            out.push(&[base, b"@"]);
        }
    } else if std::str::from_utf8(key).is_ok_and(|text| text.parse::<IpAddr>().is_ok()) {
        let separator = if key.contains(&b':') { b':' } else { b'.' };
        let mut rest = key;
        while let Some(end) = rest.iter().rposition(|&octet| octet == separator)
            && end > 0
        {
            rest = &rest[..end];
            out.push(&[rest]);
        }
    } else {
        domains(out, key, parents, true);
    }
}

/// Keys of aliases(5): the local part, then without its extension.
pub(super) fn aliases(out: &mut Candidates, key: &[u8], options: &Options<'_>) {
    let local = split_address(key).map_or(key, |(local, _)| local);
    out.push(&[local]);
    if let Some(base) = without_extension(local, options.delimiters) {
        out.push(&[base]);
    }
}

/// A domain, unless it was looked up already, and its parents. An address in brackets has no parents.
fn domains(out: &mut Candidates, domain: &[u8], parents: Parents, is_asked: bool) {
    if !is_asked {
        out.push(&[domain]);
    }
    if domain.starts_with(b"[") {
        return;
    }
    let mut rest = domain;
    // A leading dot belongs to the name of a parent that is itself looked up.
    while let Some(dot) = rest.iter().skip(1).position(|&octet| octet == b'.') {
        rest = match parents {
            Parents::Plain => &rest[dot + 2..],
            Parents::Dotted => &rest[dot + 1..],
        };
        if matches!(rest, [] | [b'.']) {
            break;
        }
        out.push(&[rest]);
    }
}

/// The local part without its extension, if it has one. Some names, and local parts that need quotes, are never
/// split.
fn without_extension<'a>(local: &'a [u8], delimiters: &[u8]) -> Option<&'a [u8]> {
    const WHOLE: [&[u8]; 3] = [b"postmaster", b"mailer-daemon", b"double-bounce"];
    if WHOLE.iter().any(|name| local.eq_ignore_ascii_case(name)) {
        return None;
    }
    let is_quoted = quotes::are_for_dots(local);
    if local.starts_with(b"\"") && !is_quoted {
        return None;
    }
    let first = usize::from(is_quoted);
    let end = local.iter().position(|octet| delimiters.contains(octet)).filter(|&end| end > first)?;
    let is_of_a_list = |name: &[u8]| {
        name.get(..6).is_some_and(|begin| begin.eq_ignore_ascii_case(b"owner-"))
            || name.len().checked_sub(8).is_some_and(|begin| name[begin..].eq_ignore_ascii_case(b"-request"))
    };
    (local[end] != b'-' || !is_of_a_list(local)).then(|| &local[..end])
}
