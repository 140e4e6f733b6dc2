//! A day's data before it is drawn: counts for each minute.
//!
//! Promise: constant size, however much mail.

use serde::{Deserialize, Serialize};

use crate::record::{Machine, Ms, Record, Stat};

pub const MINUTE_MS: u64 = 60_000;
pub const DAY_MS: u64 = 86_400_000;
/// Largest number of bins in a day, whatever their length.
const BINS_MAX: u64 = 100_000;

/// Counts for one minute (or for the length of the day's bins).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Bin {
    /// Recipients delivered.
    pub delivered: u64,
    /// Recipients that failed attempts did not deliver.
    pub failed: u64,
    /// Recipients given up: bounced or expired.
    pub given_up: u64,
    pub arrivals: u64,
    /// Octets delivered, if the log has them.
    pub bytes: u64,
}

/// The machine's load in a bin: means of its samples, weighted by their lengths.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Load {
    /// Shares, 0 to 1: of all processors, and of the busiest disk.
    pub cpu: f32,
    pub disk_busy: f32,
    pub load_1m: f32,
    /// Octets per second.
    pub disk: f32,
    pub net: f32,
    /// Milliseconds that the means cover; 0: no sample.
    pub weight_ms: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Day {
    /// Name beside other days: a date, a server.
    pub name: String,
    pub start: Ms,
    pub bin_ms: u64,
    pub bins: Vec<Bin>,
    /// Load by bin; empty unless the records contain samples of the machine.
    pub load: Vec<Load>,
}

impl Day {
    /// Creates a day from `start` on, `length_ms` long (23 or 25 hours if the clock changes), with bins of `bin_ms`.
    pub fn new(name: impl Into<String>, start: Ms, length_ms: u64, bin_ms: u64) -> Day {
        let bin_ms = bin_ms.max(1).max(length_ms.div_ceil(BINS_MAX));
        let count = length_ms.div_ceil(bin_ms).max(1) as usize;
        Day { name: name.into(), start, bin_ms, bins: vec![Bin::default(); count], load: Vec::new() }
    }

    pub fn end(&self) -> Ms {
        self.start + self.bins.len() as u64 * self.bin_ms
    }

    /// Counts a record that falls into the day.
    pub fn add(&mut self, record: &Record<'_>) {
        let at = record.at();
        if at < self.start || at >= self.end() {
            return;
        }
        let index = ((at - self.start) / self.bin_ms) as usize;
        let bin = &mut self.bins[index];
        match record {
            Record::Accepted(accepted) => bin.arrivals += u64::from(!accepted.is_release()),
            Record::Attempt(attempt) => {
                let recipients = attempt.recipients();
                match attempt.stat {
                    Stat::Bounced | Stat::Expired if attempt.is_given_up() => bin.given_up += recipients,
                    _ if attempt.is_fate_alone() => {}
                    Stat::Sent => {
                        bin.delivered += recipients;
                        bin.bytes += attempt.size * recipients;
                    }
                    Stat::Deferred | Stat::Bounced => bin.failed += recipients,
                    _ => {}
                }
            }
            Record::Machine(machine) => self.machine(index, machine),
            Record::Refused(_) | Record::Note(_) => {}
        }
    }

    fn machine(&mut self, index: usize, machine: &Machine) {
        if self.load.is_empty() {
            self.load = vec![Load::default(); self.bins.len()];
        }
        let per_s = 1000.0 / machine.interval_ms.max(1) as f32;
        self.load[index].merge(&Load {
            cpu: machine.cpu,
            disk_busy: machine.disk_busy,
            load_1m: machine.load_1m,
            disk: (machine.disk_read_bytes + machine.disk_written_bytes) as f32 * per_s,
            net: (machine.net_in_bytes + machine.net_out_bytes) as f32 * per_s,
            weight_ms: machine.interval_ms.max(1),
        });
    }

    /// Deliveries per hour at the bin's rate.
    pub fn per_hour(&self, bin: usize) -> f64 {
        self.bins.get(bin).map_or(0.0, |bin| bin.delivered as f64 * 3_600_000.0 / self.bin_ms as f64)
    }

