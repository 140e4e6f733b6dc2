//! Whether a table's values are in the words of its dialect: for `check`, before mail is deferred for one.

use stentor_addresses::{Target, parse};

use crate::book::Rulebook;
use crate::hop::NextHop;
use crate::rule::{Dialect, action_of};

/// sendmail's word before a refusal.
const ERROR: &str = "error:";

impl Rulebook {
    /// Why mail for a key of a table with these words would be deferred. `None`: it can be used.
    pub fn unusable(&self, dialect: Dialect, key: &str, value: &str) -> Option<String> {
        if !dialect.is_of_addresses() {
            let error = action_of(dialect, value, self.smtp_port).err()?;
            let is_hop = dialect == Dialect::Own && NextHop::parse(value, self.smtp_port).is_ok();
            return (!is_hop).then(|| error.to_string());
        }
        let begins_with_error = value.trim().get(..ERROR.len()).is_some_and(|tag| tag.eq_ignore_ascii_case(ERROR));
        // Of a domain that is itself a key, the value means nothing.
        if dialect == Dialect::Virtual && !key.contains('@') || dialect == Dialect::Virtusertable && begins_with_error {
            return None;
        }
        let targets = match parse(value) {
            Ok(targets) => targets,
            Err(error) => return Some(error.to_string()),
        };
        let is_one = matches!(dialect, Dialect::Canonical | Dialect::Generic | Dialect::Genericstable);
        if is_one && targets.len() != 1 {
            return Some(format!("{value:?} is not one address"));
        }
        targets.iter().find_map(|target| self.unusable_target(dialect, target, value))
    }

    fn unusable_target(&self, dialect: Dialect, target: &Target, value: &str) -> Option<String> {
        match target {
            Target::Address(text) | Target::Final(text) if has_argument(text) => (!dialect.has_arguments())
                .then(|| format!("{text:?}: `%` and a digit belong to sendmail's tables; is `as` right?")),
            Target::Address(text) | Target::Final(text) => {
                self.named(text, "").is_none().then(|| format!("{text:?} is not a mail address"))
            }
            Target::Domain(_) => None,
            Target::Include(_) | Target::Program(_) | Target::File(_) => {
                (dialect != Dialect::Aliases).then(|| format!("{value:?} belongs to alias files; is `as` right?"))
            }
        }
    }
}

fn has_argument(text: &str) -> bool {
    text.as_bytes().windows(2).any(|two| two[0] == b'%' && two[1].is_ascii_digit())
}
