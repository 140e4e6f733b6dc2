//! `stentor user list`: users of a file, with the running server's counts if there is one.
//!
//! The file is authoritative, even if the server has not read it yet; for Dovecot's users the server knows more than
//! the file.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};
use stentor_control::users_view::{Share, UserRow};
use stentor_records::escape::printable;
use stentor_users::{FileKind, LIMIT_KEYS, Limit, Limits, OwnLimits, User, Users};

/// Maximum octets of a name or a column in the list.
pub const SHOWN_BYTES_MAX: usize = 1_000;

/// One line.
struct UserEntry<'a> {
    name: &'a str,
    /// `None`: a Dovecot user without local settings.
    user: Option<&'a User>,
    counted: Option<&'a UserRow>,
    limits: Limits,
}

/// The users to list.
pub struct UserList<'a> {
    kind: FileKind,
    lines: Vec<UserEntry<'a>>,
}

impl<'a> UserList<'a> {
    /// `all`: the default limits; `counted`: the running server's counts.
    pub fn new(kind: FileKind, users: &'a Users, all: &Limits, counted: &'a [UserRow]) -> UserList<'a> {
        let rows: BTreeMap<&str, &UserRow> = counted.iter().map(|row| (row.user.as_str(), row)).collect();
        let line = |name: &'a str, user: Option<&'a User>| {
            let (counted, own) = (rows.get(name).copied(), user.map_or_else(OwnLimits::default, |user| user.limits));
            // Only the server knows the limits that Dovecot sets.
            let given = counted.filter(|_| kind == FileKind::DovecotOverrides).map(maxima);
            UserEntry { name, user, counted, limits: own.over(&given.unwrap_or(*all)) }
        };
        let mut lines: Vec<UserEntry<'a>> = users.iter().map(|user| line(&user.name, Some(user))).collect();
        if kind == FileKind::DovecotOverrides {
            lines.extend(rows.keys().filter(|name| users.get(name).is_none()).map(|name| line(name, None)));
            lines.sort_by_key(|line| line.name);
        }
        UserList { kind, lines }
    }

    /// Formats a table.
    pub fn text(&self) -> String {
        let names: Vec<String> = self.lines.iter().map(|line| printable(line.name, SHOWN_BYTES_MAX)).collect();
        let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max("USER".len());
        let mut text = format!("{:width$}  STATE   PASSWORD  MAY SEND AS; LIMITS\n", "USER");
        for (line, name) in self.lines.iter().zip(&names) {
            let state = if line.is_locked() { "locked" } else { "active" };
            let rights = printable(&line.rights(), SHOWN_BYTES_MAX);
            let _ = writeln!(text, "{name:width$}  {state:<6}  {:<8}  {rights}", self.forms(line));
        }
        text
    }

    /// Formats one object per line.
    pub fn json(&self) -> String {
        self.lines.iter().fold(String::new(), |mut text, line| {
            let _ = writeln!(text, "{}", self.object(line));
            text
        })
    }

    /// The stored forms of the password.
    fn forms(&self, line: &UserEntry<'_>) -> &'static str {
        match line.user.filter(|_| self.kind == FileKind::Own).map(|user| (&user.hash, &user.scram)) {
            None => "Dovecot",
            Some((Some(_), Some(_))) => "both",
            Some((Some(_), None)) => "no SCRAM",
            Some(_) => "SCRAM",
        }
    }

    fn object(&self, line: &UserEntry<'_>) -> Value {
        let used = line.counted.map(|row| {
            json!({
                "messages_hour": row.messages_hour.used,
                "messages_day": row.messages_day.used,
                "recipients_hour": row.recipients_hour.used,
                "recipients_day": row.recipients_day.used,
            })
        });
        let own = line.user.filter(|_| self.kind == FileKind::Own);
        let send_as = line.send_as();
        let mut object = json!({
            "used": used,
            "user": line.name,
            "locked": line.is_locked(),
            "password": own.map(|user| user.hash.is_some()),
            "scram": own.map(|user| user.scram.is_some()),
            "send_as": Some(send_as).filter(|all| !all.is_empty()),
        });
        for (key, max) in LIMIT_KEYS.into_iter().zip(line.limits.values()) {
            object[key] = json!(max);
        }
        object
    }
}

impl UserEntry<'_> {
    fn is_locked(&self) -> bool {
        self.user.is_some_and(|user| user.is_locked)
    }

    fn rights(&self) -> String {
        let send_as = self.send_as();
        let mut rights = if send_as.is_empty() { "set by Dovecot".to_owned() } else { send_as.join(", ") };
        let shares = self.counted.cloned().unwrap_or_default().shares();
        let own = self.user.map_or_else(OwnLimits::default, |user| user.limits).0;
        for ((max, own), (what, share)) in self.limits.values().into_iter().zip(own).zip(shares) {
            let Some(max) = max else {
                // Dovecot may have set one.
                if own == Limit::None {
                    let _ = write!(rights, "; {what} without limit");
                }
                continue;
            };
            let words = self.counted.map_or_else(|| max.to_string(), |_| Share { max: Some(max), ..share }.words());
            let _ = write!(rights, "; {what} {words}");
        }
        rights
    }

    /// Empty: Dovecot decides.
    fn send_as(&self) -> Vec<String> {
        self.user.iter().flat_map(|user| &user.send_as).map(ToString::to_string).collect()
    }
}

fn maxima(row: &UserRow) -> Limits {
    Limits::new(row.shares().map(|(_, share)| share.max))
}

#[cfg(test)]
mod tests {
    use stentor_users::text::parse;

    use super::*;

    fn row(user: &str, used: u32, max: Option<u32>) -> UserRow {
        UserRow { user: user.to_owned(), messages_hour: Share { used, max }, ..UserRow::default() }
    }

    #[test]
    fn dovecots_users_are_those_of_the_file_and_those_counted() {
        let text =
            "[eve@x.example]\nlocked = yes\n[bob@x.example]\nmessages_per_hour_max = none\nsend_as = @y.example\n";
        let users = parse(FileKind::DovecotOverrides, text).unwrap();
        let counted = [row("ann@x.example", 3, Some(9)), row("bob@x.example", 4, Some(9))];
        let all = Limits::new([Some(50), None, None, Some(7)]);
        let list = UserList::new(FileKind::DovecotOverrides, &users, &all, &counted);
        let wanted = "USER           STATE   PASSWORD  MAY SEND AS; LIMITS\n\
                      ann@x.example  active  Dovecot   set by Dovecot; messages/hour 3 of 9\n\
                      bob@x.example  active  Dovecot   @y.example; messages/hour without limit\n\
                      eve@x.example  locked  Dovecot   set by Dovecot; messages/hour 50; recipients/day 7\n";
        assert_eq!(list.text(), wanted);
        let lines: Vec<Value> = list.json().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&lines[0]["used"]["messages_hour"], &lines[0]["messages_per_hour_max"]), (&3.into(), &9.into()));
        assert_eq!((&lines[0]["password"], &lines[0]["send_as"]), (&Value::Null, &Value::Null));
        assert_eq!((&lines[2]["locked"], &lines[2]["recipients_per_day_max"]), (&true.into(), &7.into()));
    }
}
