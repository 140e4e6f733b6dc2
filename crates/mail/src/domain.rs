//! Domain names: which is below which, and the names of addresses in the DNS.

use std::fmt::Write as _;
use std::net::IpAddr;

/// Whether a name is a domain or below it; without final dots, in any case.
pub fn is_at_or_below(name: &str, domain: &str) -> bool {
    let Some(start) = name.len().checked_sub(domain.len()) else { return false };
    let (before, end) = name.as_bytes().split_at(start);
    end.eq_ignore_ascii_case(domain.as_bytes()) && before.last().is_none_or(|octet| *octet == b'.')
}

/// The labels of an address in reverse, as in PTR names and queries of DNS lists: octets of IPv4, half-octets of IPv6.
pub fn reverse_labels(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            format!("{d}.{c}.{b}.{a}")
        }
        IpAddr::V6(v6) => {
            let mut labels = String::with_capacity(72);
            for octet in v6.octets().iter().rev() {
                // Writing to a string cannot fail.
                let _ = write!(labels, "{:x}.{:x}.", octet & 15, octet >> 4);
            }
            labels.pop();
            labels
        }
    }
}

/// Name of the PTR records of an address.
pub fn reverse_name(address: IpAddr) -> String {
    reverse_labels(address) + if address.is_ipv4() { ".in-addr.arpa" } else { ".ip6.arpa" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_below_whole_labels() {
        assert!(is_at_or_below("example.org", "example.org") && is_at_or_below("a.Example.org", "example.org"));
        assert!(!is_at_or_below("badexample.org", "example.org") && !is_at_or_below("org", "example.org"));
    }

    #[test]
    fn names_of_addresses() {
        assert_eq!(reverse_name("192.0.2.1".parse().unwrap()), "1.2.0.192.in-addr.arpa");
        let name = reverse_name("2001:db8::cb01".parse().unwrap());
        assert_eq!(name, "1.0.b.c.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa");
    }
}
