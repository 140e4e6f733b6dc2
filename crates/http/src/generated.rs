//! Files that tests make: a test fails when one is stale, and rewrites it if `STENTOR_UPDATE` is set.

use std::fs;
use std::path::Path;

pub(crate) struct GeneratedFile {
    /// From the crate's folder.
    pub path: &'static str,
    /// The filter of `cargo test` that runs the test.
    pub filter: &'static str,
}

/// Compares a file with its current text, which `make` forms from the old one.
pub(crate) fn check(file: &GeneratedFile, make: impl Fn(&str) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file.path);
    let old = fs::read_to_string(&path).unwrap_or_default();
    let new = make(&old);
    if old == new {
        return;
    }
    if std::env::var_os("STENTOR_UPDATE").is_some() {
        // Other tests read the file at the same time.
        let beside = path.with_extension("new");
        fs::write(&beside, &new).unwrap();
        fs::rename(&beside, &path).unwrap();
        return;
    }
    let GeneratedFile { path, filter } = file;
    let mut lines = old.lines().zip(new.lines()).filter(|(old, new)| old != new);
    let (old, new) = lines.next().unwrap_or(("", "(its end)"));
    panic!("{path} is stale; `STENTOR_UPDATE=1 cargo test -p stentor-http {filter}` rewrites it:\n- {old}\n+ {new}");
}
