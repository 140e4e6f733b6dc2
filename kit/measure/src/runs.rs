//! Repetition: the first run warms up caches and is dropped; the others give median, minimum and maximum.

use serde::Serialize;

use crate::stop::Stop;

/// Median, least and greatest of a figure over the counted runs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// How many runs.
    pub runs: usize,
}

impl Spread {
    /// None of nothing. Values that are no numbers are left out.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) };
        Some(Spread { median, min, max, runs: values.len() })
    }

    /// A single figure that was not repeated.
    pub fn once(value: f64) -> Spread {
        Spread { median: value, min: value, max: value, runs: 1 }
    }
}

/// How many runs [`repeat`] makes of so many counted ones.
pub fn total(runs: u32) -> u32 {
    if runs <= 1 { 1 } else { runs + 1 }
}

/// `run 1 of 4` for a number as [`repeat`] gives it: what progress says.
pub fn run_of(number: u32, runs: u32) -> String {
    format!("run {} of {}", number + 1, total(runs))
}

/// Does it `runs` times and once before, which is dropped, unless there is one run alone. Ends early, with what there
/// is, once `stop` is set or a run fails. `run` is told its number, from 0, which is the one that is dropped.
pub fn repeat<T, E>(runs: u32, stop: &Stop, mut run: impl FnMut(u32) -> Result<T, E>) -> Result<Vec<T>, E> {
    let mut kept = Vec::new();
    let total = total(runs);
    for number in 0..total {
        if stop.is_set() {
            break;
        }
        let result = run(number)?;
        if number > 0 || total == 1 {
            kept.push(result);
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_run_is_dropped_and_the_median_is_of_the_others() {
        let mut seen = Vec::new();
        let kept = repeat::<_, ()>(3, &Stop::never(), |number| {
            seen.push(number);
            Ok(f64::from(number))
        });
        assert_eq!((kept, seen), (Ok(vec![1.0, 2.0, 3.0]), vec![0, 1, 2, 3]));
        assert_eq!(repeat::<_, ()>(1, &Stop::never(), Ok), Ok(vec![0]));
        assert_eq!(repeat(3, &Stop::never(), |_| Err::<(), _>("full")), Err("full"));
        let spread = Spread::of([4.0, 1.0, f64::NAN, 2.0, 3.0]);
        assert_eq!(spread, Some(Spread { median: 2.5, min: 1.0, max: 4.0, runs: 4 }));
        assert_eq!(Spread::of([f64::NAN]), None);
        assert_eq!((run_of(0, 3), run_of(0, 1)), ("run 1 of 4".to_owned(), "run 1 of 1".to_owned()));
    }
}
