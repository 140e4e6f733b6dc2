//! Source addresses.

use std::net::IpAddr;

/// A source address and the HELO name used from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    pub address: IpAddr,
    pub helo: String,
}

impl Source {
    /// Whether the address can be one that receivers see.
    pub fn is_public(&self) -> bool {
        match self.address {
            IpAddr::V4(v4) => !(v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_unspecified()),
            IpAddr::V6(v6) => {
                !(v6.is_loopback() || v6.is_unspecified() || v6.is_unique_local() || v6.is_unicast_link_local())
            }
        }
    }
}
