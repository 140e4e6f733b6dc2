//! sendmail's key orders, from the rules of cf/m4/proto.m4 (8.17).

use std::net::{IpAddr, Ipv6Addr};

use super::{Candidates, Options, quotes, split_address};

/// Keys of the mailertable: the host, `.parent` for each parent with the preceding part as `%1`, then `.` with the
/// host as `%1`.
pub(super) fn mailertable(out: &mut Candidates, host: &[u8]) {
    let host = host.strip_suffix(b".").unwrap_or(host);
    out.push(&[host]);
    if !host.starts_with(b"[") {
        let mut label = 0;
        for (dot, _) in host.iter().enumerate().filter(|(_, octet)| **octet == b'.') {
            if dot + 1 < host.len() {
                out.push_with(&[&host[dot..]], [&host[..dot], &host[label..dot]]);
            }
            label = dot + 1;
        }
    }
    out.push_with(&[b"."], [host]);
}

/// Keys of the virtusertable. With `+detail`: the address, `user++@domain` if the detail is not empty,
/// `user+*@domain`, `user@domain`, then all of these without the user. `%1` is the user, `%2` the detail, `%3` the
/// detail with its plus.
pub(super) fn virtusertable(out: &mut Candidates, address: &[u8]) {
    let Some((local, domain)) = split_address(address) else { return out.push(&[address]) };
    out.push_with(&[address], [local]);
    let Some((user, detail)) = split_detail(local) else { return out.push_with(&[b"@", domain], [local]) };
    let plus_detail = &local[user.len()..=user.len() + detail.len()];
    let arguments = [user, detail, plus_detail];
    for user in [user, b""] {
        if !detail.is_empty() {
            out.push_with(&[user, b"++@", domain], arguments);
        }
        out.push_with(&[user, b"+*@", domain], arguments);
        out.push_with(&[user, b"@", domain], arguments);
    }
}

/// Keys of the genericstable: the address, `user+*@domain`, `user@domain`, `@domain`, then the same without the
/// domain.
pub(super) fn genericstable(out: &mut Candidates, address: &[u8]) {
    let (local, domain) = split_address(address).map_or((address, None), |(local, domain)| (local, Some(domain)));
    let detail = split_detail(local);
    if let Some(domain) = domain {
        out.push(&[address]);
        if let Some((user, detail)) = detail {
            out.push_with(&[user, b"+*@", domain], [detail]);
            out.push(&[user, b"@", domain]);
        }
        out.push_with(&[b"@", domain], [local]);
    }
    out.push(&[local]);
    if let Some((user, detail)) = detail {
        out.push_with(&[user, b"+*"], [detail]);
        out.push(&[user]);
    }
}

/// Keys of `access_db`, each with and without the tag. For a sender: the address, `user@`, the domain and its parents;
/// for a recipient `user@` only if its domain is local; for a client its name or address and the parents. IPv6
/// addresses begin with `IPv6:`.
pub(super) fn access_db(out: &mut Candidates, key: &[u8], options: &Options<'_>) {
    let colon = key.iter().position(|&octet| octet == b':').map_or(0, |colon| colon + 1);
    let (tag, subject) = match key.split_at(colon) {
        (tag, subject) if tag.len() > 1 && tag[..tag.len() - 1].iter().all(|&octet| is_of_a_tag(octet)) => {
            (tag, subject)
        }
        _ => (&b""[..], key),
    };
    let lookup = Lookup {
        tag,
        is_untagged_too: [&b"connect:"[..], b"from:", b"to:"].iter().any(|known| tag.eq_ignore_ascii_case(known)),
    };
    if let Some((local, domain)) = split_address(subject) {
        if !domain.is_empty() {
            lookup.with_detail(out, local, domain);
        }
        if domain.is_empty() || options.is_local || !tag.eq_ignore_ascii_case(b"to:") {
            lookup.with_detail(out, local, b"");
        }
        if !domain.is_empty() {
            lookup.domains(out, domain);
        }
    } else if let Some(address) = ipv6(subject) {
        lookup.ipv6(out, address);
    } else if std::str::from_utf8(subject).is_ok_and(|text| text.parse::<IpAddr>().is_ok()) {
        lookup.address(out, subject);
    } else {
        lookup.domains(out, subject);
    }
}

