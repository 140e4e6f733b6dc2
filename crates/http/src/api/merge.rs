//! Merge values of a submission: checked against its message before anything is accepted.

use std::collections::{BTreeMap, HashMap, HashSet};

use stentor_copies::MergeRows;
use stentor_mail::address::Address;
use stentor_mime::recode::{MERGE_NAME_BYTES_MAX, MergeSurvey};
use stentor_mime::with_crlf;

/// Largest message with merge values: each copy is made in memory.
pub(super) const MESSAGE_BYTES_MAX: usize = 512 * 1024;
/// Largest request with merge values: in memory they take many times their text.
pub(super) const REQUEST_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The value that every recipient has.
pub(super) const ADDRESS: &str = "address";

/// Values by recipient and name; those of the empty address are for all.
pub(super) type ValuesByRecipient = BTreeMap<String, BTreeMap<String, String>>;

/// Returns the stored form of the values. `message`: as it was submitted.
///
/// # Errors
/// In words: what is missing, for whom.
pub(super) fn table(values: ValuesByRecipient, recipients: &[Address], message: &[u8]) -> Result<Vec<u8>, String> {
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(format!("a message with `values` may have at most {MESSAGE_BYTES_MAX} octets"));
    }
    let survey = MergeSurvey::of(&with_crlf(message)).map_err(|error| error.to_string())?;
    if let Some(place) = &survey.unmerged {
        return Err(format!("a placeholder is in {place}, where no values are merged"));
    }
    let known_recipients: HashSet<String> = recipients.iter().map(|to| to.as_str().to_ascii_lowercase()).collect();
    let mut rows = MergeRows::default();
    let mut by_address: HashMap<String, BTreeMap<String, String>> = HashMap::with_capacity(values.len());
    for (address, values) in values {
        for name in values.keys() {
            let is_name = |octet: u8| octet.is_ascii_alphanumeric() || octet == b'_';
            if name.is_empty() || name.len() > MERGE_NAME_BYTES_MAX || !name.bytes().all(is_name) {
                return Err(format!(
                    "{name:?} is not a valid value name: use up to {MERGE_NAME_BYTES_MAX} letters, digits and _"
                ));
            }
        }
        let mut key = String::new();
        if !address.is_empty() {
            let known: Address = address.parse().map_err(|error| format!("values for {address:?}: {error}"))?;
            key = known.as_str().to_ascii_lowercase();
            if !known_recipients.contains(&key) {
                return Err(format!("values for {address:?}, which is not a recipient"));
            }
        }
        if by_address.insert(key, values).is_some() {
            return Err(format!("values for {address:?} twice: case does not tell addresses apart"));
        }
    }
    let for_all = by_address.get("").cloned().unwrap_or_default();
    for to in recipients {
        let own = by_address.get(&to.as_str().to_ascii_lowercase());
        let has = |name: &String| {
            name == ADDRESS || for_all.contains_key(name) || own.is_some_and(|own| own.contains_key(name))
        };
        if let Some(name) = survey.names.iter().find(|name| !has(name)) {
            return Err(format!("no value for {{{{{name}}}}} for recipient {to}"));
        }
    }
    if let Some(charset) = &survey.foreign_charset
        && by_address.values().flat_map(BTreeMap::values).any(|value| !value.is_ascii())
    {
        return Err(format!("a part with placeholders is in {charset}; values beyond ASCII need charset=utf-8"));
    }
    for (address, values) in by_address {
        rows.add(&address, values.into_iter().collect()).map_err(|error| error.to_string())?;
    }
    rows.encode().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values: &[(&str, &str, &str)], message: &str) -> Result<Vec<u8>, String> {
        let mut all = ValuesByRecipient::new();
        for (address, name, value) in values {
            all.entry((*address).to_owned()).or_default().insert((*name).to_owned(), (*value).to_owned());
        }
        let recipients = ["ann@x.example", "bob@x.example"].map(|to| to.parse().unwrap());
        table(all, &recipients, message.as_bytes())
    }

    #[test]
    fn every_placeholder_has_a_value_for_everybody() {
        let message = "Subject: {{name}}\n\n{{shop}} {{address}}\n";
        let all = [("", "shop", "Us"), ("Ann@x.example", "name", "Ann"), ("bob@x.example", "name", "Bob")];
        assert!(check(&all, message).is_ok());
        assert_eq!(check(&all[..2], message).unwrap_err(), "no value for {{name}} for recipient bob@x.example");
        assert!(check(&[("cid@x.example", "name", "C")], "\n").unwrap_err().contains("not a recipient"));
        assert!(check(&[("", "a b", "C")], "\n").unwrap_err().contains("not a valid value name"));
        assert!(check(&[("", "a", "x\ny")], "\n").unwrap_err().contains("control character"));
        assert!(
            check(&[("ann@x.example", "a", "1"), ("Ann@x.example", "a", "2")], "\n").unwrap_err().contains("twice")
        );
        let elsewhere = check(&[("", "a", "1")], "List-Unsubscribe: <https://x/{{a}}>\n\n").unwrap_err();
        assert!(elsewhere.contains("List-Unsubscribe"), "{elsewhere}");
        let latin = "Content-Type: text/plain; charset=iso-8859-1\n\n{{a}}\n";
        assert!(check(&[("", "a", "u")], latin).is_ok());
        assert!(check(&[("", "a", "\u{fc}")], latin).unwrap_err().contains("iso-8859-1"));
        assert!(check(&[("", "a", "u")], &"x".repeat(MESSAGE_BYTES_MAX + 1)).unwrap_err().contains("at most"));
    }
}
