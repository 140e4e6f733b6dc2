//! STARTTLS and AUTH in seeded worlds: our sessions with each other and with hostile ones, over a wire that cuts,
//! stalls, and may have an attacker. `TLS_AUTH_SEED=n cargo test -p stentor-mail --test tls_auth` repeats one world of
//! each kind, `TLS_AUTH_SEEDS=n` runs that many. The checked properties are listed in `our_client` and `our_server`,
//! and in `worlds` those on which both must agree.

mod coverage;
mod hostile_client;
mod hostile_server;
mod our_client;
mod our_server;
mod wire;
mod worlds;

use coverage::{Coverage, InvariantResult};
use worlds::Common;

/// Worlds of each kind per run: takes some seconds.
const SEEDS: u64 = if cfg!(debug_assertions) { 4_000 } else { 20_000 };
/// Worlds within which a mutation must be found.
const MUTATION_SEEDS: u64 = 5_000;

/// A mistake of a caller, which the checks must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutation {
    None,
    /// Cleartext octets that arrive during the handshake are read as if they had come within TLS (CVE-2021-38371).
    ClientKeepsClear,
    /// Cleartext octets are kept on the server's side (CVE-2011-0411).
    ServerKeepsClear,
    /// TLS is only used if offered, where it is required.
    ClientForgetsPolicy,
    /// Passwords are sent to any host.
    ClientShowsSecret,
    /// A host is trusted that has not proven to know the password.
    ClientBelievesAnybody,
    /// Any password is accepted.
    ServerBelievesAnybody,
}

type World = fn(u64, Mutation, &Common) -> InvariantResult<Coverage>;
const WORLDS: [(&str, World); 3] = [
    ("ours", worlds::ours),
    ("our client and a hostile server", worlds::hostile_server),
    ("our server and a hostile client", worlds::hostile_client),
];

/// Each step of STARTTLS and AUTH on either side. A step that no world reaches is no longer tested.
const STEPS: &[&str] = &[
    "client: 421 to AUTH",
    "client: 421 to STARTTLS",
    "client: 432",
    "client: 454",
    "client: 501",
    "client: 504",
    "client: 534",
    "client: 535",
    "client: 538",
    "client: 550 to AUTH",
    "client: AUTH is demanded and not offered",
    "client: AUTH whose initial response waits",
    "client: AUTH with an initial response",
    "client: AUTH without an initial response",
    "client: HELO within TLS",
    "client: STARTTLS is not offered, goes on in clear",
    "client: STARTTLS is refused, goes on in clear",
    "client: STARTTLS is required and not offered",
    "client: STARTTLS is required and refused",
    "client: TLS fails behind the handshake",
    "client: a new connection in clear after TLS has failed",
    "client: begins the handshake",
    "client: cancels a challenge that is not base64",
    "client: cancels for a challenge that the mechanism does not have",
    "client: gives AUTH up before it",
    "client: gives AUTH up in it",
    "client: leaves a host that has not proven itself",
    "client: logged in by CRAM-MD5",
    "client: logged in by LOGIN",
    "client: logged in by OAUTHBEARER",
    "client: logged in by PLAIN",
    "client: logged in by SCRAM-SHA-256",
    "client: logged in by SCRAM-SHA-256-PLUS",
    "client: logged in by XOAUTH2",
    "client: lost at STARTTLS",
    "client: lost in AUTH",
    "client: lost in the handshake",
    "client: no mechanism to take",
    "client: nonsense to AUTH",
    "client: nonsense to STARTTLS",
    "client: octets behind the go-ahead",
    "client: octets in clear in the handshake",
    "client: responds",
    "client: responds with nothing",
    "client: the handshake is made",
    "client: the handshake is refused",
    "client: the host is not proven in the handshake",
    "client: time is up at STARTTLS",
    "client: time is up in AUTH",
    "client: time is up in the handshake",
    "server: AUTH before STARTTLS",
    "server: AUTH by a mechanism that is not offered",
    "server: AUTH in a transaction",
    "server: AUTH or MAIL before EHLO",
    "server: AUTH twice",
    "server: AUTH with an empty initial response",
    "server: AUTH with an initial response",
    "server: AUTH with too many words, or none",
    "server: AUTH without an initial response",
    "server: MAIL before AUTH",
    "server: STARTTLS or AUTH where it is not offered",
    "server: STARTTLS twice",
    "server: TLS fails",
    "server: a challenge",
    "server: a command before STARTTLS",
    "server: a login ends at STARTTLS",
    "server: a response",
    "server: a response is too long",
    "server: a response that the mechanism does not have",
    "server: a response with LF alone",
    "server: an empty response",
    "server: an exchange is cancelled",
    "server: logged in by LOGIN",
    "server: logged in by OAUTHBEARER",
    "server: logged in by PLAIN",
    "server: logged in by SCRAM-SHA-256",
    "server: logged in by SCRAM-SHA-256-PLUS",
    "server: logged in by XOAUTH2",
    "server: lost in the handshake",
    "server: no handshake comes",
    "server: octets behind STARTTLS",
    "server: shows an unknown command",
    "server: takes STARTTLS",
    "server: the connection ends in an exchange",
    "server: the handshake fails",
    "server: the handshake is made",
    "server: time is up",
    "server: time is up in an exchange",
    "server: time is up in the handshake",
    "server: too many logins fail",
    "server: what is not base64",
    "wire: cut",
    "wire: replies may be forged",
    "wire: stalled",
];

#[test]
fn each_step_is_reached_and_nothing_goes_wrong() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let common = Common::new();
    let seeds = match number("TLS_AUTH_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TLS_AUTH_SEEDS").unwrap_or(SEEDS),
    };
    let is_one = seeds.end == seeds.start + 1;
    let mut all = Coverage::default();
    for seed in seeds {
        for (name, world) in WORLDS {
            match world(seed, Mutation::None, &common) {
                Ok(coverage) => all.add(&coverage),
                Err(fault) => panic!("TLS_AUTH_SEED={seed}, {name}: {fault}"),
            }
        }
    }
    if is_one {
        return println!("{all:#?}");
    }
    let missing: Vec<_> = STEPS.iter().filter(|step| !all.0.contains_key(*step)).collect();
    assert!(missing.is_empty(), "steps that no world has reached: {missing:#?}\nreached: {all:#?}");
    let unlisted: Vec<_> = all.0.keys().filter(|step| !STEPS.contains(step)).collect();
    assert!(unlisted.is_empty(), "steps that are not in the list: {unlisted:#?}");
}

/// The checks must be able to fail.
#[test]
fn each_mutation_is_found() {
    let common = Common::new();
    for (mutation, found) in [
        (Mutation::ClientKeepsClear, "what came in clear counts within TLS"),
        (Mutation::ServerKeepsClear, "what came in clear counts within TLS"),
        (Mutation::ClientForgetsPolicy, "where TLS is required"),
        (Mutation::ClientShowsSecret, "a secret goes to anybody"),
        (Mutation::ClientBelievesAnybody, "without the login"),
        (Mutation::ServerBelievesAnybody, "another login than was made"),
    ] {
        let faults = (0..MUTATION_SEEDS).flat_map(|seed| WORLDS.map(|(_, world)| world(seed, mutation, &common)));
        let is_found = faults.filter_map(Result::err).any(|fault| fault.contains(found));
        assert!(is_found, "{mutation:?} is not found");
    }
}