/// Whether the octet can be part of a tag; digits and colons of IPv6 addresses cannot.
fn is_of_a_tag(octet: u8) -> bool {
    octet.is_ascii_alphabetic() || octet == b'_'
}

/// Parses `IPv6:2001:db8::5`.
fn ipv6(subject: &[u8]) -> Option<Ipv6Addr> {
    let (tag, address) = std::str::from_utf8(subject).ok()?.split_at_checked(IPV6.len())?;
    tag.eq_ignore_ascii_case(IPV6).then(|| address.parse().ok())?
}

const IPV6: &str = "IPv6:";

struct Lookup<'a> {
    tag: &'a [u8],
    is_untagged_too: bool,
}

impl Lookup<'_> {
    fn push(&self, out: &mut Candidates, pieces: [&[u8]; 4]) {
        let [a, b, c, d] = pieces;
        out.push(&[self.tag, a, b, c, d]);
        if self.is_untagged_too {
            out.push(&[a, b, c, d]);
        }
    }

    fn with_detail(&self, out: &mut Candidates, local: &[u8], domain: &[u8]) {
        self.push(out, [local, b"@", domain, b""]);
        if let Some((user, _)) = split_detail(local) {
            self.push(out, [user, b"+*@", domain, b""]);
            self.push(out, [user, b"@", domain, b""]);
        }
    }

    /// Adds the parents: an address in brackets is shortened at its end, a name at its beginning.
    fn domains(&self, out: &mut Candidates, domain: &[u8]) {
        if let Some(mut inside) = domain.strip_prefix(b"[").and_then(|domain| domain.strip_suffix(b"]")) {
            loop {
                self.push(out, [b"[", inside, b"]", b""]);
                let Some(shorter) = shorter(inside) else { return };
                inside = shorter;
            }
        }
        let mut rest = domain;
        loop {
            self.push(out, [rest, b"", b"", b""]);
            match rest.iter().position(|&octet| octet == b'.') {
                Some(dot) if dot + 1 < rest.len() => rest = &rest[dot + 1..],
                _ => return,
            }
        }
    }

    /// Adds keys of the full notation, which is sendmail's default, and of the short one of
    /// `UseCompressedIPv6Addresses`. Networks are equal in both unless they contain omitted zeros.
    fn ipv6(&self, out: &mut Candidates, address: Ipv6Addr) {
        let groups = address.segments().map(|group| format!("{group:x}"));
        let (long, short) = (format!("{IPV6}{}", groups.join(":")), format!("{IPV6}{address}"));
        self.push(out, [long.as_bytes(), b"", b"", b""]);
        let mut rest = Some(short.as_bytes());
        while let Some(key) = rest.filter(|key| key.windows(2).any(|pair| pair == b"::")) {
            self.push(out, [key, b"", b"", b""]);
            rest = shorter(key);
        }
        if let Some(network) = shorter(long.as_bytes()) {
            self.address(out, network);
        }
    }

    fn address(&self, out: &mut Candidates, address: &[u8]) {
        let mut rest = address;
        loop {
            self.push(out, [rest, b"", b"", b""]);
            let Some(shorter) = shorter(rest) else { return };
            rest = shorter;
        }
    }
}

/// The address without its last number.
fn shorter(address: &[u8]) -> Option<&[u8]> {
    let separator = if address.contains(&b':') { b':' } else { b'.' };
    let end = address.iter().rposition(|&octet| octet == separator)?;
    // `::1` and `a::1` lose both colons.
    let end = if end > 0 && address[end - 1] == b':' { end - 1 } else { end };
    (end > 0).then(|| &address[..end])
}

/// Splits user and detail at the first plus that is not at the beginning. The closing quote belongs to neither; local
/// parts that need their quotes are not split.
fn split_detail(local: &[u8]) -> Option<(&[u8], &[u8])> {
    let is_quoted = quotes::are_for_dots(local);
    if local.starts_with(b"\"") && !is_quoted {
        return None;
    }
    let first = if is_quoted { 2 } else { 1 };
    let plus = local.iter().skip(first).position(|&octet| octet == b'+')? + first;
    let detail = &local[plus + 1..];
    Some((&local[..plus], detail.strip_suffix(b"\"").filter(|_| is_quoted).unwrap_or(detail)))
}
