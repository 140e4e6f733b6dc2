//! The pages of docs/operate that tests compare with the code.

use std::fs;
use std::path::{Path, PathBuf};

/// The reference, split by sections of the configuration.
pub(crate) fn reference() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate");
    let is_reference = |path: &PathBuf| {
        path.extension().is_some_and(|ending| ending == "md")
            && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("configuration"))
    };
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = files.filter(is_reference).collect();
    pages.sort();
    pages
}

/// Cells of a page's table rows, each with the heading above.
pub(crate) fn table_rows(page: &str) -> Vec<(String, Vec<String>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate");
    let (mut heading, mut rows) = (String::new(), Vec::new());
    for line in fs::read_to_string(root.join(page)).unwrap().lines() {
        if let Some(text) = line.strip_prefix("## ") {
            heading = text.trim_matches(['[', ']']).to_owned();
        } else if let Some(row) = line.strip_prefix("| ") {
            rows.push((heading.clone(), row.split(" |").map(|cell| cell.trim().to_owned()).collect()));
        }
    }
    rows
}
