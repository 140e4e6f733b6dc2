//! Rates of clients: connections, messages and recipients in the last minute and hour.
//!
//! Promise: the number of events in a sliding window is estimated from the current window and the previous one,
//! assuming an even flow in the latter. A client is an IPv4 address or an IPv6 /64. Up to the number of clients given
//! to [`Rates::new`] are known, briefly twice that: there are two generations, of which the older one is dropped when
//! the younger one is full or an hour old. Rates of clients with more addresses are underestimated, never
//! overestimated.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 3_600_000;

/// Counted events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Connection,
    Message,
    Recipient,
}

/// Period of a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    Minute,
    Hour,
}

const EVENTS: [(&str, Event); 3] =
    [("connections", Event::Connection), ("messages", Event::Message), ("recipients", Event::Recipient)];
const WINDOWS: [(&str, Window); 2] = [("minute", Window::Minute), ("hour", Window::Hour)];

/// A limit on a rate: `30 connections/minute`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateOver {
    over: u32,
    event: Event,
    window: Window,
}

impl RateOver {
    /// Parses a limit; `None`: it is not valid.
    pub fn parse(text: &str) -> Option<RateOver> {
        let (number, what) = text.trim().split_once(' ')?;
        let (event, window) = what.trim().split_once('/')?;
        let event = EVENTS.iter().find(|(word, _)| *word == event)?.1;
        let window = WINDOWS.iter().find(|(word, _)| *word == window)?.1;
        Some(RateOver { over: number.parse().ok()?, event, window })
    }

    /// Whether a client's rate exceeds the limit.
    pub fn is_exceeded(&self, counts: &Counts) -> RateVerdict {
        match counts.of(self.event, self.window) {
            None => RateVerdict::Unknown,
            Some(rate) if rate > self.over => RateVerdict::Yes(rate),
            Some(_) => RateVerdict::No,
        }
    }
}

impl fmt::Display for RateOver {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let event = EVENTS.iter().find(|(_, event)| *event == self.event).map_or("", |(word, _)| word);
        let window = WINDOWS.iter().find(|(_, window)| *window == self.window).map_or("", |(word, _)| word);
        write!(out, "{} {event}/{window}", self.over)
    }
}

/// Result of a comparison with a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateVerdict {
    /// Exceeded, with the client's rate.
    Yes(u32),
    No,
    Unknown,
}

/// A client's counts, by event, in the last minute and in the last hour; `None`: unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts([[Option<u32>; 2]; 3]);

impl Counts {
    pub(crate) const NONE: Counts = Counts([[Some(0); 2]; 3]);
    pub(crate) const UNKNOWN: Counts = Counts([[None; 2]; 3]);

    fn of(&self, event: Event, window: Window) -> Option<u32> {
        self.0[event as usize][window as usize]
    }

    /// Sets a rate from a statement: `40 connections/minute`.
    pub fn state(&mut self, rate: &RateOver) {
        self.0[rate.event as usize][rate.window as usize] = Some(rate.over);
    }
}

/// Counts of one window and of the previous one.
#[derive(Debug, Clone, Copy, Default)]
struct Sliding {
    /// Number of the current window since the epoch.
    at: u64,
    now: [u32; 3],
    before: [u32; 3],
}

impl Sliding {
    fn turn(&mut self, at: u64) {
        if at == self.at {
            return;
        }
        self.before = if at == self.at + 1 { self.now } else { [0; 3] };
        (self.at, self.now) = (at, [0; 3]);
    }

