//! Messages by number of pending recipients: finds the largest without a scan.
//!
//! Promise: a message to one recipient costs nothing. Others are in the set of their class: one class for each number
//! up to [`EXACT_MAX`], four an octave beyond. So a message changes class a few times each time its pending recipients
//! halve, at about 100 ns. Classes do not overlap: all of a larger class have more pending recipients than any of a
//! smaller one.

use super::Store;
use crate::ids::MessageNo;
use crate::idset::IdSet;
use crate::message::Message;

/// Up to this number of recipients, each number is a class of its own.
pub const EXACT_MAX: usize = 16;
/// The exact classes, and four for each octave from 2^4 to 2^31.
const CLASSES: usize = EXACT_MAX + 28 * 4;

/// The class of a number of recipients. Class 0 is for one recipient, and has no set.
fn class_of(pending: usize) -> usize {
    if pending <= EXACT_MAX {
        return pending.saturating_sub(1);
    }
    let exponent = pending.ilog2() as usize;
    let quarter = (pending >> (exponent - 2)) & 3;
    (EXACT_MAX + (exponent - 4) * 4 + quarter).min(CLASSES - 1)
}

#[derive(Debug, Default)]
pub(super) struct Sizes {
    /// Sets of the classes from 1 on.
    classes: Vec<IdSet>,
}

impl Sizes {
    fn set(&mut self, class: usize) -> Option<&mut IdSet> {
        let index = class.checked_sub(1)?;
        if index >= self.classes.len() {
            self.classes.resize_with(index + 1, IdSet::default);
        }
        self.classes.get_mut(index)
    }

    /// Adds a message with `pending` recipients.
    pub fn come(&mut self, no: MessageNo, pending: usize) {
        if let Some(set) = self.set(class_of(pending)) {
            set.insert(no.0);
        }
    }

    /// Changes the number of recipients that a message waits for; `after` 0: it is gone.
    pub fn change(&mut self, no: MessageNo, before: usize, after: usize) {
        let (from, to) = (class_of(before), class_of(after));
        if from == to && after > 0 {
            return;
        }
        if let Some(set) = self.set(from) {
            set.remove(no.0);
        }
        if let Some(set) = self.set(to).filter(|_| after > 0) {
            set.insert(no.0);
        }
    }
}

/// A walk over messages from the largest class down to those of two recipients; see [`Store::largest_step`].
#[derive(Clone, Debug, Default)]
pub struct Largest {
    /// The class to visit, and the last number of it that was visited; `None`: from the top.
    at: Option<(usize, Option<u32>)>,
}

impl Store {
    /// Continues a walk for about `steps` messages, or to the end of a class. Returns whether a class is finished,
    /// after which all later messages wait for fewer recipients; `None` when nothing is left.
    pub fn largest_step(
        &self,
        walk: &mut Largest,
        steps: usize,
        mut see: impl FnMut(MessageNo, &Message),
    ) -> Option<bool> {
        let (class, after) = walk.at.unwrap_or((self.sizes.classes.len(), None));
        let index = class.checked_sub(1)?;
        let set = self.sizes.classes.get(index)?;
        let mut last = after;
        let numbers = after.map_or_else(|| set.iter(), |after| set.iter_from(after));
        for (seen, no) in numbers.enumerate() {
            if seen == steps {
                walk.at = Some((class, last));
                return Some(false);
            }
            last = Some(no);
            if let Some(message) = self.message(MessageNo(no)) {
                see(MessageNo(no), message);
            }
        }
        walk.at = Some((index, None));
        Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_follow_the_number() {
        let classes: Vec<usize> = (1..100_000).map(class_of).collect();
        assert!(classes.windows(2).all(|pair| pair[0] == pair[1] || pair[0] + 1 == pair[1]));
        assert_eq!((class_of(1), class_of(2), class_of(16), class_of(17)), (0, 1, 15, 16));
        assert!(class_of(usize::MAX) < CLASSES && class_of(u32::MAX as usize) < CLASSES);
    }
}
