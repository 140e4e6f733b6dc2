//! How many events go into one request, and when a refused event is dropped. Pure.
//!
//! Promise: a refusal that is about the events ([`is_about_events`]) blocks the endpoint for a limited time. The
//! request is halved until the refused event is alone; that event is sent [`REFUSALS_MAX`] times and then dropped.
//! Every other event is sent until it is accepted, in order. After a refusal, requests grow again only after
//! [`GROWS_AFTER`] accepted ones, or at once when the refused event was dropped.

/// Refusals of an event that is alone in its request, after which it is dropped: about a quarter of an hour, so that a
/// firewall's mistake can be corrected before much is lost.
pub(super) const REFUSALS_MAX: u32 = 12;
/// Accepted requests after which twice as many events are tried.
const GROWS_AFTER: u32 = 64;

/// Whether a refusal with this status may be about the events of the request: it is too large (413), or a firewall
/// dislikes its text. The others are about the URL, the login or the time, and the events are kept for as long as the
/// history keeps them.
pub(super) fn is_about_events(status: u16) -> bool {
    (400..500).contains(&status) && !matches!(status, 401 | 404 | 405 | 407 | 408 | 410 | 421 | 425 | 429)
}

/// What follows a refusal that is about the events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RefusalStep {
    /// Send a smaller request.
    Halve,
    /// Send the same event again after a pause.
    Retry,
    /// Drop the only event of the request.
    Drop,
}

/// The size of an endpoint's requests.
pub(super) struct RequestSize {
    /// `batch_max` of the endpoint.
    batch_max: usize,
    events_max: usize,
    /// Requests accepted with this size.
    accepted: u32,
    /// Refusals of the event that is alone in its request.
    refusals: u32,
}

impl RequestSize {
    pub fn new(batch_max: usize) -> RequestSize {
        RequestSize { batch_max, events_max: batch_max, accepted: 0, refusals: 0 }
    }

    /// Maximum events of the next request.
    pub fn events_max(&self) -> usize {
        self.events_max.max(1)
    }

    /// Whether earlier requests were too large.
    pub fn is_reduced(&self) -> bool {
        self.events_max < self.batch_max
    }

    /// Tries more events per request once [`GROWS_AFTER`] requests were accepted. Call after each accepted request.
    pub fn after_acceptance(&mut self) {
        (self.accepted, self.refusals) = (self.accepted + 1, 0);
        if self.accepted >= GROWS_AFTER {
            (self.accepted, self.events_max) = (0, self.events_max.saturating_mul(2).min(self.batch_max));
        }
    }

    /// Returns the step after a refused request of so many events: halve it, retry its only event, or drop that event
    /// and restore the full size.
    pub fn after_refusal(&mut self, events: usize) -> RefusalStep {
        self.accepted = 0;
        if events > 1 {
            (self.events_max, self.refusals) = (events / 2, 0);
            return RefusalStep::Halve;
        }
        self.refusals += 1;
        if self.refusals < REFUSALS_MAX {
            return RefusalStep::Retry;
        }
        // The refused event was found, and the others need not suffer for it.
        *self = RequestSize::new(self.batch_max);
        RefusalStep::Drop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends events to an endpoint. Returns the accepted ones in their order, the dropped ones, and the requests.
    fn sent(events: &[u32], batch_max: usize, accepts: impl Fn(&[u32]) -> bool) -> (Vec<u32>, Vec<u32>, usize) {
        let (mut size, mut from, mut requests) = (RequestSize::new(batch_max), 0, 0);
        let (mut accepted, mut dropped) = (Vec::new(), Vec::new());
        while from < events.len() {
            let to = (from + size.events_max()).min(events.len());
            requests += 1;
            if accepts(&events[from..to]) {
                size.after_acceptance();
                accepted.extend(&events[from..to]);
                from = to;
            } else if size.after_refusal(to - from) == RefusalStep::Drop {
                dropped.push(events[from]);
                assert_eq!(to, from + 1);
                from = to;
            }
        }
        (accepted, dropped, requests)
    }

    #[test]
    fn an_event_that_is_refused_alone_is_dropped_and_no_other() {
        let events: Vec<u32> = (0..500).collect();
        for poison in [0, 1, 250, 299, 498, 499] {
            let (accepted, dropped, requests) = sent(&events, 100, |some| !some.contains(&poison));
            assert_eq!(dropped, [poison]);
            assert_eq!(accepted, events.iter().copied().filter(|event| *event != poison).collect::<Vec<_>>());
            assert!(requests < 40, "{requests}");
        }
        let (accepted, dropped, _) = sent(&events[..3], 1, |_| false);
        assert_eq!((accepted, dropped), (vec![], vec![0, 1, 2]));
    }

    #[test]
    fn a_request_that_is_too_large_is_halved_and_grows_slowly() {
        let events: Vec<u32> = (0..50_000).collect();
        let (accepted, dropped, requests) = sent(&events, 500, |some| some.len() <= 130);
        assert_eq!((accepted, dropped), (events, vec![]));
        assert!(requests < 50_000 / 125 + 20, "{requests}");
        // A smaller limit for a time leaves no trace.
        let mut size = RequestSize::new(500);
        for events in [500, 250, 125, 62] {
            assert_eq!(size.after_refusal(events), RefusalStep::Halve);
        }
        assert!(size.is_reduced());
        (0..GROWS_AFTER * 5).for_each(|_| size.after_acceptance());
        assert_eq!((size.events_max(), size.is_reduced()), (500, false));
    }

    #[test]
    fn statuses_about_the_events() {
        let about: Vec<u16> = [400, 403, 406, 413, 415, 418, 422, 431, 451, 499].into();
        let others = [200, 301, 308, 401, 404, 405, 407, 408, 410, 421, 425, 429, 500, 502, 503];
        assert!(about.into_iter().all(is_about_events));
        assert!(!others.into_iter().any(is_about_events));
    }
}