    /// Deliveries from the start to the end of each bin.
    pub fn cumulative(&self) -> impl Iterator<Item = u64> + '_ {
        self.bins.iter().scan(0, |sum, bin| {
            *sum += bin.delivered;
            Some(*sum)
        })
    }

    pub fn total(&self) -> Bin {
        let mut total = Bin::default();
        for bin in &self.bins {
            total.add(bin);
        }
        total
    }

    /// The bin with most deliveries, with its number; `None` if nothing was delivered.
    pub fn busiest(&self) -> Option<(usize, Bin)> {
        // The first of several equal bins.
        let best = self.bins.iter().enumerate().rev().max_by_key(|(_, bin)| bin.delivered)?;
        (best.1.delivered > 0).then_some((best.0, *best.1))
    }

    /// The same day in fewer bins, with `factor` bins merged into one.
    #[must_use]
    pub fn coarser(&self, factor: usize) -> Day {
        let factor = factor.max(1);
        let bins = self.bins.chunks(factor).map(|bins| {
            let mut sum = Bin::default();
            for bin in bins {
                sum.add(bin);
            }
            sum
        });
        let load = self.load.chunks(factor).map(|loads| {
            let mut mean = Load::default();
            for load in loads {
                mean.merge(load);
            }
            mean
        });
        Day {
            name: self.name.clone(),
            start: self.start,
            bin_ms: self.bin_ms * factor as u64,
            bins: bins.collect(),
            load: load.collect(),
        }
    }
}

impl Bin {
    fn add(&mut self, other: &Bin) {
        self.delivered += other.delivered;
        self.failed += other.failed;
        self.given_up += other.given_up;
        self.arrivals += other.arrivals;
        self.bytes += other.bytes;
    }
}

impl Load {
    fn merge(&mut self, other: &Load) {
        if other.weight_ms == 0 {
            return;
        }
        let weight_ms = self.weight_ms + other.weight_ms;
        let share = other.weight_ms as f32 / weight_ms as f32;
        let mix = |mine: &mut f32, theirs: f32| *mine += (theirs - *mine) * share;
        mix(&mut self.cpu, other.cpu);
        mix(&mut self.disk_busy, other.disk_busy);
        mix(&mut self.load_1m, other.load_1m);
        mix(&mut self.disk, other.disk);
        mix(&mut self.net, other.net);
        self.weight_ms = weight_ms;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Accepted, Attempt};

    fn attempt(at: Ms, recipients: usize, stat: Stat, mailer: &str) -> Record<'_> {
        let to = vec!["a@x"; recipients].into();
        Record::Attempt(Attempt { at, to, stat, mailer, size: 10, ..Attempt::default() })
    }

    #[test]
    fn each_minute_has_its_own() {
        let mut day = Day::new("d", 1000, DAY_MS, MINUTE_MS);
        assert_eq!(day.bins.len(), 1440);
        day.add(&attempt(999, 1, Stat::Sent, "esmtp"));
        day.add(&attempt(1000, 2, Stat::Sent, "esmtp"));
        day.add(&attempt(1000 + MINUTE_MS, 3, Stat::Sent, "esmtp"));
        day.add(&attempt(1000 + MINUTE_MS, 4, Stat::Bounced, "esmtp"));
        day.add(&attempt(1000 + MINUTE_MS, 4, Stat::Bounced, "bounce"));
        day.add(&attempt(1000 + DAY_MS, 1, Stat::Sent, "esmtp"));
        day.add(&Record::Accepted(Accepted { at: 2000, ..Accepted::default() }));
        assert_eq!(day.total(), Bin { delivered: 5, failed: 4, given_up: 4, arrivals: 1, bytes: 50 });
        assert_eq!((day.per_hour(1) as u64, day.busiest().map(|b| b.0)), (180, Some(1)));
        assert_eq!(day.cumulative().take(3).collect::<Vec<_>>(), [2, 5, 5]);
        assert_eq!((day.coarser(2).bins[0].delivered, day.coarser(7).bins.len()), (5, 206));
    }

    #[test]
    fn samples_of_the_machine_are_weighted_means() {
        let mut day = Day::new("d", 0, DAY_MS, MINUTE_MS);
        let sample = |at, interval_ms, cpu| {
            let net_in_bytes = 2000;
            Record::Machine(Machine { at, interval_ms, cpu, net_in_bytes, ..Machine::default() })
        };
        day.add(&sample(100, 1000, 0.8));
        day.add(&sample(200, 3000, 0.4));
        let load = day.load[0];
        assert!((load.cpu - 0.5).abs() < 1e-4 && (load.net - 1000.0).abs() < 1.0, "{load:?}");
        assert_eq!(load.weight_ms, 4000);
    }
}
