//! Classifies addresses as public or not.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address can be a public web server's: not of this machine, a private network, a link, a test or a
/// reserved range (RFC 6890).
pub fn is_public(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    // 100.64/10 is shared by providers' customers (RFC 6598), 192.0.0/24 is for protocols, 198.18/15 for benchmarks,
    // 240/4 is reserved.
    let is_shared = a == 100 && (64..128).contains(&b);
    let is_special = (a, b, c) == (192, 0, 0) || a == 198 && (18..20).contains(&b) || a == 0 || a >= 240;
    !(ip.is_loopback()
        || ip.is_private()
        || ip.is_link_local()
        || ip.is_multicast()
        || ip.is_documentation()
        || is_shared
        || is_special)
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    // Only 2000::/3 is allocated; 2001:db8::/32 is for documentation, and 6to4 (2002::/16) embeds IPv4 addresses.
    let [first, second, third, ..] = ip.segments();
    let is_given_out = first & 0xe000 == 0x2000;
    let [a, b] = second.to_be_bytes();
    let [c, d] = third.to_be_bytes();
    let is_inner_public = first != 0x2002 || is_public_v4(Ipv4Addr::new(a, b, c, d));
    is_given_out && is_inner_public && (first, second) != (0x2001, 0xdb8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_internet_are_public() {
        for ip in ["8.8.8.8", "100.128.0.1", "172.32.0.1", "198.20.0.1", "2a00::1", "2001:4860::1", "::ffff:8.8.8.8"] {
            assert!(is_public(ip.parse().unwrap()), "{ip}");
        }
        for ip in [
            "0.0.0.0",
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.1.1",
            "100.64.0.1",
            "192.0.0.1",
            "198.18.0.1",
            "192.0.2.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "2001:db8::1",
            "2002:a00:1::1",
            "64:ff9b::a00:1",
            "::ffff:10.0.0.1",
            "::ffff:127.0.0.1",
        ] {
            assert!(!is_public(ip.parse().unwrap()), "{ip}");
        }
    }
}
