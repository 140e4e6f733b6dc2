//! Measures the memory of an idle session: `cargo run --release -p stentor-tls --example idle_memory [SESSIONS]`.
//!
//! Opens sessions in memory, lets both sides send as much as for a message, lets them rest, and divides the growth of
//! the process's resident memory by the number of sides.

use std::fs;

use stentor_tls::{
    Acceptor, ClientSettings, Connector, Identities, IdentityStore, PeerRequirement, PlainRead, SecuredSession,
    ServerSettings,
};

/// Octets exchanged in each session: more than one record.
const TALK_BYTES: usize = 40_000;

fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages: usize =
        statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("its second field is a number");
    pages * 4096
}

/// Moves pending octets from one side to the other.
fn carry(from: &mut SecuredSession, to: &mut SecuredSession) {
    let mut octets = Vec::new();
    from.send(|pieces| {
        for piece in pieces {
            octets.extend_from_slice(piece);
        }
        Ok(pieces.iter().map(|piece| piece.len()).sum())
    })
    .expect("a vector takes all");
    let mut at = 0;
    while at < octets.len() {
        at += to.receive(&octets[at..]).expect("both sides are ours");
        while let PlainRead::Octets(_) = to.read(&mut [0; 4096]) {}
    }
}

fn open(client: &Connector, server: &Acceptor, host: &str) -> (SecuredSession, SecuredSession) {
    let requirement = PeerRequirement::Encrypted { names: vec!["mx.example.org".into()] };
    let mut ours = client.begin(&requirement, "mx.example.org", host).expect("the settings are good");
    let mut theirs = server.begin().expect("the settings are good");
    while ours.is_handshaking() || theirs.is_handshaking() || ours.wants_send() || theirs.wants_send() {
        carry(&mut ours, &mut theirs);
        carry(&mut theirs, &mut ours);
    }
    let bytes = vec![b'x'; TALK_BYTES];
    ours.write(&bytes);
    carry(&mut ours, &mut theirs);
    theirs.write(b"250 2.0.0 Ok\r\n");
    carry(&mut theirs, &mut ours);
    ours.rest();
    theirs.rest();
    (ours, theirs)
}

fn main() {
    let sessions = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(5_000);
    let folder = std::env::temp_dir().join(format!("idle-memory-{}", std::process::id()));
    let identities =
        Identities::self_signed(&folder, "mx.example.org", 1_800_000_000).expect("the folder can be written");
    let _ = fs::remove_dir_all(&folder);
    let server =
        Acceptor::new(ServerSettings::default(), IdentityStore::new(identities)).expect("the settings are good");
    // Memory of the first sessions is kept: otherwise the others would reuse it and measure as zero.
    let mut kept = Vec::new();
    for resumed in [false, true] {
        let client = Connector::new(ClientSettings { hosts_max: 1, ..ClientSettings::default() });
        drop(open(&client, &server, "first"));
        let mut all = Vec::with_capacity(sessions);
        let before = resident();
        for session in 0..sessions {
            let host = if resumed { "first".to_owned() } else { format!("host {session}") };
            all.push(open(&client, &server, &host));
        }
        let each = resident().saturating_sub(before) / (2 * sessions);
        println!("{sessions} sessions, {}: {each} octets for each side", if resumed { "resumed" } else { "new" });
        kept.push(all);
    }
}
