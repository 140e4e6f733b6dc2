//! Lists made by commands: a file `lists/NAME.toml` in the data folder for each, with the section `[lists.NAME]`.
//!
//! Promise: the grammar, the defaults and the checks are those of the configuration file. A file is replaced whole: a
//! crash leaves the old one or the new one. A file with anything but its list is refused, so that no key of it lands in
//! another section.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::diagnose::Diagnostic;
use super::tables::is_list_name;

/// Folder in `data_dir`.
const FOLDER: &str = "lists";
const EXTENSION: &str = "toml";
const LISTS: &str = "lists";
/// Octets of one file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The file of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListFile {
    pub path: PathBuf,
    pub text: String,
}

/// Why a list's file cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum ListFileError {
    #[error("{0:?} is not a valid list name: use at most 64 of a-z, A-Z, 0-9, - _ . +")]
    Name(String),
    #[error("`{key}` cannot be {text}: {why}")]
    Value { key: String, text: String, why: String },
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot delete {}: {source}", path.display())]
    Delete { path: PathBuf, source: io::Error },
    #[error("{} is damaged: {why}; correct it by hand", path.display())]
    Damaged { path: PathBuf, why: String },
}

/// The path of a list's file.
pub fn path_of(data_dir: &Path, name: &str) -> PathBuf {
    data_dir.join(FOLDER).join(format!("{name}.{EXTENSION}"))
}

/// Reads all files, in the order of their names. Other files in the folder are ignored.
pub(super) fn read_all(data_dir: &Path) -> Result<Vec<ListFile>, Vec<Diagnostic>> {
    let folder = data_dir.join(FOLDER);
    let failed = |path: &Path, why: &dyn std::fmt::Display| {
        vec![Diagnostic::of_file(path, format!("cannot be read: {why}; it has the lists made by commands"))]
    };
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(failed(&folder, &error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| failed(&folder, &error))?.path();
        // Editors leave other files beside those that they edit.
        let is_list = path.file_stem().and_then(|stem| stem.to_str()).is_some_and(is_list_name);
        if is_list && !is_hidden(&path) && path.extension().is_some_and(|extension| extension == EXTENSION) {
            paths.push(path);
        }
    }
    paths.sort();
    let (mut files, mut wrong) = (Vec::with_capacity(paths.len()), Vec::new());
    for path in paths {
        match read_file(&path) {
            Ok(text) => files.push(ListFile { path, text }),
            Err(why) => wrong.push(Diagnostic::of_file(&path, why)),
        }
    }
    if wrong.is_empty() { Ok(files) } else { Err(wrong) }
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

fn read_file(path: &Path) -> Result<String, String> {
    let size = fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?.len();
    if size > FILE_BYTES_MAX {
        return Err(format!("the file is larger than {FILE_BYTES_MAX} octets"));
    }
    let text = fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))?;
    section(path, &text).map(|_| text)
}

/// Returns the keys of the only section, which must be the list that the file is named after.
fn section(path: &Path, text: &str) -> Result<Table, String> {
    let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let wrong = || format!("the file must have the section [lists.{}] and nothing else", quoted(name));
    // Behind another file's text, a key before the first header would belong to that file's last section.
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    if !first.is_some_and(|line| line.starts_with("[lists.")) {
        return Err(wrong());
    }
    let mut top: Table = text.parse().map_err(|error: toml::de::Error| format!("not TOML: {}", error.message()))?;
    let Some(Value::Table(mut lists)) = top.remove(LISTS) else { return Err(wrong()) };
    match lists.remove(name) {
        Some(Value::Table(keys)) if top.is_empty() && lists.is_empty() => Ok(keys),
        _ => Err(wrong()),
    }
}

fn quoted(name: &str) -> String {
    if name.contains('.') || name.contains('+') { format!("{name:?}") } else { name.to_owned() }
}

/// Reads the text of a list's file. `None`: there is no such file.
pub fn read_text(data_dir: &Path, name: &str) -> Result<Option<String>, ListFileError> {
    let path = path_of(data_dir, name);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ListFileError::Read { path, source }),
    }
}

/// Reads the keys of a list's file. `None`: there is no such file.
pub fn keys(data_dir: &Path, name: &str) -> Result<Option<Table>, ListFileError> {
    if !is_list_name(name) {
        return Err(ListFileError::Name(name.to_owned()));
    }
    let path = path_of(data_dir, name);
    let text = read_text(data_dir, name)?;
    let read = text.map(|text| section(&path, &text)).transpose();
    read.map_err(|why| ListFileError::Damaged { path, why })
}

