//! What to do next with the key pairs of a domain.

use stentor_records::record::Ms;

use super::{KeyObservation, KeyPair, KeyPhase, KeyRotation, PAIRS_MAX, Sighting};

/// Longest time for which a cache is believed to keep an absence or a wrong record.
const CACHE_MS_MAX: Ms = 7 * 86_400_000;

/// Waits of a rotation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RotationTimes {
    /// How long a pair is used before its successor is made.
    pub rotate_ms: Ms,
    /// Least wait between the first sight of a pair's records and its use.
    pub publish_wait_ms: Ms,
    /// How long the records of a retired pair are needed.
    pub keep_ms: Ms,
    /// How long key files are kept after that, if the records stay in DNS.
    pub file_ms: Ms,
}

/// The next thing to do. Each is repeated until the state shows that it was done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Make a pair, write its key files, then make the state with it durable.
    Create { is_urgent: bool },
    /// Make this state durable; then it takes effect.
    Commit(KeyRotation),
    /// Remove the key files of a pair, then make durable that it has none.
    RemoveFiles { selector: String },
    /// Nothing before this time, unless DNS answers change. In the past: only a DNS answer is missing. `None`: nothing
    /// is due.
    Wait { until: Option<Ms> },
}

impl KeyRotation {
    /// Returns the next step. `observed`: what DNS has of each pair, by selector. A pair without an observation is as
    /// one whose servers could not be asked.
    pub fn next(&self, times: RotationTimes, observed: &[KeyObservation], now: Ms) -> Step {
        let mut until = Earliest::default();
        let sighting = |pair: &KeyPair| observed.iter().find(|one| one.selector == pair.selector);
        if let Some(pair) = self.successor() {
            if let Some(step) = self.advance(pair, times, sighting(pair), now, &mut until) {
                return step;
            }
        } else {
            match self.in_use() {
                Some(pair) if !is_over(pair.since, times.rotate_ms, now) => until.add(pair.since, times.rotate_ms),
                _ if self.pairs.len() < PAIRS_MAX => return Step::Create { is_urgent: false },
                // Nobody removes old records: `stentor dkim show` and health name them.
                _ => {}
            }
        }
        for pair in &self.pairs {
            let is_gone = sighting(pair).is_some_and(|one| matches!(one.sighting, Sighting::Nowhere));
            match pair.phase {
                KeyPhase::Retired if is_over(pair.since, times.keep_ms, now) => {
                    return Step::Commit(self.replacing(&pair.in_phase(KeyPhase::Removable, now)));
                }
                KeyPhase::Retired => until.add(pair.since, times.keep_ms),
                KeyPhase::Removable if pair.has_files && (is_gone || is_over(pair.since, times.file_ms, now)) => {
                    return Step::RemoveFiles { selector: pair.selector.clone() };
                }
                KeyPhase::Removable if is_gone => return Step::Commit(self.without(&pair.selector)),
                KeyPhase::Removable if pair.has_files => until.add(pair.since, times.file_ms),
                _ => {}
            }
        }
        Step::Wait { until: until.0 }
    }

    /// Returns the step of an operator's request for a new pair. `None`: one is on its way already.
    ///
    /// # Errors
    /// There are too many old pairs.
    pub fn request(&self, is_urgent: bool) -> Result<Option<Step>, TooManyPairs> {
        match self.successor() {
            Some(pair) if is_urgent && !pair.is_urgent => {
                Ok(Some(Step::Commit(self.replacing(&KeyPair { is_urgent, ..pair.clone() }))))
            }
            Some(_) => Ok(None),
            None if self.pairs.len() >= PAIRS_MAX => Err(TooManyPairs),
            None => Ok(Some(Step::Create { is_urgent })),
        }
    }

    /// Returns the state after the key files of a pair have been removed.
    #[must_use]
    pub fn without_files(&self, selector: &str) -> KeyRotation {
        let mut next = self.clone();
        for pair in next.pairs.iter_mut().filter(|pair| pair.selector == selector) {
            pair.has_files = false;
        }
        next
    }

