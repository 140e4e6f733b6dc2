//! A file of tracefs that others share: changed temporarily, and restored however that ends.

use std::sync::Arc;

use stentor_measure::guardian::{Guarded, quoted};
use stentor_measure::{Guardian, MeasureError};

use crate::collect::instance::Folder;

/// Has its old value again when this is dropped, after `kill -9` by the guardian.
#[derive(Debug)]
pub struct Setting {
    folder: Folder,
    name: String,
    old: String,
    _guarded: Guarded,
}

impl Setting {
    /// `old`: what is to be written to put it back. An empty text empties the file.
    pub fn change(
        guardian: &Arc<Guardian>,
        folder: &Folder,
        name: &str,
        value: &str,
        old: &str,
    ) -> Result<Setting, MeasureError> {
        let guarded = guardian.guard(&undo(folder, name, old)).map_err(MeasureError::file("sh"))?;
        // Before the first change, so that also a refused one is put back.
        let setting = Setting { folder: folder.clone(), name: name.to_owned(), old: old.to_owned(), _guarded: guarded };
        folder.write(name, value)?;
        Ok(setting)
    }

    /// Not changed by us, but by what we run: has the value of now again in the end.
    pub fn keep(guardian: &Arc<Guardian>, folder: &Folder, name: &str) -> Result<Setting, MeasureError> {
        let old = value_of(&folder.read(name)?);
        let guarded = guardian.guard(&undo(folder, name, &old)).map_err(MeasureError::file("sh"))?;
        Ok(Setting { folder: folder.clone(), name: name.to_owned(), old, _guarded: guarded })
    }

    /// With the value that it has now as the old one: a number, or the word in brackets.
    pub fn replace(
        guardian: &Arc<Guardian>,
        folder: &Folder,
        name: &str,
        value: &str,
    ) -> Result<Setting, MeasureError> {
        let old = value_of(&folder.read(name)?);
        Setting::change(guardian, folder, name, value, &old)
    }
}

/// The guardian's way. Never makes the file.
fn undo(folder: &Folder, name: &str, old: &str) -> String {
    let path = quoted(&folder.path.join(name));
    format!("[ -e {path} ] && printf %s '{old}' > {path}")
}

/// `1408` of `7 (expanded: 1408)`, which is what a buffer has once it is used; else the first word.
pub fn value_of(text: &str) -> String {
    let expanded = text.split_once("expanded:").map(|(_, rest)| rest);
    let words = expanded.unwrap_or(text);
    let word = words.split_whitespace().next().unwrap_or_default();
    word.chars().filter(char::is_ascii_alphanumeric).collect()
}

impl Drop for Setting {
    fn drop(&mut self) {
        let _ = self.folder.write(&self.name, &self.old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn values_are_put_back() {
        let folder = tempfile::tempdir().unwrap();
        let of = Folder { path: folder.path().to_owned() };
        let text = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        fs::write(folder.path().join("max_graph_depth"), "0\n").unwrap();
        fs::write(folder.path().join("set_graph_function"), "#### all functions enabled ####\n").unwrap();
        let guardian = Guardian::start().unwrap();
        let depth = Setting::replace(&guardian, &of, "max_graph_depth", "3").unwrap();
        let function = Setting::change(&guardian, &of, "set_graph_function", "", "").unwrap();
        of.append("set_graph_function", "vfs_write\n").unwrap();
        assert_eq!((text("max_graph_depth").as_str(), text("set_graph_function").as_str()), ("3", "vfs_write\n"));
        drop(depth);
        assert_eq!(text("max_graph_depth"), "0");
        // If we were killed now.
        for (name, old) in [("set_graph_function", ""), ("max_graph_depth", "7"), ("never-there", "1")] {
            std::process::Command::new("sh").args(["-c", &undo(&of, name, old)]).status().unwrap();
        }
        assert_eq!((text("max_graph_depth").as_str(), text("set_graph_function").as_str()), ("7", ""));
        assert!(!folder.path().join("never-there").exists());
        drop(function);
        let kept = Setting::keep(&guardian, &of, "max_graph_depth").unwrap();
        of.write("max_graph_depth", "2").unwrap();
        drop(kept);
        assert_eq!(text("max_graph_depth"), "7");
        assert!(Setting::replace(&guardian, &of, "no-such-file", "1").is_err());
        assert_eq!(["7 (expanded: 1408)\n", "1408\n", "X\n"].map(value_of), ["1408", "1408", "X"]);
    }
}
