//! A connection in memory, in virtual time: octets arrive in pieces, late, or not at all; and there may be an attacker
//! on the wire.
//!
//! TLS is modelled as a layer of each piece of octets: the attacker can change and add cleartext octets, but can only
//! cut those within TLS.

use std::collections::VecDeque;

use fastrand::Rng;
use stentor_mail::Ms;

use super::coverage::{Coverage, InvariantResult};

pub const START: Ms = 1_800_000_000_000;
/// Maximum number of events in a world.
const TURNS_MAX: u32 = 20_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    Clear,
    /// Messages of the handshake, which only its two ends can make.
    Handshake,
    Tls,
}

#[derive(Debug, Clone)]
pub struct Segment {
    pub layer: Layer,
    pub octets: Vec<u8>,
}

impl Segment {
    pub fn new(layer: Layer, octets: &[u8]) -> Segment {
        Segment { layer, octets: octets.to_vec() }
    }
}

/// One end of the connection.
pub trait End {
    /// Handles octets of one layer.
    fn read(&mut self, segment: Segment, now: Ms) -> InvariantResult;
    /// Handles the end of input.
    fn disconnected(&mut self, now: Ms) -> InvariantResult;
    /// Acts on its own; false if it has nothing to do.
    fn act(&mut self, now: Ms) -> InvariantResult<bool>;
    fn deadline(&self) -> Ms {
        Ms::MAX
    }
    /// Handles a passed deadline.
    fn timed_out(&mut self, _: Ms) -> InvariantResult {
        Ok(())
    }
    /// Takes the octets written since the last call.
    fn written(&mut self) -> Vec<Segment>;
    fn is_closed(&self) -> bool;
}

/// The behaviour of the network, and of an attacker.
pub struct Weather {
    /// The connection is cut after this many turns.
    pub cut_after: Option<u32>,
    /// Both ends fall silent after this many turns, until a deadline passes.
    pub stall_after: Option<u32>,
    /// Maximum octets that arrive together.
    pub piece_bytes_max: usize,
    /// An attacker changes and adds cleartext octets.
    pub has_attacker: bool,
    /// The attacker has done so.
    pub is_tampered: bool,
}

impl Weather {
    pub fn new(rng: &mut Rng, has_attacker: bool) -> Weather {
        let after = |rng: &mut Rng| if rng.u32(0..5) == 0 { Some(rng.u32(1..60)) } else { None };
        Weather {
            cut_after: after(rng),
            stall_after: after(rng),
            piece_bytes_max: [1, 7, 64, 20_000][rng.usize(0..4)],
            has_attacker,
            is_tampered: false,
        }
    }
}

/// Octets injected in clear, for the server and for the client. Their names are searched for later.
const TO_SERVER: [&str; 6] = [
    "EHLO injected\r\nMAIL FROM:<injected@x.org>\r\n",
    "MAIL FROM:<injected@x.org>\r\nRCPT TO:<b@y.org>\r\n",
    "\r\n",
    "AUTH PLAIN AGluamVjdGVkAGluamVjdGVk\r\n",
    "RSET\r\nNOOP\r\n",
    "E",
];
const TO_CLIENT: [&str; 6] = [
    "250-injected\r\n250-AUTH PLAIN LOGIN\r\n250 PIPELINING\r\n",
    "235 2.7.0 injected\r\n",
    "2",
    "\r\n",
    "334 aW5qZWN0ZWQ=\r\n",
    "220 2.0.0 injected\r\n",
];

