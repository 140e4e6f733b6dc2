//! The newest failures and operators' actions, for watchers.
//!
//! Promise: an event costs one look at a number while nobody watches, and never waits: events that come while the list
//! is in use are left out. Bounded: [`EVENTS_MAX`] events, [`TEXT_BYTES_MAX`] of text each.

use std::collections::VecDeque;

use parking_lot::Mutex;
use stentor_queue::ids::Ms;
use stentor_records::now::EventNow;

const EVENTS_MAX: usize = 40;
const TEXT_BYTES_MAX: usize = 300;
/// Events of the same kind and text are counted as one if the last of them is among this many newest.
const ALIKE_WITHIN: usize = 12;

#[derive(Default)]
pub struct Events {
    newest: Mutex<VecDeque<EventNow>>,
}

impl Events {
    /// Adds an event; those with the same text become one with a count.
    pub fn push(&self, at: Ms, kind: &str, text: &str) {
        let Some(mut newest) = self.newest.try_lock() else { return };
        let text = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
        let before = newest.iter().rev().take(ALIKE_WITHIN).position(|event| event.kind == kind && event.text == text);
        let event = before.and_then(|back| newest.len().checked_sub(back + 1)).and_then(|index| newest.remove(index));
        let mut event =
            event.unwrap_or_else(|| EventNow { kind: kind.to_owned(), text: text.to_owned(), at, times: 0 });
        (event.at, event.times) = (at, event.times + 1);
        if newest.len() == EVENTS_MAX {
            newest.pop_front();
        }
        newest.push_back(event);
    }

    /// The events, newest last.
    pub fn newest(&self) -> Vec<EventNow> {
        self.newest.lock().iter().cloned().collect()
    }

    /// Drops all events when nobody watches any more.
    pub fn clear(&self) {
        self.newest.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_alike_are_one_and_the_oldest_go() {
        let events = Events::default();
        for n in 0..100u64 {
            events.push(n, "deferred", if n % 2 == 0 { "even" } else { "odd" });
        }
        let seen: Vec<(u64, String, u64)> = events.newest().into_iter().map(|e| (e.at, e.text, e.times)).collect();
        assert_eq!(seen, [(98, "even".to_owned(), 50), (99, "odd".to_owned(), 50)]);
        for n in 0..100 {
            events.push(n, "bounced", &format!("{}{n}", "\u{e9}".repeat(200)));
        }
        let newest = events.newest();
        assert_eq!(newest.len(), 1 + 2, "cut texts are alike");
        assert!(newest.iter().all(|event| event.text.len() <= TEXT_BYTES_MAX));
        (0..100).for_each(|n| events.push(n, "bounced", &n.to_string()));
        assert_eq!(events.newest().len(), EVENTS_MAX);
        events.clear();
        assert!(events.newest().is_empty());
    }
}
