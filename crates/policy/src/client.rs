//! Client identity, for counting clients.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address in no client network.
pub const UNTRUSTED_CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The address under which a client is counted: its own for IPv4; for IPv6 that of its /64, which belongs to one
/// customer.
pub fn counted_as(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        IpAddr::V4(v4) => v4.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_is_one_and_an_address_of_ipv4_is() {
        let of = |text: &str| counted_as(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:ffff:ffff:ffff"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
