//! How many events go into one request, and when a refused event is dropped. Pure.
//!
//! Promise: a refusal that is about the events ([`FailureCause::Events`]) blocks the endpoint for a limited time. The
//! request is halved until the refused event is alone; that event is sent [`REFUSALS_MAX`] times and then dropped.
//! Every other event is sent until it is accepted, in order. After a refusal, requests grow again only after
//! [`GROWS_AFTER`] accepted ones, or at once when the refused event was dropped.
//!
//! A 403 ([`FailureCause::Ambiguous`]) comes from a firewall that rejects a text, or an endpoint that rejects our
//! URL, address or signature. So before an event is dropped for it, a request without events is sent. If that fails
//! too, nothing is dropped, and the whole request is sent again.

/// Refusals of an event that is alone in its request, after which it is dropped: about a quarter of an hour, so that a
/// firewall's mistake can be corrected before much is lost.
pub(super) const REFUSALS_MAX: u32 = 12;
/// Accepted requests after which twice as many events are tried.
const GROWS_AFTER: u32 = 64;

/// What a failed request says about the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FailureCause {
    /// The endpoint wants no more events (410).
    Gone,
    /// The refusal may be about the events: the request is too large (413), or a firewall dislikes its text. Fewer or
    /// others may be accepted.
    Events,
    /// The refusal is about the events, or about the URL, our address or the signature (403).
    Ambiguous,
    /// The file for `Authorization` cannot be read: nothing was sent.
    NoAuthorization,
    /// The same request may be accepted later. The events are kept for as long as the history keeps them.
    Temporary,
}

impl FailureCause {
    pub fn of_status(status: u16) -> FailureCause {
        match status {
            410 => FailureCause::Gone,
            403 => FailureCause::Ambiguous,
            401 | 404 | 405 | 407 | 408 | 421 | 425 | 429 => FailureCause::Temporary,
            400..500 => FailureCause::Events,
            _ => FailureCause::Temporary,
        }
    }
}

/// What follows a failed request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FailureStep {
    /// Send a smaller request.
    Halve,
    /// Send the same event again after a pause.
    Retry,
    /// Send a request without events. If it is accepted, drop the only event of the failed request; else retry.
    Probe,
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

    /// Returns the step after a failed request of so many events. If its only event may be dropped, the full size is
    /// restored.
    pub fn after_failure(&mut self, cause: FailureCause, events: usize) -> FailureStep {
        if matches!(cause, FailureCause::Gone | FailureCause::NoAuthorization | FailureCause::Temporary) {
            return FailureStep::Retry;
        }
        self.accepted = 0;
        if events > 1 {
            (self.events_max, self.refusals) = (events / 2, 0);
            return FailureStep::Halve;
        }
        self.refusals += 1;
        if self.refusals < REFUSALS_MAX {
            return FailureStep::Retry;
        }
        // The refused event was found, and the others need not suffer for it.
        *self = RequestSize::new(self.batch_max);
        if cause == FailureCause::Ambiguous { FailureStep::Probe } else { FailureStep::Drop }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends events to an endpoint that answers each request with a status. Returns the accepted ones in their order,
    /// the dropped ones, and the requests.
    fn sent_to(events: &[u32], batch_max: usize, mut answer: impl FnMut(&[u32]) -> u16) -> (Vec<u32>, Vec<u32>, usize) {
        let (mut size, mut from, mut requests) = (RequestSize::new(batch_max), 0, 0);
        let (mut accepted, mut dropped) = (Vec::new(), Vec::new());
        while from < events.len() {
            let to = (from + size.events_max()).min(events.len());
            requests += 1;
            let status = answer(&events[from..to]);
            if status == 200 {
                size.after_acceptance();
                accepted.extend(&events[from..to]);
                from = to;
                continue;
            }
            let is_dropped = match size.after_failure(FailureCause::of_status(status), to - from) {
                FailureStep::Drop => true,
                FailureStep::Probe => answer(&[]) == 200,
                FailureStep::Halve | FailureStep::Retry => false,
            };
            if is_dropped {
                dropped.push(events[from]);
                assert_eq!(to, from + 1);
                from = to;
            }
        }
        (accepted, dropped, requests)
    }

    fn sent(events: &[u32], batch_max: usize, accepts: impl Fn(&[u32]) -> bool) -> (Vec<u32>, Vec<u32>, usize) {
        sent_to(events, batch_max, |some| if accepts(some) { 200 } else { 413 })
    }

    #[test]
    fn an_endpoint_that_forbids_all_loses_nothing_and_a_forbidden_event_is_dropped() {
        let events: Vec<u32> = (0..50).collect();
        // Its access rules are corrected after a day of attempts.
        let mut asked = 0;
        let (accepted, dropped, _) = sent_to(&events, 10, |_| {
            asked += 1;
            if asked <= 300 { 403 } else { 200 }
        });
        assert_eq!((accepted, dropped), (events.clone(), vec![]));
        // A firewall dislikes two events, one after the other.
        let (accepted, dropped, requests) =
            sent_to(&events, 10, |some| if some.iter().any(|event| [20, 21].contains(event)) { 403 } else { 200 });
        assert_eq!((accepted.len(), dropped), (48, vec![20, 21]));
        assert!(requests < 50, "{requests}");
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
            assert_eq!(size.after_failure(FailureCause::Events, events), FailureStep::Halve);
        }
        assert!(size.is_reduced());
        (0..GROWS_AFTER * 5).for_each(|_| size.after_acceptance());
        assert_eq!((size.events_max(), size.is_reduced()), (500, false));
    }

    #[test]
    fn statuses_about_the_events() {
        let are_all = |cause, statuses: &[u16]| statuses.iter().all(|of| FailureCause::of_status(*of) == cause);
        assert!(are_all(FailureCause::Events, &[400, 406, 413, 415, 418, 422, 431, 451, 499]));
        assert!(are_all(FailureCause::Ambiguous, &[403]) && are_all(FailureCause::Gone, &[410]));
        let others = [301, 308, 401, 404, 405, 407, 408, 421, 425, 429, 500, 502, 503];
        assert!(are_all(FailureCause::Temporary, &others));
    }
}
