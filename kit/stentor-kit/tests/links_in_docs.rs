//! Links between the pages lead somewhere, and so does each mention of a page in code, scripts and configurations.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text files below a folder that carry one of these endings, build products aside.
fn files(folder: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder is there").flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() {
            let is_ours = !name.to_string_lossy().starts_with('.') && name != "target" && name != "node_modules";
            if is_ours {
                files(&path, endings, found);
            }
        } else if path.extension().is_some_and(|ending| endings.contains(&ending.to_string_lossy().as_ref())) {
            found.push(path);
        }
    }
}

fn all(endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(&root(), endings, &mut found);
    found
}

/// A heading's anchor, as forges make it.
fn anchor(heading: &str) -> String {
    let kept = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    heading.to_lowercase().chars().filter(|c| kept(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn anchors(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap_or_default();
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#').trim())).collect()
}

#[test]
fn links_lead_to_pages_and_headings() {
    let (mut seen, mut broken) = (0, Vec::new());
    for page in all(&["md"]) {
        let text = fs::read_to_string(&page).expect("it can be read");
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") || link.contains(char::is_whitespace) {
                continue;
            }
            seen += 1;
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { page.clone() } else { page.with_file_name("").join(path) };
            let is_heading = heading.is_empty() || anchors(&target).iter().any(|anchor| anchor == heading);
            if !target.exists() || !is_heading {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(seen > 80, "links are found: {seen}");
}

#[test]
fn pages_named_anywhere_are_there() {
    let (mut seen, mut missing) = (0, Vec::new());
    for file in all(&["md", "rs", "py", "mjs", "toml", "sh"]) {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        for rest in text.split("docs/").skip(1) {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '/' | '-' | '.'));
            let path = rest[..end.unwrap_or(rest.len())].trim_end_matches('.');
            let is_page = Path::new(path).extension().is_some_and(|end| end == "md") && !path.contains("NNNN");
            seen += usize::from(is_page);
            if is_page && !root().join("docs").join(path).exists() {
                missing.push(format!("{}: docs/{path}", file.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(seen > 100, "mentions are found: {seen}");
}

#[test]
fn each_page_is_in_the_index_of_its_folder() {
    for folder in ["operate", "design", "design/decisions", "kit"] {
        let folder = root().join("docs").join(folder);
        let index = if folder.ends_with("decisions") { folder.join("../README.md") } else { folder.join("README.md") };
        let index = fs::read_to_string(index).expect("the index");
        for entry in fs::read_dir(&folder).expect("the folder is there").flatten() {
            let name = entry.file_name().into_string().expect("plain names");
            if entry.path().extension().is_some_and(|end| end == "md") && name != "README.md" {
                assert!(index.contains(&format!("{name})")), "{name} is missing in the index of {}", folder.display());
            }
        }
    }
}
