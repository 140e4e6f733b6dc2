//! What decoding costs at worst: for each decoder a search for the message with the highest processor time per octet,
//! held against plain words that take the same way. Conversions on the way out, and replies of milters and name servers
//! take ways of their own, and are held against the same plain words.
//!
//! The search is a climb with restarts: a message is a header and a few tokens over and over, and the mutation that
//! costs more is kept. The seed decides what is tried, the measured time what is kept. Time is that of the thread, the
//! least of several runs, so other processes do not add to it.

mod chain;
mod grammar;
mod peer_grammar;
mod peers;
mod recoders;

use std::path::PathBuf;

use serde_json::{Value, json};

use self::chain::Chain;
use self::grammar::{DECODERS, Decoder, Sample};
use self::peer_grammar::PeerDecoder;
use self::recoders::RECODERS;

/// Runs of one message, of which the quickest counts; and of what is reported.
const RUNS: usize = 3;
const RUNS_AT_END: usize = 15;
/// Of a decoder's attempts, one in so many begins anew.
const RESTART_ONE_IN: usize = 12;
/// Octets of a message that is written.
const WRITTEN_BYTES: usize = 256 * 1024;
/// Octets of a message that are shown.
const SHOWN_BYTES: usize = 160;

/// What to search, and how long.
pub struct Search {
    pub seed: u64,
    /// Octets of a message, at least.
    pub bytes: usize,
    /// Messages that are tried for each decoder.
    pub attempts: usize,
    /// Prefix of the decoders to search.
    pub only: String,
    /// Folder for a larger version of each worst message.
    pub folder: Option<PathBuf>,
}

/// The worst message of each decoder.
pub fn run(search: &Search) -> Value {
    let mut chain = Chain::new();
    let plain = chain.cost(&Sample::plain().message(search.bytes), RUNS_AT_END);
    let row = |chain: &mut Chain, decoder: &Decoder, cost: &dyn Fn(&mut Chain, &[u8], usize) -> f64| {
        let mut dice = fastrand::Rng::with_seed(search.seed ^ grammar::hash(decoder.name));
        let sample = worst(decoder, search, &mut dice, |message| cost(chain, message, RUNS));
        let message = sample.message(search.bytes);
        // Plain words again: what the machine can do may change meanwhile.
        let words = chain.cost(&Sample::plain().message(search.bytes), RUNS_AT_END);
        let cost = cost(chain, &message, RUNS_AT_END);
        if let Some(folder) = &search.folder {
            let path = folder.join(format!("{}.eml", decoder.name));
            std::fs::write(&path, sample.message(WRITTEN_BYTES)).expect("the folder takes files");
        }
        shown(decoder.name, cost, words, &message, &sample.unit())
    };
    let of_peer = |chain: &mut Chain, decoder: &PeerDecoder| {
        let mut dice = fastrand::Rng::with_seed(search.seed ^ grammar::hash(decoder.name));
        let next = |tried: Try<'_, _>, dice: &mut fastrand::Rng| match tried {
            Try::Seed(n) => decoder.seed(n),
            Try::Mutation(sample) => decoder.mutated(sample, dice),
            Try::Anew => decoder.random(dice),
        };
        let cost = |sample: &_| decoder.peer.cost(&decoder.reply(sample, search.bytes), RUNS);
        let sample = climb(search.attempts, decoder.seeds(), &mut dice, next, cost);
        let reply = decoder.reply(&sample, search.bytes);
        let words = chain.cost(&Sample::plain().message(search.bytes), RUNS_AT_END);
        shown(decoder.name, decoder.peer.cost(&reply, RUNS_AT_END), words, &reply, &sample.unit())
    };
    let mut rows: Vec<Value> = DECODERS
        .iter()
        .filter(|decoder| decoder.name.starts_with(&search.only))
        .map(|decoder| row(&mut chain, decoder, &|chain, message, runs| chain.cost(message, runs)))
        .collect();
    let recoders = RECODERS.iter().filter(|decoder| decoder.name.starts_with(&search.only));
    rows.extend(recoders.map(|decoder| row(&mut chain, decoder, &|_, message, runs| recoders::cost(message, runs))));
    let peers = peer_grammar::decoders();
    let peers = peers.iter().filter(|decoder| decoder.name.starts_with(&search.only));
    rows.extend(peers.map(|decoder| of_peer(&mut chain, decoder)));
    let ratio = |row: &Value| row["ratio"].as_f64().unwrap_or(f64::INFINITY);
    let worst = rows.iter().map(ratio).fold(0.0, f64::max);
    json!({ "worst": worst, "plain_ns_per_octet": round(plain), "seed": search.seed, "attempts": search.attempts, "rows": rows })
}

/// A decoder's row: nanoseconds for an octet of what was found, and of plain words.
fn shown(name: &str, cost: f64, words: f64, octets: &[u8], unit: &[u8]) -> Value {
    let begins = octets[..octets.len().min(SHOWN_BYTES)].escape_ascii().to_string();
    let unit = unit[..unit.len().min(SHOWN_BYTES)].escape_ascii().to_string();
    json!({
        "decoder": name, "ratio": round(cost / words), "ns_per_octet": round(cost), "plain_ns_per_octet": round(words),
        "begins": begins, "unit": unit, "octets": octets.len(),
    })
}

fn worst(decoder: &Decoder, search: &Search, dice: &mut fastrand::Rng, mut cost: impl FnMut(&[u8]) -> f64) -> Sample {
    let next = |tried: Try<'_, Sample>, dice: &mut fastrand::Rng| match tried {
        Try::Seed(n) => Sample::seed(decoder, n),
        Try::Mutation(sample) => sample.mutated(decoder, dice),
        Try::Anew => Sample::random(decoder, dice),
    };
    let cost = |sample: &Sample| cost(&sample.message(search.bytes));
    climb(search.attempts, decoder.seeds.len(), dice, next, cost)
}

/// Which sample is tried next.
enum Try<'s, S> {
    /// One that is known to be expensive.
    Seed(usize),
    Mutation(&'s S),
    Anew,
}

/// Tries seeds, then mutations; returns the most expensive sample.
fn climb<S: Clone>(
    attempts: usize,
    seeds: usize,
    dice: &mut fastrand::Rng,
    next: impl Fn(Try<'_, S>, &mut fastrand::Rng) -> S,
    mut cost: impl FnMut(&S) -> f64,
) -> S {
    let first = next(Try::Seed(0), dice);
    let (mut best, mut here): ((f64, S), Option<(f64, S)>) = ((cost(&first), first), None);
    for attempt in 1..attempts {
        let begins_anew = attempt % RESTART_ONE_IN == 0;
        let sample = match &here {
            _ if attempt < seeds => next(Try::Seed(attempt), dice),
            Some((_, sample)) if !begins_anew => next(Try::Mutation(sample), dice),
            _ => next(Try::Anew, dice),
        };
        let cost = cost(&sample);
        if cost > best.0 {
            best = (cost, sample.clone());
        }
        if here.as_ref().is_none_or(|(most, _)| cost > *most || begins_anew) {
            here = Some((cost, sample));
        }
        // Most of the time goes on from the best.
        if dice.u8(0..4) == 0 {
            here = Some(best.clone());
        }
    }
    best.1
}

fn round(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}
