//! The command that starts a stopped server, for advice: systemd's if it has a unit for the configuration.

use std::fs;
use std::path::Path;

use crate::asking::DEFAULT_PATH;

/// Printed only if systemd runs the machine and a unit of this name starts the server.
const SYSTEMD: &str = "systemctl start stentor";
const BY_HAND: &str = "stentor serve";
/// Exists if systemd is the machine's init (`sd_booted(3)`).
const BOOTED: &str = "run/systemd/system";
/// Where units are looked up; the first one is in force (`systemd.unit(5)`).
const UNITS: [&str; 5] = [
    "etc/systemd/system/stentor.service",
    "run/systemd/system/stentor.service",
    "usr/local/lib/systemd/system/stentor.service",
    "usr/lib/systemd/system/stentor.service",
    "lib/systemd/system/stentor.service",
];

/// The command that starts a server with the configuration `file`.
pub(super) fn start_command(file: &Path) -> &'static str {
    below(Path::new("/"), file)
}

fn below(root: &Path, file: &Path) -> &'static str {
    if !root.join(BOOTED).is_dir() {
        return BY_HAND;
    }
    let Some(unit) = UNITS.iter().find_map(|unit| fs::read_to_string(root.join(unit)).ok()) else { return BY_HAND };
    let file = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let mut starts = unit.lines().filter(|line| line.trim_start().starts_with("ExecStart="));
    let is_file = |word: &str| {
        let named = Path::new(word.trim_start_matches("--config="));
        named == file || fs::canonicalize(named).is_ok_and(|named| named == file)
    };
    let names_another = |line: &str| line.contains(" --config") || line.contains(" -c ");
    let is_started = starts
        .any(|line| line.split_whitespace().any(is_file) || !names_another(line) && file == Path::new(DEFAULT_PATH));
    if is_started { SYSTEMD } else { BY_HAND }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systemd_starts_the_server_that_its_unit_names() {
        let root = tempfile::tempdir().unwrap();
        let command = |file: &str| below(root.path(), Path::new(file));
        let (ours, other) = (DEFAULT_PATH, "/srv/other.toml");
        let write = |unit: &str, start: &str| {
            let path = root.path().join(unit);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("[Service]\nExecStartPre=x check --config {other}\nExecStart={start}\n")).unwrap();
        };
        write(UNITS[3], "/usr/bin/stentor serve");
        assert_eq!(command(ours), BY_HAND, "another init");
        fs::create_dir_all(root.path().join(BOOTED)).unwrap();
        assert_eq!((command(ours), command(other)), (SYSTEMD, BY_HAND));
        write(UNITS[0], "/usr/local/bin/stentor serve --config /srv/other.toml");
        assert_eq!((command(ours), command(other)), (BY_HAND, SYSTEMD));
        let named = root.path().join("named.toml");
        fs::write(&named, "").unwrap();
        write(UNITS[0], &format!("/usr/local/bin/stentor serve --config={}", named.display()));
        assert_eq!(below(root.path(), &named), SYSTEMD);
        for unit in [UNITS[0], UNITS[3]] {
            fs::remove_file(root.path().join(unit)).unwrap();
        }
        assert_eq!(command(ours), BY_HAND, "no unit");
    }
}
