//! The addresses of this machine, read from its interfaces.
//!
//! Promise: an address is ours exactly if an interface has it, or if it is in the loopback networks. Multicast,
//! broadcast and unspecified addresses are never ours, and `ip_nonlocal_bind` has no effect: no socket is bound.
//! IPv4-mapped addresses count as IPv4. A change of the interfaces is noticed within [`KEPT`].
//!
//! Failure: if the kernel does not list the addresses (a sandbox without `AF_NETLINK`), an address is ours if the
//! kernel would use it as the source for packets to itself. That misses the second address of an interface in one
//! network, but never accepts another machine's.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// How long a list is valid.
const KEPT: Duration = Duration::from_secs(5);
/// Buffer for one datagram of the list; the kernel's are 32 KiB at most.
const LIST_BYTES_MAX: usize = 64 * 1024;
/// Maximum datagrams of one list: some hundred thousand addresses.
const DATAGRAMS_MAX: usize = 1024;

/// Sizes of `struct nlmsghdr` and `struct ifaddrmsg` (netlink(7), rtnetlink(7)).
const HEADER_BYTES: usize = 16;
const ADDRESS_BYTES: usize = 8;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
/// Flags of a request for all entries: `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;
/// Attributes: on a point-to-point interface the first is the address of the other end.
const OF_INTERFACE: u16 = 1;
const LOCAL: u16 = 2;

/// The addresses of this machine, cached briefly.
#[derive(Default)]
pub struct OwnAddresses(Mutex<Option<List>>);

struct List {
    read_at: Instant,
    /// `None`: the kernel does not list them.
    all: Option<HashSet<IpAddr>>,
}

impl OwnAddresses {
    pub fn has(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        if ip.is_loopback() {
            return true;
        }
        if ip.is_unspecified() || ip.is_multicast() {
            return false;
        }
        let mut kept = self.0.lock();
        let list = match &mut *kept {
            Some(list) if list.read_at.elapsed() < KEPT => list,
            old => old.insert(List { read_at: Instant::now(), all: list().ok() }),
        };
        list.all.as_ref().map_or_else(|| is_sent_from_itself(ip), |all| all.contains(&ip))
    }
}

/// Whether the kernel would send to the address from itself, which holds for our own. No packet is sent.
fn is_sent_from_itself(ip: IpAddr) -> bool {
    let any: IpAddr = if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let from = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((ip, 9))?;
        socket.local_addr()
    });
    from.is_ok_and(|from| from.ip() == ip)
}