    fn read(&self, ms: u64, window_ms: u64) -> [u32; 3] {
        let left = window_ms - ms % window_ms;
        std::array::from_fn(|n| {
            let part = u64::from(self.before[n]) * left / window_ms;
            self.now[n].saturating_add(part as u32)
        })
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Client {
    minute: Sliding,
    hour: Sliding,
}

/// Rates of all clients; see the module documentation.
#[derive(Debug, Default)]
pub struct Rates {
    clients_max: usize,
    young: HashMap<IpAddr, Client>,
    old: HashMap<IpAddr, Client>,
    /// Start of the younger generation.
    since: u64,
}

impl Rates {
    pub fn new(clients_max: usize) -> Rates {
        Rates { clients_max, ..Rates::default() }
    }

    /// Counts an event of a client, by its address for counting (`stentor_policy::counted_as`), at a monotonic time
    /// in milliseconds. Returns the new counts.
    pub fn count(&mut self, client: IpAddr, event: Event, now: u64) -> Counts {
        if self.young.len() >= self.clients_max || now.saturating_sub(self.since) >= HOUR_MS {
            self.old = std::mem::take(&mut self.young);
            self.since = now;
        }
        let old = &mut self.old;
        let known = self.young.entry(client).or_insert_with(|| old.remove(&client).unwrap_or_default());
        known.minute.turn(now / MINUTE_MS);
        known.hour.turn(now / HOUR_MS);
        for sliding in [&mut known.minute, &mut known.hour] {
            let count = &mut sliding.now[event as usize];
            *count = count.saturating_add(1);
        }
        let (minute, hour) = (known.minute.read(now, MINUTE_MS), known.hour.read(now, HOUR_MS));
        Counts(std::array::from_fn(|n| [Some(minute[n]), Some(hour[n])]))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn client(n: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(n).into()
    }

    fn exceeds(rate: &str, counts: &Counts) -> bool {
        matches!(RateOver::parse(rate).unwrap().is_exceeded(counts), RateVerdict::Yes(_))
    }

    #[test]
    fn rates_are_read_as_they_are_written() {
        for text in ["30 connections/minute", "200 messages/hour", "0 recipients/minute"] {
            assert_eq!(RateOver::parse(text).unwrap().to_string(), text);
        }
        for wrong in
            ["", "30", "30 connections", "30 connections/day", "x messages/hour", "-1 messages/hour", "30 mails/hour"]
        {
            assert_eq!(RateOver::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_window_slides_and_clients_and_events_are_apart() {
        let mut rates = Rates::new(100);
        let counts = (0..31).map(|_| rates.count(client(1), Event::Connection, HOUR_MS)).last().unwrap();
        assert!(exceeds("30 connections/minute", &counts) && !exceeds("31 connections/minute", &counts));
        assert!(!exceeds("0 messages/minute", &counts) && exceeds("30 connections/hour", &counts));
        assert!(!exceeds("1 connections/minute", &rates.count(client(2), Event::Connection, HOUR_MS)));
        // Half a minute into the next window, half of the previous one counts.
        let later = rates.count(client(1), Event::Connection, HOUR_MS + 90_000);
        assert!(exceeds("15 connections/minute", &later) && !exceeds("16 connections/minute", &later));
        let much_later = rates.count(client(1), Event::Connection, HOUR_MS + 180_000);
        assert!(!exceeds("1 connections/minute", &much_later) && exceeds("32 connections/hour", &much_later));
        assert!(!exceeds("1 connections/hour", &rates.count(client(1), Event::Connection, 4 * HOUR_MS)));
    }

    #[test]
    fn memory_is_bounded_and_who_goes_on_stays_known() {
        let mut rates = Rates::new(100);
        let mut last = Counts::NONE;
        for n in 0..10_000 {
            last = rates.count(client(0), Event::Message, HOUR_MS);
            rates.count(client(n), Event::Connection, HOUR_MS);
            assert!(rates.young.len() <= 100 && rates.old.len() <= 100);
        }
        assert!(exceeds("9999 messages/minute", &last));
    }

    proptest! {
        #[test]
        fn no_flow_is_counted_too_high(steps in prop::collection::vec(0u64..90_000, 1..200)) {
            let mut rates = Rates::new(10);
            let (mut now, mut times) = (10 * HOUR_MS, Vec::new());
            for step in steps {
                now += step;
                times.push(now);
                let counts = rates.count(client(1), Event::Recipient, now);
                let within_two = times.iter().filter(|at| now - **at < 2 * MINUTE_MS).count();
                prop_assert!(counts.of(Event::Recipient, Window::Minute).unwrap() as usize <= within_two);
                prop_assert!(counts.of(Event::Recipient, Window::Minute) >= Some(1));
            }
        }
    }
}
