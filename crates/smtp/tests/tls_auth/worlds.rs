//! Seeded worlds: our client and our server with each other over a wire that may have an attacker, and each with a
//! hostile peer.

use fastrand::Rng;
use stentor_sasl::ScramKeys;
use stentor_smtp::client::{ClientError, TlsStage, TlsUse};

use super::Mutation;
use super::coverage::{Coverage, Forms, InvariantResult, PASSWORD, ensure};
use super::hostile_client::HostileClient;
use super::hostile_server::HostileServer;
use super::our_client::{self, Mail, OurClient, Verdict};
use super::our_server::{self, OurServer, StoredMessage};
use super::wire::{START, Weather, run};

/// Connections for the same mail: the last ones are undisturbed.
const CONNECTIONS_MAX: u32 = 3;

/// Data shared by all worlds, since it is expensive to create.
pub struct Common {
    forms: Forms,
    keys: ScramKeys,
}

impl Common {
    pub fn new() -> Common {
        let keys = ScramKeys::new(PASSWORD, b"0123456789abcdef", 4_096).expect("a password");
        Common { forms: Forms::new(), keys }
    }
}

fn mails(rng: &mut Rng) -> Vec<Mail> {
    let mail = |number: usize, rng: &mut Rng| {
        let lines = (0..rng.usize(0..40)).map(|line| if line % 7 == 3 { ".\r\n" } else { "of a message\r\n" });
        let content = format!("Subject: {number}\r\n\r\n{}", lines.collect::<String>());
        Mail { sender: format!("ours{number}@x.org"), content: content.into_bytes(), verdict: None }
    };
    (0..rng.usize(1..4)).map(|number| mail(number, rng)).collect()
}

/// Runs our client with our server.
pub fn ours(seed: u64, mutation: Mutation, common: &Common) -> InvariantResult<Coverage> {
    let mut rng = Rng::with_seed(seed);
    let mut coverage = Coverage::default();
    let mut client_plan = our_client::Plan::new(&mut rng, mutation);
    let mut server_plan = our_server::Plan::new(&mut rng, mutation);
    server_plan.is_implicit = client_plan.tls == TlsUse::Implicit;
    let mut ledger: Vec<_> = mails(&mut rng).into_iter().map(|mail| (mail, 0_usize, 0_usize)).collect();
    for _ in 0..CONNECTIONS_MAX {
        let has_attacker = rng.u32(0..3) == 0;
        let mut weather = Weather::new(&mut rng, has_attacker);
        let waiting = |mail: &&mut (Mail, usize, usize)| mail.0.verdict != Some(Verdict::Delivered);
        let mut round: Vec<_> = ledger.iter_mut().filter(waiting).collect();
        if round.is_empty() {
            break;
        }
        let mails = round.iter().map(|(mail, ..)| Mail { verdict: None, ..mail.clone() }).collect();
        let mut client = OurClient::new(client_plan.clone(), mails, &common.forms, rng.u64(..), START);
        let mut server = OurServer::new(server_plan.clone(), &common.forms, &common.keys, rng.u64(..), START);
        run(&mut client, &mut server, &mut weather, &mut rng, &mut coverage)?;
        coverage.add(&client.coverage);
        coverage.add(&server.coverage);
        // In clear, an attacker may send anything in the server's name.
        let is_forged = weather.is_tampered && client.stage() != TlsStage::Secured;
        for ((mail, stored, perhaps), now) in round.iter_mut().zip(&client.mails) {
            mail.verdict = now.verdict.or(mail.verdict);
            let copies = copies(mail, &server.stored)?;
            *stored += copies;
            *perhaps += usize::from(now.verdict == Some(Verdict::Perhaps));
            if is_forged {
                coverage.step("wire: replies may be forged");
                return Ok(coverage);
            }
            match now.verdict {
                Some(Verdict::Delivered) => ensure(copies == 1, || format!("delivered, and {copies} are there"))?,
                Some(Verdict::Perhaps) => {}
                Some(Verdict::Not) | None => ensure(copies == 0, || "not delivered, and it is there".to_owned())?,
            }
        }
        // The server (`crates/delivery`) retries in clear, over a new connection, if nothing requires more.
        if client_plan.tls == TlsUse::IfOffered && matches!(client.error, Some(ClientError::Tls(_))) {
            coverage.step("client: a new connection in clear after TLS has failed");
            client_plan.tls = TlsUse::Never;
        }
    }
    for (mail, stored, perhaps) in &ledger {
        let most = perhaps + usize::from(mail.verdict == Some(Verdict::Delivered));
        ensure(*stored <= most, || format!("{stored} copies of {}, and {most} may be there", mail.sender))?;
    }
    Ok(coverage)
}

/// Returns how many complete copies of a message the server has.
fn copies(mail: &Mail, stored: &[StoredMessage]) -> InvariantResult<usize> {
    let mut copies = 0;
    for one in stored.iter().filter(|one| one.sender == mail.sender) {
        ensure(one.content == mail.content, || "the content is not what was sent".to_owned())?;
        copies += 1;
    }
    Ok(copies)
}

/// Runs our client with a hostile server.
pub fn hostile_server(seed: u64, mutation: Mutation, common: &Common) -> InvariantResult<Coverage> {
    let mut rng = Rng::with_seed(seed);
    let mut coverage = Coverage::default();
    let plan = our_client::Plan::new(&mut rng, mutation);
    let mut weather = Weather::new(&mut rng, false);
    let mut server = HostileServer::new(rng.u64(..), plan.tls == TlsUse::Implicit, &common.keys);
    let mails = mails(&mut rng);
    let mut client = OurClient::new(plan, mails, &common.forms, rng.u64(..), START);
    run(&mut client, &mut server, &mut weather, &mut rng, &mut coverage)?;
    coverage.add(&client.coverage);
    Ok(coverage)
}

/// Runs our server with a hostile client.
pub fn hostile_client(seed: u64, mutation: Mutation, common: &Common) -> InvariantResult<Coverage> {
    let mut rng = Rng::with_seed(seed);
    let mut coverage = Coverage::default();
    let mut plan = our_server::Plan::new(&mut rng, mutation);
    plan.is_implicit = rng.u32(0..6) == 0;
    let mut weather = Weather::new(&mut rng, false);
    let mut client = HostileClient::new(rng.u64(..), plan.is_implicit);
    let mut server = OurServer::new(plan, &common.forms, &common.keys, rng.u64(..), START);
    run(&mut client, &mut server, &mut weather, &mut rng, &mut coverage)?;
    coverage.add(&server.coverage);
    let known = ["clear@x.org", "within@x.org"];
    let is_whole = |one: &StoredMessage| {
        known.contains(&&*one.sender) && (one.content == b"AB\r\n" || one.content.starts_with(b"Subject"))
    };
    ensure(server.stored.iter().all(is_whole), || format!("stored what nobody sent: {:?}", server.stored))?;
    Ok(coverage)
}
