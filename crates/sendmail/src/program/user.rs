//! The caller: the real user ID, and its entry in the system's directory.

use nix::unistd::{Uid, User as Entry};
use stentor_sendmail::exit::{EX_OSERR, ExitError};
use stentor_sendmail::settings::LocalUser;

/// The caller.
pub struct CallingUser {
    pub user: LocalUser,
    pub full_name: String,
}

/// Looks up the user. One without an entry (usually in a container) may send, too; if the directory fails, the call
/// defers.
pub fn of(uid: Uid) -> Result<CallingUser, ExitError> {
    let entry =
        Entry::from_uid(uid).map_err(|error| ExitError::later(format!("could not look up user {uid}: {error}")))?;
    let Some(entry) = entry else {
        return Ok(CallingUser {
            user: LocalUser { uid: uid.as_raw(), login: String::new() },
            full_name: String::new(),
        });
    };
    if entry.name.is_empty() || entry.name.contains(|c: char| c.is_control() || c == '@') {
        return Err(ExitError::new(EX_OSERR, format!("user {uid} has no usable login name")));
    }
    let full_name = full_name(&entry.gecos.to_string_lossy(), &entry.name);
    Ok(CallingUser { user: LocalUser { uid: uid.as_raw(), login: entry.name }, full_name })
}

/// The first part of GECOS, in which `&` is replaced by the capitalised login name.
fn full_name(gecos: &str, login: &str) -> String {
    let mut letters = login.chars();
    let capital: String = letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect();
    gecos.split(',').next().unwrap_or_default().replace('&', &capital)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_names_come_from_gecos() {
        assert_eq!(full_name("Ann Example,Room 1,,", "ann"), "Ann Example");
        assert_eq!(full_name("& Example", "ann"), "Ann Example");
        assert_eq!(full_name("", "ann"), "");
    }
}
