//! Asks a name server for `stentor check`: one query, without a resolver's retries.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

/// Timeout for the reply.
pub(crate) const WAIT: Duration = Duration::from_secs(2);
/// A query for the root's name servers: an id, recursion desired, one question.
const ROOT_QUERY: [u8; 17] = [0x53, 0x74, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1];

/// Fails unless a reply with the query's id comes back.
pub(crate) fn query(server: SocketAddr) -> io::Result<()> {
    let any: IpAddr = if server.is_ipv4() { [0, 0, 0, 0].into() } else { [0_u16; 8].into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.set_read_timeout(Some(WAIT))?;
    socket.connect(server)?;
    socket.send(&ROOT_QUERY)?;
    let mut answer = [0; 512];
    let len = socket.recv(&mut answer)?;
    if answer[..len].starts_with(&ROOT_QUERY[..2]) { Ok(()) } else { Err(ErrorKind::InvalidData.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_server_is_asked() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let answering = std::thread::spawn(move || {
            let mut query = [0; 512];
            let (len, from) = server.recv_from(&mut query).unwrap();
            server.send_to(&query[..len], from).unwrap();
        });
        query(address).unwrap();
        answering.join().unwrap();
        assert!(query("127.0.0.1:9".parse().unwrap()).is_err());
    }
}
