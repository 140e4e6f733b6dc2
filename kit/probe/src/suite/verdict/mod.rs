//! The conclusion, in words derived from the figures.
//!
//! Rules: a difference is reported if the medians differ by at least [`CLEAR_RATIO`] and the runs do not overlap; it is
//! `sure` if even the worst run of the better is that much better than the best of the other. Otherwise it says that
//! there is none. A setting that is not durable is never recommended; it shows the bound for storage. Without a figure
//! there is no sentence.

mod caveats;
mod place;
mod settings;
#[cfg(test)]
mod tests;
mod words;

use stentor_measure::Spread;

use super::figures::Figures;

pub use caveats::caveats;
pub use place::summary;
pub use words::sentence;

/// Below this a difference decides nothing.
const CLEAR_RATIO: f64 = 1.1;
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sureness {
    /// The worst run of the better beats the best of the other clearly.
    Sure,
    /// The medians differ clearly, and the runs do not overlap.
    Likely,
    /// No clear difference.
    Open,
    /// Not a comparison.
    Fact,
}

impl Sureness {
    pub fn word(self) -> &'static str {
        match self {
            Sureness::Sure => "sure",
            Sureness::Likely => "likely",
            Sureness::Open => "no clear difference",
            Sureness::Fact => "measured",
        }
    }
}

/// A sentence or two of the conclusion.
#[derive(Clone, PartialEq, Debug)]
pub struct Finding {
    pub topic: &'static str,
    pub text: String,
    pub sureness: Sureness,
}

fn finding(topic: &'static str, sureness: Sureness, text: String) -> Finding {
    Finding { topic, text, sureness }
}

/// How a compares to b, which is not better.
fn compare(better: &Spread, other: &Spread) -> Sureness {
    let ratio = better.median / other.median.max(1e-9);
    if ratio < CLEAR_RATIO || (better.min <= other.max && better.runs > 1) {
        Sureness::Open
    } else if better.min / other.max.max(1e-9) >= CLEAR_RATIO && better.runs > 1 {
        Sureness::Sure
    } else {
        Sureness::Likely
    }
}

/// All that can be said, the choice first. What is said of a log is of the place that is best for one, and so with files.
pub fn findings(all: &[Figures]) -> Vec<Finding> {
    let mut found = place::choices(all);
    found.extend(place::device_writes(all));
    if let Some(place) = place::best_for_log(all) {
        found.extend(settings::of_log(place, all));
    }
    if let Some(place) = place::best_for_files(all) {
        found.extend(settings::of_files(place));
    }
    found
}