/// Sends one end's output, as modified by the attacker.
fn send(written: Vec<Segment>, to: &mut VecDeque<Segment>, is_up: bool, weather: &mut Weather, rng: &mut Rng) {
    for mut segment in written {
        let mut behind = None;
        if weather.has_attacker && segment.layer == Layer::Clear {
            let text = String::from_utf8_lossy(&segment.octets).into_owned();
            let turns = text.ends_with("STARTTLS\r\n") || text.starts_with("220 2.0.0 Ready");
            if !is_up && text.contains("250-STARTTLS\r\n") && rng.u32(0..6) == 0 {
                segment.octets = text.replace("250-STARTTLS\r\n", "").into_bytes();
                weather.is_tampered = true;
            } else if !is_up && text.starts_with("220 2.0.0 Ready") && rng.u32(0..8) == 0 {
                segment.octets = b"454 4.7.0 injected\r\n".to_vec();
                weather.is_tampered = true;
            } else if rng.u32(0..if turns { 3 } else { 24 }) == 0 {
                behind = rng.choice(if is_up { TO_SERVER } else { TO_CLIENT });
                weather.is_tampered = true;
            }
        }
        to.push_back(segment);
        to.extend(behind.map(|octets| Segment::new(Layer::Clear, octets.as_bytes())));
    }
}

/// Returns the next octets to arrive.
fn receive(from: &mut VecDeque<Segment>, bytes_max: usize, rng: &mut Rng) -> Option<Segment> {
    let mut piece = from.pop_front()?;
    if piece.layer == Layer::Handshake {
        return Some(piece);
    }
    while rng.bool()
        && let Some(next) = from.pop_front_if(|next| next.layer == piece.layer)
    {
        piece.octets.extend(next.octets);
    }
    // Long input arrives in several pieces, not in thousands.
    let bytes = rng.usize(1..=bytes_max.max(piece.octets.len() / 40));
    if piece.octets.len() > bytes {
        let rest = piece.octets.split_off(bytes);
        from.push_front(Segment { layer: piece.layer, octets: rest });
    }
    Some(piece)
}

/// Runs both ends until they are closed.
pub fn run<'a>(
    client: &mut (dyn End + 'a),
    server: &mut (dyn End + 'a),
    weather: &mut Weather,
    rng: &mut Rng,
    coverage: &mut Coverage,
) -> InvariantResult {
    let (mut up, mut down) = (VecDeque::new(), VecDeque::new());
    let mut now = START;
    for turn in 0..TURNS_MAX {
        send(client.written(), &mut up, true, weather, rng);
        send(server.written(), &mut down, false, weather, rng);
        if client.is_closed() && server.is_closed() {
            return Ok(());
        }
        if weather.cut_after == Some(turn) {
            coverage.step("wire: cut");
            up.clear();
            down.clear();
            client.disconnected(now)?;
            server.disconnected(now)?;
            continue;
        }
        now += rng.u64(0..20);
        let is_stalled = weather.stall_after.is_some_and(|after| turn >= after);
        if !is_stalled {
            if rng.bool() && client.act(now)? {
                continue;
            }
            let (from, to, other_is_closed) = if rng.bool() {
                (&mut up, &mut *server, client.is_closed())
            } else {
                (&mut down, &mut *client, server.is_closed())
            };
            match receive(from, weather.piece_bytes_max, rng) {
                Some(segment) if !to.is_closed() => to.read(segment, now)?,
                None if other_is_closed && !to.is_closed() => to.disconnected(now)?,
                _ => {}
            }
            let nothing_comes = up.is_empty() && down.is_empty();
            if !nothing_comes || client.is_closed() || server.is_closed() || client.act(now)? || server.act(now)? {
                continue;
            }
        }
        // Both wait for each other.
        send(client.written(), &mut up, true, weather, rng);
        send(server.written(), &mut down, false, weather, rng);
        if !is_stalled && (!up.is_empty() || !down.is_empty()) {
            continue;
        }
        let deadline = [&*client, &*server].iter().filter(|end| !end.is_closed()).map(|end| end.deadline()).min();
        let deadline = deadline.filter(|deadline| *deadline < Ms::MAX);
        if is_stalled {
            coverage.step("wire: stalled");
            weather.stall_after = None;
            now = now.max(deadline.unwrap_or_default());
        } else {
            now = now.max(deadline.ok_or("both ends wait, and nothing will ever happen")?);
        }
        for end in [&mut *client, &mut *server] {
            if !end.is_closed() && end.deadline() <= now {
                end.timed_out(now)?;
            }
        }
    }
    Err(format!("no end after {TURNS_MAX} turns"))
}
