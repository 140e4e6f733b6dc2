//! Reports subscribers whose addresses differ only in case, for `stentor check`: they count as one and get one copy.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use stentor_control::format::plural;
use stentor_lists::subscribers::Subscriber;

/// Maximum lines shown.
const SHOWN_MAX: usize = 20;

/// The subscribers of one file by their lower-case address.
#[derive(Default)]
pub struct CaseFolds {
    first: HashMap<Box<str>, FirstSpelling>,
    again: Vec<(u64, String)>,
    more: u64,
}

struct FirstSpelling {
    line: u64,
    /// The original spelling, if not in lower case.
    text: Option<Box<str>>,
}

impl CaseFolds {
    pub fn see(&mut self, subscriber: &Subscriber<'_>) {
        let folded = subscriber.address.to_ascii_lowercase();
        match self.first.entry(folded.into()) {
            Entry::Vacant(place) => {
                let text = (**place.key() != *subscriber.address).then(|| subscriber.address.into());
                place.insert(FirstSpelling { line: subscriber.line, text });
            }
            Entry::Occupied(place) => {
                let FirstSpelling { line, text } = place.get();
                let text = text.as_deref().unwrap_or(place.key());
                if text == subscriber.address {
                    return;
                }
                if self.again.len() == SHOWN_MAX {
                    self.more += 1;
                    return;
                }
                let message = format!(
                    "{} differs from {text} in line {line} only in upper and lower case: one subscriber, one copy",
                    subscriber.address
                );
                self.again.push((subscriber.line, message));
            }
        }
    }

    /// Number of different subscribers.
    pub fn count(&self) -> u64 {
        self.first.len() as u64
    }

    /// Line numbers and findings.
    pub fn shown(self) -> impl Iterator<Item = (u64, String)> {
        let more = (self.more > 0).then(|| {
            (0, format!("and {} only in upper and lower case", plural(self.more, "more subscriber that differs")))
        });
        self.again.into_iter().chain(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(addresses: &[&str]) -> Vec<(u64, String)> {
        let mut folds = CaseFolds::default();
        for (at, address) in addresses.iter().enumerate() {
            folds.see(&Subscriber { line: at as u64 + 1, address, name: b"" });
        }
        folds.shown().collect()
    }

    #[test]
    fn who_differs_in_case_alone_is_named_with_the_first() {
        for (addresses, lines) in [
            (&["ann@x.test", "bob@x.test"][..], &[][..]),
            (&["ann@x.test", "ann@x.test"], &[]),
            (&["Ann@x.test", "ann@x.test", "ANN@x.test", "Ann@x.test"], &[2, 3]),
            (&["ann@x.test", "Ann@x.test"], &[2]),
            (&["\"A b\"@x.test", "\"a b\"@x.test"], &[2]),
            (&["Ann+x@x.test", "ann@x.test"], &[]),
            (&["a@[IPv6:::1]", "A@[IPv6:::1]"], &[2]),
        ] {
            let found: Vec<u64> = shown(addresses).iter().map(|(line, _)| *line).collect();
            assert_eq!(found, lines, "{addresses:?}");
        }
        let [(2, message)] = &shown(&["Ann@x.test", "ann@x.test"])[..] else { panic!("one") };
        assert!(message.starts_with("ann@x.test differs from Ann@x.test in line 1"), "{message}");
    }

    #[test]
    fn few_of_many_are_shown() {
        let all: Vec<String> = (0..50).flat_map(|n| [format!("a{n}@x.test"), format!("A{n}@x.test")]).collect();
        let shown = shown(&all.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!((shown.len(), shown[20].1.starts_with("and 30 more")), (21, true), "{:?}", shown[20]);
    }
}
