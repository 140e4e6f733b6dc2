//! Programs and files of alias files as recipients: `NAME=TAG@domain`, by which a delivery agent finds the target
//! again.
//!
//! Promise: a tag belongs to the text of one target and to its included file, so that a tag can name nothing outside
//! the alias file. Another text has another tag.

use sha2::{Digest as _, Sha256};

use crate::targets::ExpansionTarget;

/// Octets of the hash that a tag shows, as two characters each.
const TAG_BYTES: usize = 8;

/// Returns the tag of a program or file from the alias file or from an included file; `None` for other targets.
pub fn tag(target: &ExpansionTarget, included: Option<&str>) -> Option<String> {
    let (kind, text) = match target {
        ExpansionTarget::Program(command) => ("|", command),
        ExpansionTarget::File(path) => ("", path),
        ExpansionTarget::Address(_)
        | ExpansionTarget::Final(_)
        | ExpansionTarget::Domain(_)
        | ExpansionTarget::Include(_) => return None,
    };
    // A path contains no NUL.
    let whole = format!("{}\0{kind}{text}", included.unwrap_or_default());
    let hash = Sha256::digest(whole.as_bytes());
    let shown = hash.iter().take(TAG_BYTES).fold(0_u64, |shown, octet| shown << 8 | u64::from(*octet));
    Some(format!("{shown:016x}"))
}

/// Appends a tag to a local part, within its quotes if there are any.
pub fn tagged(local: &str, tag: &str) -> String {
    match local.strip_suffix('"') {
        Some(quoted) => format!("{quoted}={tag}\""),
        None => format!("{local}={tag}"),
    }
}

/// Splits a local part and its tag, if it has one.
pub fn untagged(local: &str) -> Option<(String, &str)> {
    let (plain, end) = local.strip_suffix('"').map_or((local, ""), |quoted| (quoted, "\""));
    let (name, tag) = plain.rsplit_once('=')?;
    let is_tag = tag.len() == 2 * TAG_BYTES && tag.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (is_tag && !name.trim_start_matches('"').is_empty()).then(|| (format!("{name}{end}"), tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<String> {
        tag(&crate::parse(text).unwrap()[0], None)
    }

    #[test]
    fn a_tag_is_of_one_text_in_one_file() {
        let program = of("|/bin/cat").unwrap();
        assert_eq!(of("\"|/bin/cat\""), Some(program.clone()));
        assert_eq!(program, "8d029dd4d61a35c0");
        let others =
            [of("|/bin/cat -n"), of("/bin/cat"), tag(&ExpansionTarget::Program("/bin/cat".into()), Some("/list"))];
        assert!(others.iter().all(|other| other.as_ref().is_some_and(|other| *other != program)), "{others:?}");
        assert_eq!(of("joe"), None);
    }

    #[test]
    fn a_tag_comes_off_again() {
        for local in ["news", "news+x", "a=b", "\"a b\"", "\"a=b c\""] {
            let with = tagged(local, "0123456789abcdef");
            assert_eq!(untagged(&with), Some((local.to_owned(), "0123456789abcdef")), "{with}");
        }
        for none in ["news", "news=", "news=0123", "=0123456789abcdef", "\"=0123456789abcdef\"", "n=0123456789ABCDEF"] {
            assert_eq!(untagged(none), None, "{none}");
        }
    }
}