    /// Returns the state after the clock was set forward: waits begin again, since nobody knows how much of them is
    /// over.
    #[must_use]
    pub fn after_jump(&self, now: Ms) -> KeyRotation {
        let mut next = self.clone();
        let waits = |pair: &&mut KeyPair| matches!(pair.phase, KeyPhase::Published | KeyPhase::Retired);
        for pair in next.pairs.iter_mut().filter(waits) {
            pair.since = pair.since.max(now);
        }
        next
    }

    /// Returns the state after the keys of a pair were lost; another pair is made. The records of one that has signed
    /// are still needed, those of a successor are not.
    #[must_use]
    pub fn abandoning(&self, lost: &KeyPair, now: Ms) -> KeyRotation {
        let left = if lost.phase == KeyPhase::InUse { KeyPhase::Retired } else { KeyPhase::Removable };
        self.replacing(&lost.in_phase(left, now))
    }

    /// The next step of the pair that will sign.
    fn advance(
        &self,
        pair: &KeyPair,
        times: RotationTimes,
        observed: Option<&KeyObservation>,
        now: Ms,
        until: &mut Earliest,
    ) -> Option<Step> {
        let is_created = pair.phase == KeyPhase::Created;
        let wait_ms = if pair.is_urgent { 0 } else { pair.cache_ms.max(times.publish_wait_ms) };
        if !is_created {
            until.add(pair.since, wait_ms);
        }
        let observed = observed?;
        let cache_ms = observed.cache_ms.min(CACHE_MS_MAX);
        match &observed.sighting {
            Sighting::Everywhere if is_created => {
                let cache_ms = pair.cache_ms.max(cache_ms);
                let published = KeyPair { cache_ms, ..pair.in_phase(KeyPhase::Published, now) };
                Some(Step::Commit(self.replacing(&published)))
            }
            Sighting::Everywhere if is_over(pair.since, wait_ms, now) => Some(Step::Commit(self.put_in_use(pair, now))),
            Sighting::Missing(_) | Sighting::Nowhere if !is_created => {
                Some(Step::Commit(self.replacing(&pair.in_phase(KeyPhase::Created, now))))
            }
            // A cache outside may have asked when we did.
            Sighting::Missing(_) | Sighting::Nowhere if cache_ms > pair.cache_ms => {
                Some(Step::Commit(self.replacing(&KeyPair { cache_ms, ..pair.clone() })))
            }
            _ => None,
        }
    }

    /// Both changes are one commit: there is never a moment with two pairs in use, or with none.
    fn put_in_use(&self, successor: &KeyPair, now: Ms) -> KeyRotation {
        let left = if successor.is_urgent { KeyPhase::Removable } else { KeyPhase::Retired };
        let change = |pair: &KeyPair| match pair.phase {
            _ if pair.selector == successor.selector => pair.in_phase(KeyPhase::InUse, now),
            KeyPhase::InUse => pair.in_phase(left, now),
            _ => pair.clone(),
        };
        KeyRotation { pairs: self.pairs.iter().map(change).collect() }
    }

    fn replacing(&self, changed: &KeyPair) -> KeyRotation {
        let change = |pair: &KeyPair| if pair.selector == changed.selector { changed.clone() } else { pair.clone() };
        KeyRotation { pairs: self.pairs.iter().map(change).collect() }
    }

    fn without(&self, selector: &str) -> KeyRotation {
        KeyRotation { pairs: self.pairs.iter().filter(|pair| pair.selector != selector).cloned().collect() }
    }
}

/// Old pairs use up the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the domain has {PAIRS_MAX} key pairs; remove the old records from DNS first: `stentor dkim show` names them")]
pub struct TooManyPairs;

/// Whether a wait is over. A clock that was set back makes it longer.
fn is_over(since: Ms, wait_ms: Ms, now: Ms) -> bool {
    now.checked_sub(since).is_some_and(|elapsed| elapsed >= wait_ms)
}

/// The earliest end of several waits.
#[derive(Default)]
struct Earliest(Option<Ms>);

impl Earliest {
    fn add(&mut self, since: Ms, wait_ms: Ms) {
        let end = since.saturating_add(wait_ms);
        self.0 = Some(self.0.map_or(end, |earliest| earliest.min(end)));
    }
}
