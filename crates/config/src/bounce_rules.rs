//! The rules file of `[bounces]`. It is read at start, at a reload, and by `stentor check` and `stentor bounces`.
//!
//! Failure: a faulty file refuses the start or the reload, with its line; after a refused reload the old rules stay.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use stentor_bounces::BounceRules;
use stentor_bounces::rules::{BounceRuleError, FILE_BYTES_MAX};

use super::configuration::Config;
use super::diagnose::{Diagnostic, FilePosition, Severity};

/// Why a rules file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RulesFileError {
    #[error("cannot be read: {0}; correct `rules_file` in [bounces], or the file's owner and mode")]
    Unreadable(#[from] std::io::Error),
    #[error("{0}")]
    Rules(#[from] BounceRuleError),
}

/// Reads a rules file.
///
/// # Errors
/// It cannot be read, or is not a valid rules file.
pub fn bounce_rules(path: &Path) -> Result<BounceRules, RulesFileError> {
    let mut text = String::new();
    File::open(path)?.take(FILE_BYTES_MAX as u64 + 1).read_to_string(&mut text)?;
    Ok(BounceRules::parse(&text)?)
}

impl Config {
    /// The rules in `[bounces] rules_file`; `None` if the built-in ones are used.
    ///
    /// # Errors
    /// The file cannot be used: at its line, or at the key that names it.
    pub fn bounce_rules(&self) -> Result<Option<BounceRules>, Box<Diagnostic>> {
        let Some((path, named_at)) = &self.bounces.rules_file else { return Ok(None) };
        let found = bounce_rules(path).map(Some);
        found.map_err(|error| {
            let of_file = |line| (path.clone(), FilePosition { line, column: 0 }, error.to_string());
            let (file, at, message) = match &error {
                RulesFileError::Rules(fault) => of_file(fault.line()),
                RulesFileError::Unreadable(_) => match &self.file {
                    Some(file) => (file.clone(), *named_at, format!("{}: {error}", path.display())),
                    None => of_file(0),
                },
            };
            let FilePosition { line, column } = at;
            Box::new(Diagnostic { file, line, column, severity: Severity::Error, message })
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::check;

    #[test]
    fn a_faulty_rules_file_is_named_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let (file, rules) = (folder.path().join("stentor.toml"), folder.path().join("rules.toml"));
        std::fs::write(&file, "[bounces]\nrules_file = \"rules.toml\"\n").unwrap();
        let read = || check(&file).unwrap().bounce_rules();
        let missing = read().unwrap_err().to_string();
        assert!(missing.contains("stentor.toml:2:") && missing.contains("correct `rules_file`"), "{missing}");
        std::fs::write(&rules, "\n[[rule]]\nname = \"a\"\ncause = \"full\"\nconfidence = 5\n").unwrap();
        let faulty = read().unwrap_err().to_string();
        assert!(faulty.contains("rules.toml:3: rule \"a\": has no condition; add"), "{faulty}");
        std::fs::write(&rules, "[[rule]]\nname = \"a\"\ncode = [550]\ncause = \"full\"\nconfidence = 5\n").unwrap();
        assert_eq!(read().unwrap().unwrap().len(), 1);
    }
}
