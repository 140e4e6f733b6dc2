//! Why a cell of a table has no figures, what makes figures doubtful; sizes and times as options.

use std::io;

use stentor_measure::{Machine, MeasureError, Place};

const SECONDS_MAX: f64 = 3600.0;
/// Threads of the kernel that work for us are others too; they need less.
const OTHERS_PERCENT_MAX: f64 = 50.0;

/// Why a cell has no figures.
#[derive(Debug)]
pub enum Trouble {
    /// This system or file system cannot do it: said in the table, and the others go on.
    NotHere(String),
    Io(io::Error),
    Stopped,
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Io(error)
    }
}

/// Said of figures from a machine that had other things to do.
pub fn busy(machine: &Machine) -> Option<String> {
    let others = machine.others_percent.filter(|percent| *percent >= OTHERS_PERCENT_MAX)?;
    Some(format!(
        "the machine was busy: other processes used {others:.0} % of the CPUs, so latencies include waits for a CPU, \
         which on Linux come in steps of its timer (often 4 ms). To measure the device anyway, run as root: chrt --rr \
         1 stentor-kit probe ..."
    ))
}

/// Refuses work that would fill the file system. `options`: those that make it less.
pub fn check_room(place: &Place, needed_mib: u64, options: &str) -> Result<(), MeasureError> {
    // Somebody else lives there too.
    let spare_mib = needed_mib / 10 + 1;
    if place.free_mib >= needed_mib + spare_mib {
        return Ok(());
    }
    Err(MeasureError::Refused(format!(
        "{} has {} MiB free, but this measurement needs up to {needed_mib} MiB and a reserve: choose less with \
         {options}, or another directory",
        place.directory.display(),
        place.free_mib
    )))
}

/// How long something is measured.
pub fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    if seconds > 0.0 && seconds <= SECONDS_MAX {
        Ok(seconds)
    } else {
        Err(format!("must be more than 0 and at most {SECONDS_MAX} seconds"))
    }
}

/// `512`, `4K`, `1M` in octets.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.char_indices().find(|(_, c)| !c.is_ascii_digit()) {
        Some((at, _)) => text.split_at(at),
        None => (text, ""),
    };
    let factor = match unit.to_ascii_lowercase().trim_end_matches("ib") {
        "" | "b" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return Err(format!("{unit} is not a valid unit: give octets, or K, M, G (of 1024)")),
    };
    let number: u64 = digits.parse().map_err(|_| "expected a number of octets: 512, 4K, 1M".to_owned())?;
    number.checked_mul(factor).ok_or_else(|| "too large".to_owned())
}

/// `512`, `4K`, `1M`, as options show sizes.
pub fn show_bytes(bytes: u64) -> String {
    for (factor, unit) in [(1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")] {
        if bytes >= factor && bytes.is_multiple_of(factor) {
            return format!("{}{unit}", bytes / factor);
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        assert_eq!(
            ["512", "4K", "4k", "64KiB", "1M", "2g"].map(|text| parse_bytes(text).unwrap()),
            [512, 4096, 4096, 65536, 1 << 20, 2 << 30]
        );
        for bad in ["", "K", "4X", "-1", "99999999999G", "1.5K"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
        assert_eq!([512, 4096, 5000, 1 << 20].map(show_bytes), ["512", "4K", "5000", "1M"]);
    }

    #[test]
    fn only_the_work_of_others_makes_a_machine_busy() {
        let with = |others_percent| Machine { load: 50.0, others_percent, ..Machine::default() };
        assert_eq!(busy(&with(None)), None);
        assert_eq!(busy(&with(Some(20.0))), None);
        assert!(busy(&with(Some(80.0))).unwrap().contains("other processes used 80 %"));
    }

    #[test]
    fn times_are_positive_and_end() {
        let millis = ["0.05", "1", "3600"].map(|text| (parse_seconds(text).unwrap() * 1000.0) as u64);
        assert_eq!(millis, [50, 1000, 3_600_000]);
        for bad in ["0", "-1", "nan", "inf", "3601", "", "1s"] {
            assert!(parse_seconds(bad).unwrap_err().contains("seconds"), "{bad}");
        }
    }
}
