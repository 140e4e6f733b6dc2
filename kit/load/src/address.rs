//! Addresses as given on a command line: one, or a range of IPv4 addresses.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// A range of more is a mistake.
const RANGE_MAX: u32 = 65_536;

/// `127.0.0.1:25`, `[::1]:25`, or all of `127.0.0.1-127.0.0.8:25`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Targets(pub Vec<SocketAddr>);

/// `127.0.0.1`, or all of `127.0.0.1-127.0.0.8`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources(pub Vec<IpAddr>);

impl FromStr for Targets {
    type Err = String;

    fn from_str(text: &str) -> Result<Targets, String> {
        if !text.contains('-') {
            return text.parse().map(|one| Targets(vec![one])).map_err(|_| format!("{text:?} is not address:port"));
        }
        let (range, port) = text.rsplit_once(':').ok_or_else(|| format!("{text:?} has no port"))?;
        let port: u16 = port.parse().map_err(|_| format!("{port:?} is not a valid port"))?;
        Ok(Targets(Sources::from_str(range)?.0.into_iter().map(|address| SocketAddr::new(address, port)).collect()))
    }
}

impl FromStr for Sources {
    type Err = String;

    fn from_str(text: &str) -> Result<Sources, String> {
        let Some((first, last)) = text.split_once('-') else {
            return text.parse().map(|one| Sources(vec![one])).map_err(|_| format!("{text:?} is not a valid address"));
        };
        let parse = |text: &str| text.parse::<Ipv4Addr>().map_err(|_| format!("{text:?} is not a valid IPv4 address"));
        let (first, last) = (u32::from(parse(first)?), u32::from(parse(last)?));
        if last < first || last - first >= RANGE_MAX {
            return Err(format!("{text:?} must be an ascending range of at most {RANGE_MAX} addresses"));
        }
        Ok(Sources((first..=last).map(|bits| IpAddr::from(Ipv4Addr::from(bits))).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_or_a_range() {
        let targets = |text: &str| text.parse::<Targets>().map(|t| t.0.len());
        assert_eq!(targets("127.0.0.1:25"), Ok(1));
        assert_eq!(targets("[::1]:25"), Ok(1));
        assert_eq!(targets("127.0.0.254-127.0.1.1:25"), Ok(4));
        for bad in ["", "127.0.0.1", "127.0.0.1-127.0.0.2", "127.0.0.2-127.0.0.1:25", "10.0.0.0-11.0.0.0:25", "a-b:1"] {
            assert!(targets(bad).is_err(), "{bad}");
        }
        assert_eq!("127.0.0.1-127.0.0.3".parse::<Sources>().map(|s| s.0.len()), Ok(3));
    }
}