/// Parses the text of a key's value: TOML, or else a string without quotes.
pub fn value(key: &str, text: &str) -> Result<Value, ListFileError> {
    let refused =
        |why: &str| ListFileError::Value { key: key.to_owned(), text: format!("{text:?}"), why: why.to_owned() };
    if key == "subscribers" {
        return Err(refused("the members of this list are in the registry"));
    }
    let is_key = !key.is_empty()
        && key.bytes().all(|octet| octet.is_ascii_lowercase() || octet == b'_' || octet.is_ascii_digit());
    if !is_key {
        return Err(refused("keys have a-z, 0-9 and _"));
    }
    if text.contains(['\n', '\r']) {
        return Err(refused("it has a line break"));
    }
    match format!("value = {text}").parse::<Table>().ok().and_then(|mut table| table.remove("value")) {
        Some(Value::Table(_) | Value::Datetime(_)) => Err(refused("it is neither text, number, truth nor array")),
        Some(value) => Ok(value),
        None => Ok(Value::String(text.to_owned())),
    }
}

/// Returns the text of a list's file.
pub fn text_of(name: &str, keys: &Table) -> String {
    let mut text =
        format!("# Written by stentor list; after a change by hand, `stentor reload`.\n[lists.{}]\n", quoted(name));
    for (key, value) in keys {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{key} = {value}");
    }
    text
}

/// Writes a list's file. Durable when it returns. Blocks.
pub fn write(data_dir: &Path, name: &str, text: &str) -> Result<(), ListFileError> {
    if !is_list_name(name) {
        return Err(ListFileError::Name(name.to_owned()));
    }
    let path = path_of(data_dir, name);
    replace(&path, text.as_bytes()).map_err(|source| ListFileError::Write { path, source })
}

fn replace(path: &Path, octets: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut create = fs::DirBuilder::new();
    if !folder.is_dir() {
        create.recursive(true).mode(0o700).create(folder)?;
        File::open(folder.parent().unwrap_or(Path::new("")))?.sync_all()?;
    }
    // Another extension, so that no reader takes it for a list.
    let new = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(octets)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(folder)?.sync_all()
}

/// Deletes a list's file. Durable when it returns. Blocks.
pub fn delete(data_dir: &Path, name: &str) -> Result<(), ListFileError> {
    let path = path_of(data_dir, name);
    let deleted = fs::remove_file(&path).and_then(|()| File::open(data_dir.join(FOLDER))?.sync_all());
    deleted.map_err(|source| ListFileError::Delete { path, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let mut keys = Table::new();
        for (key, text) in
            [("address", "news@x.example"), ("one_click", "true"), ("post", "[\"a@x.example\"]"), ("expire_s", "86400")]
        {
            keys.insert(key.to_owned(), value(key, text).unwrap());
        }
        keys.insert("description".to_owned(), value("description", "The \"news\" of x # really").unwrap());
        for name in ["news", "a.b+c"] {
            write(folder.path(), name, &text_of(name, &keys)).unwrap();
            assert_eq!(super::keys(folder.path(), name).unwrap(), Some(keys.clone()));
        }
        assert_eq!(read_all(folder.path()).unwrap().len(), 2);
        delete(folder.path(), "news").unwrap();
        assert_eq!(super::keys(folder.path(), "news").unwrap(), None);
        assert_eq!(read_all(folder.path()).unwrap().len(), 1);
    }

    #[test]
    fn a_file_has_only_its_list() {
        let path = Path::new("news.toml");
        assert!(section(path, "[lists.news]\na = 1\n").is_ok());
        for text in [
            "a = 1\n[lists.news]",
            "[lists.news]\n[http]\nlisten = []",
            "[lists.talk]",
            "",
            "[lists.news]\n[lists.b]",
            "lists.news.a = 1",
            "\u{feff}[lists.news]",
            "[lists",
        ] {
            assert!(section(path, text).is_err(), "{text}");
        }
        for (key, text) in [("a", "b\nc"), ("A", "1"), ("", "1"), ("a", "{ b = 1 }"), ("a b", "1")] {
            assert!(value(key, text).is_err(), "{key} {text}");
        }
        for name in ["../x", "a/b", ""] {
            assert!(write(Path::new("/nonexistent"), name, "").is_err());
        }
    }
}
