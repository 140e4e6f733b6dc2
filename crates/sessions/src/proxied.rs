//! The PROXY protocol header, versions 1 and 2, which a configured proxy sends before anything else (haproxy's
//! proxy-protocol.txt).
//!
//! Promise: reads the header and no octet after it. If it names no client (`UNKNOWN`, `LOCAL`: a health check), the
//! client is [`NOBODY`]. `UNKNOWN` may be any client, so it gets none of the privileges of the proxy's own address.
//!
//! Failure: if the header is late or malformed, the connection is closed without a reply.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use ppp::{HeaderResult, v1, v2};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

/// Time for the header; a proxy sends it on connecting.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Address of a client that its proxy does not name. Trust, rules, limits and XCLIENT depend on the address alone, and
/// no host has this one.
pub const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// Octets of version 2's fixed part, and the offset of its length.
const V2_BYTES: usize = 16;
const V2_LENGTH_AT: usize = 14;
/// Upper bound for version 2 with the proxy's additions: names, TLS details.
const V2_BYTES_MAX: usize = 4096;
/// The longest line of version 1, including CRLF.
const V1_BYTES_MAX: usize = 107;
/// The shortest header: `PROXY UNKNOWN` and CRLF.
const BYTES_MIN: usize = 15;

/// Reads the header and returns the client that it names, if any.
///
/// # Errors
/// There is no valid header, or the client closed the connection.
pub async fn read_header(stream: &mut TcpStream) -> io::Result<Option<SocketAddr>> {
    let mut header = vec![0; BYTES_MIN];
    stream.read_exact(&mut header).await?;
    if header.starts_with(v2::PROTOCOL_PREFIX) {
        header.push(stream.read_u8().await?);
        let length = usize::from(u16::from_be_bytes([header[V2_LENGTH_AT], header[V2_LENGTH_AT + 1]]));
        if length > V2_BYTES_MAX - V2_BYTES {
            return Err(wrong("the header is too long"));
        }
        header.resize(V2_BYTES + length, 0);
        stream.read_exact(&mut header[V2_BYTES..]).await?;
    } else {
        while !header.ends_with(b"\r\n") {
            if header.len() == V1_BYTES_MAX || !header.starts_with(v1::PROTOCOL_PREFIX.as_bytes()) {
                return Err(wrong("no PROXY header"));
            }
            header.push(stream.read_u8().await?);
        }
    }
    client(&header)
}

fn client(header: &[u8]) -> io::Result<Option<SocketAddr>> {
    let socket = |address: IpAddr, port| Some(SocketAddr::new(address, port));
    match HeaderResult::parse(header) {
        HeaderResult::V1(parsed) => Ok(match parsed.map_err(|error| wrong(&error.to_string()))?.addresses {
            v1::Addresses::Unknown => None,
            v1::Addresses::Tcp4(pair) => socket(pair.source_address.into(), pair.source_port),
            v1::Addresses::Tcp6(pair) => socket(pair.source_address.into(), pair.source_port),
        }),
        HeaderResult::V2(parsed) => {
            let parsed = parsed.map_err(|error| wrong(&error.to_string()))?;
            if parsed.command == v2::Command::Local {
                return Ok(None);
            }
            Ok(match parsed.addresses {
                v2::Addresses::Unspecified | v2::Addresses::Unix(_) => None,
                v2::Addresses::IPv4(pair) => socket(pair.source_address.into(), pair.source_port),
                v2::Addresses::IPv6(pair) => socket(pair.source_address.into(), pair.source_port),
            })
        }
    }
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(header: &[u8]) -> String {
        match client(header) {
            Ok(client) => format!("{client:?}"),
            Err(_) => "error".to_owned(),
        }
    }

    fn v2_header(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).unwrap().to_be_bytes();
        [v2::PROTOCOL_PREFIX, &[0x20 | command, family], &length, body].concat()
    }

    #[test]
    fn both_versions() {
        assert_eq!(shown(b"PROXY TCP4 192.0.2.1 192.0.2.9 4711 25\r\n"), "Some(192.0.2.1:4711)");
        assert_eq!(shown(b"PROXY TCP6 2001:db8::1 2001:db8::2 4711 25\r\n"), "Some([2001:db8::1]:4711)");
        assert_eq!(shown(b"PROXY UNKNOWN\r\n"), "None");
        assert_eq!(shown(b"PROXY TCP4 192.0.2.256 192.0.2.9 1 25\r\n"), "error");
        assert_eq!(shown(b"PROXY TCP4 192.0.2.1 192.0.2.9 1\r\n"), "error");
        let v4 = [192, 0, 2, 1, 192, 0, 2, 9, 0x12, 0x67, 0, 25];
        assert_eq!(shown(&v2_header(1, 0x11, &v4)), "Some(192.0.2.1:4711)");
        assert_eq!(shown(&v2_header(0, 0x11, &v4)), "None");
        assert_eq!(shown(&v2_header(0, 0, &[])), "None");
        assert_eq!(shown(&v2_header(1, 0x11, &v4[..8])), "error");
        assert_eq!(shown(&v2_header(7, 0x11, &v4)), "error");
        // With additional fields after the addresses: here its host name (PP2_TYPE_AUTHORITY).
        assert_eq!(shown(&v2_header(1, 0x11, &[&v4[..], &[2, 0, 2, b'm', b'x']].concat())), "Some(192.0.2.1:4711)");
    }

    proptest! {
        #[test]
        fn never_panics(command: u8, family: u8, body in proptest::collection::vec(any::<u8>(), 0..60), line in "\\PC{0,90}") {
            let _ = client(&v2_header(command & 15, family, &body));
            let _ = client(format!("PROXY {line}\r\n").as_bytes());
        }
    }
}
