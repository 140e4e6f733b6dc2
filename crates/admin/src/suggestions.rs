//! Suggests similar names for an unknown one: names that contain it, or differ by a few letters. A common ending
//! (`.example`) does not count as similarity.

use std::sync::Arc;

use stentor_control::ErrorCode;
use stentor_control::problem::Problem;
use stentor_core::Core;
use stentor_queue::ids::{DomainId, SiteId};

/// Maximum names in a refusal.
const NAMED_MAX: usize = 5;
/// Sites, or domains, compared per hold of the lock: well under a millisecond.
const STEP: u32 = 256;
/// Maximum sites, or domains, compared.
const SITES_MAX: u32 = 50_000;
/// Longer names are compared by their beginning.
const BYTES_MAX: usize = 64;
/// Shorter names are contained in too many others.
const PART_BYTES_MIN: usize = 3;

/// The best names so far, and their distances.
pub(crate) struct NearestNames<'a> {
    wanted: &'a str,
    found: Vec<(usize, String)>,
}

impl<'a> NearestNames<'a> {
    pub(crate) fn to(wanted: &'a str) -> NearestNames<'a> {
        NearestNames { wanted, found: Vec::new() }
    }

    /// Formats `did you mean mx1.dead.example?`; `None` if no name is similar.
    pub(crate) fn hint(self) -> Option<String> {
        let names: Vec<String> = self.found.into_iter().map(|(_, name)| name).collect();
        (!names.is_empty()).then(|| format!("did you mean {}?", names.join(", ")))
    }

    pub(crate) fn see(&mut self, name: &str) {
        let Some(distance) = distance(self.wanted, name) else { return };
        self.found.push((distance, name.to_owned()));
        self.found.sort();
        self.found.truncate(NAMED_MAX);
    }

    /// Formats `no site dead.exmple; did you mean mx1.dead.example?`.
    fn problem(self) -> Problem {
        let wanted = self.wanted;
        let hint = self.hint().unwrap_or_else(|| "`stentor hosts` lists all sites".to_owned());
        Problem::new(ErrorCode::NotFound, format!("no site {wanted}; {hint}"))
    }
}

/// The distance of a name from the wanted one, with or without its first label, ignoring case. `None`: too far.
fn distance(wanted: &str, name: &str) -> Option<usize> {
    let (wanted, name) = (wanted.to_ascii_lowercase(), name.to_ascii_lowercase());
    let is_part = wanted.len() >= PART_BYTES_MIN && name.contains(&wanted);
    // A top-level domain is part of too many names.
    if is_part && name.rsplit('.').next() != Some(&wanted) {
        return Some(0);
    }
    let domain = name.split_once('.').map(|(_, domain)| domain);
    let near = [Some(name.as_str()), domain].into_iter().flatten().filter_map(|name| {
        let (wanted, name) = without_common_end(&wanted, name);
        let bound = (wanted.len() / 4).clamp(1, 3);
        Some(edits(wanted, name)).filter(|edits| *edits <= bound)
    });
    near.min().map(|edits| edits + 1)
}

/// Both names without the labels that they share at the end; at least one label is left.
fn without_common_end<'a>(mut a: &'a str, mut b: &'a str) -> (&'a str, &'a str) {
    while let (Some((first, end)), Some((other, other_end))) = (a.rsplit_once('.'), b.rsplit_once('.'))
        && end == other_end
    {
        (a, b) = (first, other);
    }
    (a, b)
}

/// Number of letters inserted, deleted or replaced.
fn edits(a: &str, b: &str) -> usize {
    let cut = |text: &str| text.floor_char_boundary(BYTES_MAX);
    strsim::levenshtein(&a[..cut(a)], &b[..cut(b)])
}

/// The refusal for an unknown site. Do not call it with the hub's lock held.
pub fn unknown_site(core: &Arc<Core>, wanted: &str) -> Problem {
    let mut nearest = NearestNames::to(wanted);
    let (mut next, mut known) = (0, 1);
    while next < known {
        known = core.with(|hub, _| {
            let known = hub.sched.sites_known().min(SITES_MAX);
            let names = (next..known.min(next + STEP)).filter_map(|site| hub.sched.site_name(SiteId(site)));
            names.for_each(|name| nearest.see(name));
            known
        });
        next += STEP;
    }
    nearest.problem()
}

/// For a domain without any mail so far: says so and suggests similar names; empty for others. Do not call it with the
/// hub's lock held.
pub fn unseen_domain(core: &Arc<Core>, wanted: &str) -> String {
    if core.with(|hub, _| hub.store.book.domains_named(wanted).next().is_some()) {
        return String::new();
    }
    let mut nearest = NearestNames::to(wanted);
    let (mut next, mut known) = (0, 1);
    while next < known {
        known = core.with(|hub, _| {
            let book = &hub.store.book;
            let known = (book.domains() as u32).min(SITES_MAX);
            (next..known.min(next + STEP)).for_each(|domain| nearest.see(book.domain_name_alone(DomainId(domain))));
            known
        });
        next += STEP;
    }
    let hint = nearest.hint().map_or_else(String::new, |hint| format!("; {hint}"));
    format!("; no mail to it was seen{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_hand_are_near_and_other_names_are_not() {
        assert_eq!((edits("kitten", "sitting"), edits("", "abc"), edits("same", "same")), (3, 3, 0));
        let mut nearest = NearestNames::to("dead.exmple");
        for name in ["mx1.dead.example", "mx1.alive.example", "Dead.Example", "x"] {
            nearest.see(name);
        }
        let problem = nearest.problem();
        assert_eq!(problem.text, "no site dead.exmple; did you mean Dead.Example, mx1.dead.example?");
        assert_eq!(distance("dead", "mx1.dead.example"), Some(0));
        assert_eq!(distance("de", "mx1.dead.example"), None);
        // A shared ending does not count.
        assert_eq!(distance("full.example", "gmx.example"), None);
        assert_eq!(distance("nowhere.example", "mx1.one.example"), None);
        assert_eq!(distance("example", "mx1.one.example"), None);
        assert_eq!(
            (distance("dowm.example", "mx1.down.example"), distance("a.example", "a.example")),
            (Some(2), Some(0))
        );
        let none = NearestNames::to("q").problem();
        assert_eq!(none.text, "no site q; `stentor hosts` lists all sites");
    }
}