/// Requests the addresses of all interfaces from the kernel.
fn list() -> io::Result<HashSet<IpAddr>> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let mut request = [0; HEADER_BYTES + ADDRESS_BYTES];
    let octets = request.len() as u32;
    request[..4].copy_from_slice(&octets.to_ne_bytes());
    request[4..6].copy_from_slice(&GET_ADDRESS.to_ne_bytes());
    request[6..8].copy_from_slice(&DUMP.to_ne_bytes());
    send(&socket, &request, SendFlags::empty())?;
    let (mut all, mut buffer) = (HashSet::new(), vec![0; LIST_BYTES_MAX]);
    for _ in 0..DATAGRAMS_MAX {
        let (octets, _) = recv(&socket, buffer.as_mut_slice(), RecvFlags::empty())?;
        if take(&buffer[..octets.min(LIST_BYTES_MAX)], &mut all)? {
            return Ok(all);
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// Reads the addresses in one datagram; returns whether it ends the list.
fn take(mut rest: &[u8], all: &mut HashSet<IpAddr>) -> io::Result<bool> {
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    while rest.len() >= HEADER_BYTES {
        let (octets, kind) = (number(rest, 0) as usize, number(rest, 4) as u16);
        let message = rest.get(HEADER_BYTES..octets).ok_or_else(wrong)?;
        match kind {
            DONE => return Ok(true),
            ERROR => return Err(wrong()),
            NEW_ADDRESS => all.extend(address(message.get(ADDRESS_BYTES..).ok_or_else(wrong)?)),
            _ => {}
        }
        rest = rest.get(aligned(octets)..).unwrap_or_default();
    }
    Ok(false)
}

/// The address among the attributes of one entry.
fn address(mut rest: &[u8]) -> Option<IpAddr> {
    let (mut of_interface, mut local) = (None, None);
    while rest.len() >= 4 {
        let (octets, kind) = (usize::from(number(rest, 0) as u16), (number(rest, 0) >> 16) as u16);
        let value = rest.get(4..octets)?;
        let parsed = || {
            let v4 = value.try_into().ok().map(|octets: [u8; 4]| IpAddr::from(octets));
            v4.or_else(|| value.try_into().ok().map(|octets: [u8; 16]| IpAddr::from(octets)))
        };
        match kind {
            OF_INTERFACE => of_interface = parsed(),
            LOCAL => local = parsed(),
            _ => {}
        }
        rest = rest.get(aligned(octets)..).unwrap_or_default();
    }
    local.or(of_interface)
}

/// Four octets as a number in native byte order, which the kernel uses.
fn number(octets: &[u8], at: usize) -> u32 {
    octets.get(at..at + 4).and_then(|octets| octets.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn aligned(octets: usize) -> usize {
    octets.next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Addresses that no machine has.
    const NEVER: [&str; 14] = [
        "0.0.0.0",
        "::",
        "::ffff:0.0.0.0",
        "255.255.255.255",
        "::ffff:255.255.255.255",
        "224.0.0.1",
        "239.255.255.250",
        "ff02::1",
        "ff0e::1",
        "192.0.2.77",
        "::ffff:192.0.2.77",
        "198.51.100.1",
        "2001:db8::77",
        "240.0.0.1",
    ];

    #[test]
    fn only_addresses_of_interfaces_are_ours() {
        let own = OwnAddresses::default();
        for text in NEVER {
            assert!(!own.has(ip(text)), "{text}");
            assert!(!is_sent_from_itself(ip(text).to_canonical()), "{text}, without a list");
        }
        for text in ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"] {
            assert!(own.has(ip(text)), "{text}");
        }
        // Addresses of the interfaces, but not their broadcast addresses.
        let Ok(all) = list() else { return };
        for one in &all {
            assert!(own.has(*one), "{one}");
            if let IpAddr::V4(v4) = one {
                assert!(own.has(v4.to_ipv6_mapped().into()), "{one} in the form of IPv6");
            }
        }
        let broadcast = all.iter().filter_map(|one| match one {
            IpAddr::V4(v4) if !v4.is_loopback() => Some(IpAddr::from(v4.to_bits().wrapping_add(1).to_be_bytes())),
            _ => None,
        });
        for other in broadcast.filter(|other| !all.contains(other)) {
            assert!(!own.has(other), "{other}, a neighbour");
        }
    }

    /// An entry of the list with these attributes.
    fn entry(kind: u16, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = vec![0; ADDRESS_BYTES];
        for (kind, value) in attributes {
            body.extend((4 + value.len() as u16).to_ne_bytes());
            body.extend(kind.to_ne_bytes());
            body.extend(*value);
            body.resize(aligned(body.len()), 0);
        }
        let mut message = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.resize(HEADER_BYTES, 0);
        message.extend(body);
        message
    }

    #[test]
    fn a_list_is_read() {
        let list = [
            entry(NEW_ADDRESS, &[(OF_INTERFACE, &[192, 0, 2, 1]), (3, b"eth0\0")]),
            // On a point-to-point interface the other end comes first.
            entry(NEW_ADDRESS, &[(OF_INTERFACE, &[192, 0, 2, 9]), (LOCAL, &[192, 0, 2, 8])]),
            entry(NEW_ADDRESS, &[(OF_INTERFACE, &Ipv6Addr::LOCALHOST.octets())]),
            entry(99, &[(LOCAL, &[192, 0, 2, 50])]),
        ]
        .concat();
        let mut all = HashSet::new();
        assert!(!take(&list, &mut all).unwrap());
        assert_eq!(all, HashSet::from([ip("192.0.2.1"), ip("192.0.2.8"), ip("::1")]));
        assert!(take(&entry(DONE, &[]), &mut all).unwrap());
        assert!(take(&entry(ERROR, &[]), &mut all).is_err());
        assert!(take(&list[..30], &mut all).is_err(), "cut off");
    }

    proptest! {
        #[test]
        fn any_octets_end(octets in proptest::collection::vec(any::<u8>(), 0..200), kind in 0_u16..30, len in 0_u32..250) {
            let mut list = octets;
            if list.len() >= 6 {
                list[..4].copy_from_slice(&len.to_ne_bytes());
                list[4..6].copy_from_slice(&kind.to_ne_bytes());
            }
            let _ = take(&list, &mut HashSet::new());
        }
    }
}
