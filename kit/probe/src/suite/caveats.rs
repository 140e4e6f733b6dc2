//! How far the figures can be trusted, and what they do not cover.

use stentor_measure::Spread;

use super::figures::Figures;

/// (greatest - least) / median of a figure's runs: up to the first it repeats well, above the second hardly at all.
const NOISE_LOW: f64 = 0.15;
const NOISE_HIGH: f64 = 0.5;

/// (greatest - least) / median of the main figures of durable places, over all of them; none without repetition.
fn noise(all: &[Figures]) -> Option<Spread> {
    let figures = all.iter().filter(|figures| figures.is_durable);
    let main = figures.flat_map(|f| [f.growing, f.recycled, f.journal, f.files, f.files_many, f.grouped]);
    let repeated = main.flatten().filter(|spread| spread.runs > 1 && spread.median > 0.0);
    Spread::of(repeated.map(|spread| (spread.max - spread.min) / spread.median))
}

/// How much the figures can be trusted, and what they are not.
pub fn caveats(all: &[Figures], on_loop: bool, busy: bool) -> Vec<String> {
    let mut said = Vec::new();
    match noise(all) {
        None => {
            said.push("Each figure is from a single run, so its repeatability is unknown. Use --runs 3.".to_owned());
        }
        Some(noise) => {
            let how = if noise.median <= NOISE_LOW {
                "they repeat well"
            } else if noise.median <= NOISE_HIGH {
                "they repeat roughly; smaller differences are not significant"
            } else {
                "they hardly repeat: before deciding anything, measure again with more --runs and --thorough on a \
                 quiet machine"
            };
            said.push(format!(
                "Between runs a figure varies by {:.0} % of its median (half of the figures by less, the worst by \
                 {:.0} %): {how}.",
                noise.median * 100.0,
                noise.max * 100.0
            ));
        }
    }
    if busy {
        said.push("The machine was busy: all rates are too low, especially those with more syncs.".to_owned());
    }
    if on_loop {
        said.push(
            "The file systems are in files on one disk behind loop devices. They are comparable with each other, but \
             each would be faster on its own disk, because a flush here is an fsync of its file."
                .to_owned(),
        );
    }
    if all.iter().any(|figures| !figures.is_durable) {
        said.push(
            "Data in memory (tmpfs) does not survive a power cut: it is an upper bound, not an option.".to_owned(),
        );
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str, runs: usize, part: f64) -> Figures {
        let spread = Spread { median: 100.0, min: 100.0 * (1.0 - part), max: 100.0 * (1.0 + part), runs };
        Figures { name: name.to_owned(), is_durable: name != "tmpfs", journal: Some(spread), ..Figures::default() }
    }

    #[test]
    fn how_far_figures_can_be_trusted_follows_from_their_spread() {
        let said = |part| caveats(&[place("ext4", 3, part)], false, false).join(" ");
        assert!(said(0.02).contains("they repeat well") && said(0.2).contains("they repeat roughly"));
        assert!(said(0.6).contains("they hardly repeat"));
        assert!(caveats(&[place("ext4", 1, 0.0)], true, true).join(" ").contains("single run"));
        assert_eq!(caveats(&[place("tmpfs", 3, 0.1)], true, true).len(), 4);
    }
}
